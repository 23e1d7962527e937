"""The load generator against an endpoint by name: signed requests, through the account's runtime, to a real Triton."""

from pathlib import Path

import pytest

from inference_recommender.load_generator.load_plan import Arrivals, LoadPlan, NamedEndpoint
from inference_recommender.load_generator.process import generate
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import Endpoints, payload_archive

pytestmark = pytest.mark.integration


def test_an_endpoint_is_measured_by_its_name(
    endpoints: Endpoints, account: LocalAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = endpoints.create("measured", config=endpoints.config("measured-1"))
    endpoints.settled(name)
    for variable, value in account.environment.items():
        monkeypatch.setenv(variable, value)
    (tmp_path / "payloads.tar.gz").write_bytes(payload_archive())
    plan = LoadPlan(
        endpoint=NamedEndpoint(name=name),
        payloads=tmp_path / "payloads.tar.gz",
        arrivals=Arrivals(invocations_per_minute=600, duration_in_seconds=2, connections=4),
    )
    outcome = generate(plan, tmp_path / "out")
    assert outcome.summary is not None
    assert outcome.summary["invocations"] > 0
    assert (outcome.summary["errors"], outcome.summary["first_error"]) == (0, None)
