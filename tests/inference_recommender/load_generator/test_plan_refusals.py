"""Plans that the generator rejects, with the whole message."""

import json
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.load_generator.plan import LoadPlan
from workloads.errors import InvalidDocument

ARRIVALS = {"arrivals": {"invocations_per_minute": 60.0, "duration_in_seconds": 1.0}}
USERS = {"traffic_pattern": {"TrafficType": "PHASES", "Phases": [{"InitialNumberOfUsers": 1, "DurationInSeconds": 1}]}}
ONE_TRAFFIC = "(document): give exactly one of traffic_pattern (closed loop) and arrivals (open loop)."


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({**ARRIVALS, **USERS}, ONE_TRAFFIC),
        ({}, ONE_TRAFFIC),
        (
            {**ARRIVALS, "url": None},
            "(document): give exactly one of url and endpoint (of SageMaker, by name).",
        ),
        (
            {**ARRIVALS, "headers": {"X-A": "1\r\nX-B: 2"}},
            "(document): header X-A: has a character that none may have, such as a line break.",
        ),
        (
            {**ARRIVALS, "headers": {"X A": "1"}},
            "(document): got the header name 'X A'. Allowed: letters, digits and hyphens.",
        ),
        (
            {**ARRIVALS, "headers": {"content-length": "1"}},
            "(document): got the header content-length, which the generator sets itself.",
        ),
        (
            {**ARRIVALS, "url": "http://host/a b"},
            "(document): url: got 'http://host/a b', with a character that no URL may have.",
        ),
        ({**ARRIVALS, "url": "http://host:99999/"}, "(document): Port out of range 0-65535"),
        ({**ARRIVALS, "share": {"index": 2, "of": 2}}, "share: index is 2; of 2 generators the last has 1."),
    ],
)
def test_a_wrong_plan_is_rejected(tmp_path: Path, plan: dict[str, Any], message: str) -> None:
    file = tmp_path / "plan.json"
    document = {"url": "http://h/", "payloads": "p", **plan}
    file.write_text(json.dumps({key: value for key, value in document.items() if value is not None}), "utf-8")
    with pytest.raises(InvalidDocument) as refused:
        LoadPlan.from_json(file)
    assert str(refused.value) == f"{file}: {message}"
