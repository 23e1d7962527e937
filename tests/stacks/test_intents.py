"""What the templates promise: intents.toml. Outputs, updates of endpoints and grants are here, too."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib

from stacks.context import PRODUCTION
from tests.stacks.miniature import Repository, Synthesis, candidate
from workloads import ROOT

TABLE: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("intents.toml").read_text("utf-8"))
OUTPUTS = {
    "unmeasured": [
        *("EndpointName", "ModelName", "RecommenderRoleArn", "GeneratorRoleArn", "HostedTarget", "PagingTopicArn")
    ],
    "service": ["ServiceUrl", "ClusterName", "ServiceName", "AlarmTopicArn"],
    "batch": ["InputBucket", "OutputBucket", "StateMachineArn", "AlarmTopicArn"],
}
CANARY, LINEAR, ROLLING = (
    ("BlueGreenUpdatePolicy", "TrafficRoutingConfiguration", "CanarySize"),
    ("BlueGreenUpdatePolicy", "TrafficRoutingConfiguration", "LinearStepSize"),
    ("RollingUpdatePolicy", "MaximumBatchSize"),
)


@pytest.mark.parametrize("name", TABLE)
def test_a_template_has_the_intended_resources(name: str, request: pytest.FixtureRequest) -> None:
    case = TABLE[name]
    synthesis: Synthesis = request.getfixturevalue(case["stack"])
    properties = [each["Properties"] for each in synthesis.of_type(case["type"]).values()]
    expected = case.get("has", {})
    if case.get("any"):
        assert any(is_part(expected, each) for each in properties)
    else:
        (only,) = properties
        assert is_part(expected, only), only
        assert not set(case.get("lacks", ())) & only.keys()
    assert not [kind for kind in case.get("none", ()) if synthesis.of_type(kind)]


def is_part(expected: Any, actual: Any) -> bool:
    """Returns whether dicts have at least the expected keys, and lists the same length."""
    match expected, actual:
        case dict(), dict():
            return all(key in actual and is_part(value, actual[key]) for key, value in expected.items())
        case list(), list():
            return len(expected) == len(actual) and all(map(is_part, expected, actual))
        case _:
            return bool(expected == actual)


@pytest.mark.parametrize("stack", OUTPUTS)
def test_a_stack_has_its_outputs(stack: str, request: pytest.FixtureRequest) -> None:
    """inference_recommender finds those of an endpoint by name."""
    assert list(request.getfixturevalue(stack).json["Outputs"]) == OUTPUTS[stack]


@pytest.mark.parametrize(
    ("update", "path", "size"),
    [
        ({"strategy": "canary", "percent": 50}, CANARY, {"Type": "CAPACITY_PERCENT", "Value": 50}),
        ({"strategy": "canary"}, CANARY, {"Type": "INSTANCE_COUNT", "Value": 1}),
        ({"strategy": "linear", "percent": 50}, LINEAR, {"Type": "CAPACITY_PERCENT", "Value": 50}),
        ({"strategy": "linear", "percent": 10}, LINEAR, {"Type": "CAPACITY_PERCENT", "Value": 50}),
        ({"strategy": "rolling", "percent": 34}, ROLLING, {"Type": "CAPACITY_PERCENT", "Value": 50}),
        ({"strategy": "rolling", "percent": 50}, ROLLING, {"Type": "CAPACITY_PERCENT", "Value": 50}),
        ({"strategy": "all-at-once"}, (*CANARY[:2], "Type"), "ALL_AT_ONCE"),
        ({"strategy": "all-at-once", "bake_s": 900}, (CANARY[0], "TerminationWaitInSeconds"), 900),
    ],
)
def test_production_is_updated_in_the_configured_steps(
    repository: Repository, update: dict[str, object], path: tuple[str, ...], size: object
) -> None:
    """SageMaker does not document how it rounds a share of less than one instance.

    Autoscaling may have reduced the recommended 20 instances to 2, and an update keeps that number.
    """
    repository.host(update=update)
    repository.recommend(candidate(instance_count=20))
    value: Any = repository.synthesise(options=PRODUCTION).only("AWS::SageMaker::Endpoint")["DeploymentConfig"]
    for key in path:
        value = value[key]
    assert value == size


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
