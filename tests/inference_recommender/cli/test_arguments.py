"""Options of several commands: values, the measured workload, its target and the settings of --set."""

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli.arguments import count, percentile, positive
from inference_recommender.measure.run import workload_to_measure
from tests.builders import message_of
from tests.inference_recommender.api import DeployedAccount
from tests.inference_recommender.conftest import Cli
from workloads import ProjectError, UsageError, load_workload
from workloads.folder import with_settings


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [(positive, "0.5", 0.5), (count, "3", 3), (percentile, "99", "P99"), (percentile, "p99.9", "P99.9")],
)
def test_a_value_is_read(parse: Callable[[str], Any], text: str, value: Any) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "texts", "rule"),
    [
        (positive, ["0", "-1", "inf", "nan", "many"], "it must be more than 0."),
        (count, ["0", "-1", "1.5", "many"], "it must be a whole number above 0."),
        (percentile, ["0", "P100", "many"], "a percentile is P50, P99, P99.9 and the like."),
    ],
)
def test_a_wrong_value_is_refused(parse: Callable[[str], Any], texts: list[str], rule: str) -> None:
    for text in texts:
        assert message_of(argparse.ArgumentTypeError, parse, text) == f"got '{text}', but {rule}"


CPU = {"EndpointName": "SpellcheckStack", "HostedTarget": "cpu"}


@pytest.mark.parametrize(
    ("given", "outputs", "target"),
    [
        ({}, CPU, "cpu"),
        ({}, {}, "tensorrt"),
        ({}, {"EndpointName": "SpellcheckStack"}, "tensorrt"),
        ({"target": "cpu-int8"}, CPU, "cpu-int8"),
        ({"endpoint": "SpellcheckStack"}, CPU, "cpu"),
        ({"endpoint": "another"}, CPU, "tensorrt"),
    ],
)
def test_the_target_is_the_named_one_or_the_deployed_one_or_the_workloads(
    given: dict[str, Any], outputs: dict[str, str] | None, target: str
) -> None:
    account = DeployedAccount()
    account.outputs = outputs
    folder = workload_to_measure("spellcheck", (), given.get("target"), account, given.get("endpoint"))
    assert folder.workload.hosting.target == target
    assert folder.workload.instance_types == folder.target(target).instance_types
    assert workload_to_measure("spellcheck", (), None, None, None).workload.hosting.target == "tensorrt"
    with pytest.raises(
        UsageError, match=r"there is no target 'gpu'. Known targets: cpu, cpu-int8, cuda, tensorrt, tensorrt-int8."
    ):
        workload_to_measure("spellcheck", (), "gpu", None, None)


def test_settings_replace_keys_of_workload_toml() -> None:
    settings = [
        "recommender.bucket=mine",
        "recommender.subnets=a,b",
        "recommender.parallel_tests=2",
        "recommender.tags.team=search",
        "objective.model_latency_ms=80.0",
    ]
    workload = with_settings(load_workload("spellcheck"), settings).workload
    account = workload.recommender
    assert (account.bucket, account.subnets, account.parallel_tests) == ("mine", ("a", "b"), 2)
    assert account.tags == {"team": "search"}
    assert workload.latency_objective.model_latency_ms == 80
    assert load_workload("spellcheck").workload.recommender.bucket is None
    restored = with_settings(load_workload("spellcheck"), [*settings, "recommender.bucket=", "recommender.subnets="])
    assert (restored.workload.recommender.bucket, restored.workload.recommender.subnets) == (None, ())


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("bucket=b", "--set: got 'bucket=b'. Allowed: TABLE.KEY=VALUE, such as recommender.bucket=NAME."),
        ("recommender.bucket", "--set: got 'recommender.bucket'. Allowed: TABLE.KEY=VALUE, such as recommender."),
        ("none.such=1", "--set: got 'none.such=1'. Allowed: TABLE.KEY=VALUE, such as recommender.bucket=NAME."),
        ("recommender.budget=1", "--set: recommender.budget: unknown key. Allowed here: bucket, environment, "),
        ("recommender.generators=0", "--set: recommender.generators: got 0."),
    ],
)
def test_a_wrong_setting_is_rejected(setting: str, problem: str) -> None:
    assert message_of(ProjectError, with_settings, load_workload("spellcheck"), [setting]).startswith(problem)


def test_a_run_of_a_named_model_does_not_read_the_stack(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    def stack_outputs(*_: object) -> dict[str, str]:
        raise AssertionError("the stack was read")

    monkeypatch.setattr(SageMakerAccount, "stack_outputs", stack_outputs)
    facts = ("model=m", "role_arn=arn:aws:iam::123456789012:role/r", "bucket=payloads")
    settings = [word for fact in facts for word in ("--set", f"recommender.{fact}")]
    assert '"ModelName": "m"' in cli.out("run", "question_answering", "--job", "advanced", "--dry-run", *settings)
