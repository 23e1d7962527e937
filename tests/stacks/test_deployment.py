"""Deployments with and without a recommendation, and each error at synth with its whole message: refusals.toml."""

import re
from pathlib import Path
from typing import Any

import pytest
import tomllib
from aws_cdk import Environment
from aws_cdk.region_info import Fact

from stacks.context import Options
from stacks.deployment import measure_command
from tests.stacks.miniature import (
    OTHER_SHA256,
    Repository,
    Synthesis,
    candidate,
    make_ec2_repository,
    make_repository,
    service_candidate,
)
from workloads import Autoscaling, LatencyObjective, MissingArtifact, ProjectError, file_sha256, instances
from workloads.own_images import TRITON_LOCKS

OWN_IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/triton-onnxruntime:25.09"
PRODUCTION = Options(stage="production")
MEASURE = "`python -m inference_recommender run spellcheck --job advanced`"


def test_without_a_recommendation_one_instance_is_deployed_with_a_warning(repository: Repository) -> None:
    assert repository.synthesise().warnings() == [
        f"{repository.recommendation_file} does not exist: one ml.c5.xlarge is deployed, without autoscaling. "
        f"Measure with {MEASURE}, review the file and deploy again. [ack: recommendation:missing]"
    ]


def test_an_own_image_and_a_fitting_recommendation_give_no_warning(
    repository: Repository,
) -> None:
    repository.host(image_uri=OWN_IMAGE)
    repository.recommend(candidate())
    assert repository.synthesise().warnings() == []


def test_a_local_measurement_is_deployed_with_a_warning(repository: Repository) -> None:
    repository.host(image_uri=OWN_IMAGE)
    repository.recommend(candidate(), provenance={"measured_on": "local", "machine": "2 cores of an AMD EPYC"})
    assert repository.synthesise().warnings() == [
        f"{repository.recommendation_file}: provenance.measured_on: is 'local' (2 cores of an AMD EPYC), and "
        f"production requires 'sagemaker'. Run {MEASURE} against an AWS account. [ack: recommendation:local]"
    ]


def test_a_fleet_that_was_sized_for_another_objective_is_deployed_with_a_warning(repository: Repository) -> None:
    repository.host(image_uri=OWN_IMAGE)
    objective = LatencyObjective(percentile="P95", model_latency_ms=80.0, peak_invocations_per_minute=30_000)
    repository.recommend(candidate(), objective=objective)
    assert repository.synthesise().warnings() == [
        f"{repository.recommendation_file}: objective: was sized for P95 ≤ 80 ms at 30,000 invocations/min, and "
        f"{repository.workload_file} now says P99 ≤ 50 ms at 240,000 invocations/min. Measure again with {MEASURE}. "
        "[ack: recommendation:objective]"
    ]


