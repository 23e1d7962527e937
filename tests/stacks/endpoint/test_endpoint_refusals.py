"""The refusals at synth of an endpoint, each with its whole text."""

from pathlib import Path

import pytest
from aws_cdk import Environment

from app import NothingBuilt
from stacks.context import Options
from stacks.workload_stack import NotMeasured, SeveralProblems
from tests.stacks.miniature import OTHER_SHA256, Repository, candidate, make_repository
from workloads import ProjectError, UsageError, file_sha256, instances
from workloads.errors import InvalidDocument, MissingArtifact

PRODUCTION = Options(stage="production")
MEASURE = "`python -m inference_recommender run spellcheck --job advanced`"
IRELAND = Environment(account="123456789012", region="eu-west-1")


def refusal(
    repository: Repository,
    kind: type[ProjectError],
    options: Options | None = None,
    environment: Environment | None = None,
) -> str:
    with pytest.raises(kind) as refused:
        repository.synthesise(environment, options)
    return str(refused.value)


@pytest.mark.parametrize(
    ("target", "instance_type", "needed"),
    [
        ("tensorrt", "ml.inf1.xlarge", "tensorrt for g4dn or g5"),
        ("tensorrt", "ml.p3.2xlarge", "tensorrt for g4dn or g5"),
        ("tensorrt", "ml.c5.xlarge", "tensorrt for g4dn or g5"),
        ("cuda", "ml.c5.xlarge", "cuda for GPU"),
        ("cpu", "ml.inf2.xlarge", "onnxruntime for x86 CPU"),
        ("cpu", "ml.c7g.xlarge", "onnxruntime for x86 CPU"),
    ],
)
def test_an_instance_type_that_cannot_run_the_artifact_is_refused(
    repository: Repository, target: str, instance_type: str, needed: str
) -> None:
    repository.host(target)
    repository.recommend(candidate(instance_type=instance_type))
    assert refusal(repository, UsageError) == (
        f"{repository.recommendation_file}: recommended.instance_type: got '{instance_type}', but {target} of "
        f"spellcheck was built with {needed} and runs on nothing else. Choose such an instance type, or a "
        "hosting.target that was built for this one."
    )


def test_a_gpu_with_an_artifact_for_inferentia_is_refused(tmp_path: Path) -> None:
    repository = make_repository(tmp_path, "question_answering")
    repository.host("inf1-data-parallel", fallback_instance_types=["ml.g5.xlarge", "ml.inf2.xlarge"])
    sentence = (
        f"{repository.workload_file}: hosting.fallback_instance_types: got '{{}}', but inf1-data-parallel of "
        "question_answering was built with neuron for Inferentia 1 and runs on nothing else. Choose such an instance "
        "type, or a hosting.target that was built for this one."
    )
    assert refusal(repository, SeveralProblems).splitlines() == [
        sentence.format("ml.g5.xlarge"),
        sentence.format("ml.inf2.xlarge"),
    ]


def test_a_fallback_needs_an_engine_of_its_own(repository: Repository) -> None:
    repository.build("tensorrt", toolchain={"compute_capability": "8.6"})
    repository.host("tensorrt", fallback_instance_types=["ml.g4dn.xlarge"])
    assert refusal(repository, UsageError) == (
        f"{repository.workload_file}: hosting.fallback_instance_types: got 'ml.g4dn.xlarge', but tensorrt of "
        "spellcheck was built with tensorrt for g5 and runs on nothing else. Choose such an instance type, or a "
        "hosting.target that was built for this one."
    )


def test_a_canary_of_one_instance_is_refused(repository: Repository) -> None:
    repository.host(min_instances_in_production=1)
    text = repository.workload_file.read_text("utf-8") + 'update = { strategy = "canary" }\n'
    repository.workload_file.write_text(text, "utf-8")
    assert refusal(repository, InvalidDocument) == (
        f"{repository.workload_file}: hosting: update.strategy: canary moves at most half of the fleet at a time, and "
        "min_instances_in_production 1 may leave one instance. Raise it to 2 or more, or choose all-at-once."
    )


def test_a_recommendation_of_another_artifact_is_refused(repository: Repository) -> None:
    repository.recommend(candidate(), archive_sha256=OTHER_SHA256)
    assert refusal(repository, NotMeasured) == (
        f"{repository.recommendation_file}: archive_sha256: was measured on the artifact ffffffffffff…, but the one to "
        f"deploy is {file_sha256(repository.archive)[:12]}… (cpu). Deploy it on one instance with "
        f"`cdk deploy SpellcheckStack -c recommendation=ignore`, measure it with {MEASURE}, review the file and "
        "deploy again."
    )


def test_a_recommendation_of_another_variant_is_refused(repository: Repository) -> None:
    repository.recommend(candidate(variant="cpu-int8"))
    assert refusal(repository, UsageError) == (
        f"{repository.recommendation_file}: recommended.variant: is 'cpu-int8', but {repository.workload_file} hosts "
        "'cpu'. Set hosting.target = \"cpu-int8\", or measure 'cpu'."
    )


