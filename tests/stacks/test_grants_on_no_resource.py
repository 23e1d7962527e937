"""An action that AWS gives no resource is granted on `*`: a grant of it on an ARN grants nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workloads import ROOT

SNAPSHOTS = sorted((ROOT / "tests/stacks/snapshots").glob("*.json"))
REFERENCE = ROOT / "tests/local_aws/permissions/service_authorization_reference.json"


def actions_on_no_resource(reference: Any) -> Iterator[str]:
    """Yields the actions of AWS's Service Authorization Reference that name no type of resource."""
    for name, value in reference.items() if isinstance(reference, dict) else ():
        if ":" in name and not name.startswith("arn:") and value == {}:
            yield name
        else:
            yield from actions_on_no_resource(value)


def allowed(node: Any) -> Iterator[tuple[str, Any]]:
    """Yields each action that a template allows, with its resources."""
    if isinstance(node, dict):
        if node.get("Effect") == "Allow" and "Resource" in node and "Action" in node:
            actions = node["Action"] if isinstance(node["Action"], list) else [node["Action"]]
            yield from ((action, node["Resource"]) for action in actions)
        for value in node.values():
            yield from allowed(value)
    elif isinstance(node, list):
        for value in node:
            yield from allowed(value)


@pytest.mark.parametrize("snapshot", SNAPSHOTS, ids=lambda file: file.name)
def test_an_action_on_no_resource_is_granted_on_any(snapshot: Path) -> None:
    """`sagemaker:ListInferenceRecommendationsJobSteps` on the jobs was one, as a rehearsed release showed."""
    without = set(actions_on_no_resource(json.loads(REFERENCE.read_text("utf-8"))))
    assert "sagemaker:ListInferenceRecommendationsJobSteps" in without
    template = json.loads(snapshot.read_text("utf-8"))
    assert [(action, on) for action, on in allowed(template) if action in without and on not in ("*", ["*"])] == []
