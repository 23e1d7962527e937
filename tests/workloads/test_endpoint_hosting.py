"""[hosting] of an endpoint: what may be said, and what contradicts itself."""

from pathlib import Path

import pytest

from workloads import Canary, SageMakerEndpointHosting, load_workload
from workloads.errors import InvalidDocument


def hosting(workloads_copy: Path, keys: str) -> SageMakerEndpointHosting:
    file = workloads_copy / "spellcheck/workload.toml"
    before = file.read_text("utf-8").partition("[hosting]")[0]  # the last table
    file.write_text(f'{before}[hosting]\nkind = "sagemaker-endpoint"\ntarget = "cpu"\n{keys}\n', "utf-8")
    loaded = load_workload("spellcheck", workloads_copy).workload.hosting
    assert isinstance(loaded, SageMakerEndpointHosting)
    return loaded


def test_nothing_optional_is_there_unless_asked_for(workloads_copy: Path) -> None:
    plain = hosting(workloads_copy, "")
    assert plain.update.strategy == "all-at-once"
    assert (plain.network, plain.kms_key_arn, plain.data_capture, plain.shadow) == (None, None, None, None)
    assert plain.min_instances_in_production == 2
    assert plain.scaling.scale_in
    assert plain.scaling.concurrent_requests_per_instance is None


def test_a_strategy_has_keys_and_defaults_of_its_own(workloads_copy: Path) -> None:
    assert hosting(workloads_copy, 'update = { strategy = "canary", percent = 20 }').update == Canary(
        strategy="canary", percent=20, bake_s=600
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            'min_instances_in_production = 1\nupdate = { strategy = "canary" }',
            "hosting: update.strategy: canary moves at most half of the fleet at a time, and "
            "min_instances_in_production 1 may leave one instance. Raise it to 2 or more, or choose all-at-once.",
        ),
        (
            'update = { strategy = "canary", percent = 60 }',
            "hosting.update.percent: got 60. Input should be less than or equal to 50.",
        ),
        (
            'update = { strategy = "blue-green" }',
            "hosting.update.strategy: got \"blue-green\". Allowed: 'all-at-once', 'canary', 'linear', 'rolling'.",
        ),
        (
            'network = { kind = "new-vpc", zone_ids = ["use1-az1"] }',
            'hosting.network.zone_ids: got ["use1-az1"]. Tuple should have at least 2 items after validation, not 1.',
        ),
        (
            'network = { kind = "existing-vpc" }',
            "hosting.network.subnet_ids: is required but missing.\n"
            "{file}: hosting.network.security_group_ids: is required but missing.",
        ),
        (
            "data_capture = { percent = 0 }",
            "hosting.data_capture.percent: got 0. Input should be greater than or equal to 1.",
        ),
    ],
)
def test_what_cannot_be_is_refused(workloads_copy: Path, keys: str, message: str) -> None:
    file = workloads_copy / "spellcheck/workload.toml"
    with pytest.raises(InvalidDocument) as refusal:
        hosting(workloads_copy, keys)
    assert str(refusal.value) == f"{file}: {message.replace('{file}', str(file))}"