def test_an_ignored_recommendation_deploys_one_instance(repository: Repository) -> None:
    repository.host(image_uri=OWN_IMAGE)
    repository.recommend(candidate(), archive_sha256=OTHER_SHA256)
    synthesis = repository.synthesise(options=Options(recommendation="ignore"))
    assert synthesis.warnings() == [
        f"{repository.recommendation_file} is ignored, as -c recommendation=ignore says: one ml.c5.xlarge is deployed, "
        f"without autoscaling. Measure with {MEASURE}. [ack: recommendation:ignored]"
    ]
    (variant,) = synthesis.only("AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert (variant["InstanceType"], variant["InitialInstanceCount"]) == ("ml.c5.xlarge", 1)


def test_another_hosting_target_ignores_the_recommendation(repository: Repository) -> None:
    repository.host("tensorrt", image_uri=OWN_IMAGE)
    repository.recommend(candidate(instance_type="ml.g5.xlarge"))
    synthesis = repository.synthesise(options=Options(hosting_target="cpu"))
    assert synthesis.warnings() == [
        f"{repository.recommendation_file} is of tensorrt, and cpu is deployed in its place: one ml.c5.xlarge "
        "is deployed, without autoscaling. [ack: recommendation:rehearsal]"
    ]


def test_production_has_at_least_two_instances(repository: Repository) -> None:
    small = Autoscaling(min_capacity=1, max_capacity=1, target_invocations_per_instance=100.0)
    repository.recommend(candidate(instance_count=1, autoscaling=small))
    assert fleet(repository.synthesise(options=Options(stage="beta"))) == (1, 1, 1)
    assert fleet(repository.synthesise(options=PRODUCTION)) == (2, 2, 2)
    repository.host(min_instances_in_production=1)
    assert fleet(repository.synthesise(options=PRODUCTION)) == (1, 1, 1)


def fleet(synthesis: Synthesis) -> tuple[int, int, int]:
    """(initial, least, most) instances."""
    (variant,) = synthesis.only("AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    target = synthesis.only("AWS::ApplicationAutoScaling::ScalableTarget")
    return variant["InitialInstanceCount"], target["MinCapacity"], target["MaxCapacity"]


TABLE: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text())
WORKLOADS = {"endpoint": "spellcheck", "service": "query_intent", "batch": "duplicates"}


@pytest.mark.parametrize("name", TABLE)
def test_synth_is_refused(name: str, tmp_path: Path) -> None:
    case = TABLE[name]
    repository = prepared(tmp_path, case)
    region = case.get("region")
    environment = Environment(account="123456789012", region=region) if region else None
    with pytest.raises(ProjectError) as refused:
        repository.synthesise(environment, Options(stage=case.get("stage", "beta")))
    message = str(refused.value)
    assert (message.splitlines()[0] if case.get("first_line") else message) == expected(repository, case["message"])


def prepared(root: Path, case: dict[str, Any]) -> Repository:
    kind = case.get("on", "endpoint")
    workload = case.get("workload", WORKLOADS[kind])
    if kind == "endpoint":
        repository = make_repository(root, workload)
    else:
        repository = make_ec2_repository(root, workload, case.get("target", "inf1"))
    for target, changes in case.get("build", {}).items():
        repository.build(target, **changes)
    if kind == "endpoint":
        repository.host(case.get("target", "cpu"), **case.get("host", {}))
    repository.change_hosting(**case.get("hosting", {}))
    for target, types in case.get("types", {}).items():
        repository.instance_types(target, *types)
    text = repository.workload_file.read_text("utf-8").replace(*case.get("replace", ("", "")))
    changed = f"{text}{case.get('append', '')}\n"
    if "recommend" in case:
        make = candidate if kind == "endpoint" else service_candidate
        keys = case["recommend"]
        values = {key: None if value == "null" else value for key, value in (keys or {}).items()}
        repository.recommend(None if keys is False else make(**values), **case.get("recommendation", {}))
        if replacement := case.get("replace_recommendation"):
            written = repository.recommendation_file.read_text("utf-8").replace(*replacement)
            repository.recommendation_file.write_text(written, "utf-8")
    repository.workload_file.write_text(changed, "utf-8")
    return repository


def expected(repository: Repository, message: str) -> str:
    message = message.replace("{toml}", str(repository.workload_file))
    message = message.replace("{json}", str(repository.recommendation_file))
    message = message.replace("{regions}", ", ".join(Fact.regions)).replace("{kinds}", ", ".join(TRITON_LOCKS))
    message = re.sub(r"{offered:(\w+)}", lambda match: ", ".join(sorted(instances.zones(match[1]) or ())), message)
    if "{measure}" in message:
        message = message.replace("{measure}", measure_command(repository.folder))
    return message.replace("{sha256}", file_sha256(repository.archive)[:12]) if "{sha256}" in message else message


def test_unknown_zones_and_regions_are_accepted(tmp_path: Path) -> None:
    repository = make_repository(tmp_path)
    repository.host(network={"kind": "new-vpc", "zone_ids": ["usw2-az1", "usw2-az4"]})
    repository.synthesise(Environment(account="123456789012", region="eu-west-1"))


def test_a_shadow_that_is_not_built_names_the_command_to_build_it(tmp_path: Path) -> None:
    repository = make_repository(tmp_path)
    repository.host(shadow={"target": "cpu-int8", "instance_type": "ml.c5.xlarge"})
    with pytest.raises(ProjectError) as refused:
        repository.synthesise()
    missing = MissingArtifact(repository.artifact_file("cpu-int8"), "spellcheck", "cpu-int8")
    assert str(refused.value).splitlines()[-1] == str(missing)