def test_production_wants_a_recommendation(repository: Repository) -> None:
    assert refusal(repository, NothingBuilt, PRODUCTION) == (
        "There is nothing to deploy:\n"
        f"{repository.recommendation_file}: does not exist, and production is sized by nothing else. Deploy without "
        f"-c stage=production, measure on SageMaker with {MEASURE} and review the file."
    )


def test_production_wants_it_measured_on_sagemaker(repository: Repository) -> None:
    repository.recommend(candidate(), provenance={"measured_on": "local", "machine": "2 cores of an AMD EPYC"})
    assert refusal(repository, NotMeasured, PRODUCTION) == (
        f"{repository.recommendation_file}: provenance.measured_on: is 'local' (2 cores of an AMD EPYC), and "
        f"production wants 'sagemaker'. Run {MEASURE} against an AWS account."
    )


def test_all_that_is_wrong_with_a_recommendation_is_said_at_once(repository: Repository) -> None:
    repository.recommend(candidate(), archive_sha256=OTHER_SHA256, provenance={"measured_on": "local"})
    message = refusal(repository, SeveralProblems, PRODUCTION).splitlines()
    assert [line.split(": ")[1] for line in message] == ["archive_sha256", "provenance.measured_on"]


def test_a_region_that_does_not_exist_is_refused(repository: Repository) -> None:
    message = refusal(repository, UsageError, None, Environment(account="123456789012", region="us-esat-1"))
    assert message.startswith("There is no region 'us-esat-1'. Known: af-south-1, ap-east-1, ")
    assert message.endswith(", us-west-2. Set AWS_REGION, or the profile's region.")


def test_a_region_without_the_instance_type_is_refused(tmp_path: Path) -> None:
    repository = make_repository(tmp_path, "question_answering")
    repository.host("inf2")
    offered = sorted(instances.zones("inf2") or ())
    assert "eu-south-1" not in offered
    environment = Environment(account="123456789012", region="eu-south-1")
    assert refusal(repository, UsageError, None, environment) == (
        f"{repository.workload_file}: targets.inf2.instance_types: got 'ml.inf2.xlarge', which AWS does not have in "
        f"eu-south-1, only in {', '.join(offered)}. Deploy to one of these, or choose another instance type."
    )


def test_a_zone_without_the_instance_type_is_refused(tmp_path: Path) -> None:
    repository = make_repository(tmp_path, "question_answering")
    repository.host("inf2", network={"kind": "new-vpc", "zone_ids": ["use1-az2", "use1-az3"]})
    assert refusal(repository, UsageError) == (
        f"{repository.workload_file}: hosting.network.zone_ids: got 'use1-az3', which has no ml.inf2.xlarge. "
        "Zones of this region that have it: use1-az2, use1-az4, use1-az5, use1-az6."
    )


def test_what_is_not_known_of_regions_and_zones_is_not_judged(repository: Repository) -> None:
    repository.host(network={"kind": "new-vpc", "zone_ids": ["usw2-az1", "usw2-az4"]})
    repository.synthesise(IRELAND)


def test_a_minimum_above_the_maximum_is_refused_in_the_recommendation(repository: Repository) -> None:
    repository.recommend(candidate())
    text = repository.recommendation_file.read_text("utf-8").replace('"min_capacity": 2', '"min_capacity": 9')
    repository.recommendation_file.write_text(text, "utf-8")
    message = refusal(repository, InvalidDocument).splitlines()
    assert message[0] == (
        f"{repository.recommendation_file}: recommended.autoscaling: min_capacity 9 exceeds max_capacity 7."
    )


@pytest.mark.parametrize(("number", "options", "low"), [(8, Options(), 1), (1, PRODUCTION, 2)])
def test_a_scheduled_minimum_that_the_fleet_cannot_have_is_refused(
    repository: Repository, number: int, options: Options, low: int
) -> None:
    minimums = [{"schedule": "cron(0 7 ? * * *)", "min_capacity": 3}]
    minimums.append({"schedule": "cron(0 9 ? * * *)", "min_capacity": number})
    repository.host(scaling={"scheduled_minimums": minimums})
    repository.recommend(candidate())
    assert refusal(repository, UsageError, options) == (
        f"{repository.workload_file}: hosting.scaling.scheduled_minimums.1.min_capacity: got {number}. The fleet has "
        f"between {low} and 7 instances; choose one of these, or measure for a larger peak."
    )


def test_a_shadow_on_inf1_is_refused(tmp_path: Path) -> None:
    repository = make_repository(tmp_path, "question_answering")
    repository.build("cpu")
    repository.host("inf1-data-parallel", shadow={"target": "cpu", "instance_type": "ml.c5.xlarge"})
    assert refusal(repository, UsageError) == (
        f"{repository.workload_file}: hosting.shadow: SageMaker runs no shadow tests with Inf1 (got ml.inf1.xlarge). "
        "Leave hosting.shadow out, or host a target for Inf2."
    )


def test_a_shadow_that_is_not_built_names_the_command_to_build_it(repository: Repository) -> None:
    repository.host(shadow={"target": "cpu-int8", "instance_type": "ml.c5.xlarge"})
    with pytest.raises(ProjectError) as refused:
        repository.synthesise()
    assert str(refused.value).splitlines()[-1] == str(
        MissingArtifact(repository.artifact_file("cpu-int8"), "spellcheck", "cpu-int8")
    )
