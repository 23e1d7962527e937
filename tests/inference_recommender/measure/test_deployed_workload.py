"""The target that a run measures: the one that was named, else the one that the stack says it hosts."""

from typing import Any

import pytest
from moto import mock_aws

from aws_api.errors import AwsUnavailable
from inference_recommender.__main__ import main
from inference_recommender.measure.aws import Aws, deployed_workload
from workloads import UsageError


class Account(Aws):
    """An account with one stack, or without it."""

    def __init__(self, outputs: dict[str, str] | None) -> None:
        """Makes no session."""
        self.told = outputs

    def _outputs(self, stack: str, instead: str = "") -> dict[str, str]:
        if self.told is None or stack != "SpellcheckStack":
            raise AwsUnavailable(f"There is no stack called {stack}.")
        return self.told


CPU = {"EndpointName": "SpellcheckStack", "HostedTarget": "cpu"}


@pytest.mark.parametrize(
    ("given", "outputs", "target"),
    [
        ({}, CPU, "cpu"),
        ({}, None, "tensorrt"),
        ({}, {"EndpointName": "SpellcheckStack"}, "tensorrt"),
        ({"target": "cpu-int8"}, CPU, "cpu-int8"),
        ({"endpoint": "SpellcheckStack"}, CPU, "cpu"),
        ({"endpoint": "another"}, CPU, "tensorrt"),
    ],
)
def test_the_target_is_the_one_named_else_the_one_deployed_else_the_workloads(
    given: dict[str, Any], outputs: dict[str, str] | None, target: str
) -> None:
    folder = deployed_workload("spellcheck", given.get("target"), Account(outputs), given.get("endpoint"))
    assert folder.workload.hosting.target == target
    assert folder.workload.instance_types == folder.target(target).instance_types


def test_without_an_account_the_target_is_the_workloads() -> None:
    assert deployed_workload("spellcheck", None, None).workload.hosting.target == "tensorrt"


def test_a_target_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError) as refusal:
        deployed_workload("spellcheck", "gpu", None)
    assert str(refusal.value).endswith(
        "workload.toml: there is no target 'gpu'. Known targets: cpu, cpu-int8, cuda, tensorrt."
    )


@mock_aws
def test_invoke_without_a_stack_names_its_own_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert main(["invoke", "spellcheck", "a"]) == 3
    assert capsys.readouterr().err == (
        "There is no stack called SpellcheckStack in us-east-1. Run `cdk deploy SpellcheckStack` first, or name an "
        "endpoint with --endpoint NAME.\n"
    )
