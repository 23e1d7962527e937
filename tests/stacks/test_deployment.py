"""Deployments with and without a recommendation, and the whole text of every warning and refusal."""

from stacks.context import Options
from tests.stacks.miniature import OTHER_SHA256, Repository, Synthesis, candidate
from workloads import Autoscaling, LatencyObjective

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
        f"{repository.recommendation_file}: was measured locally, on 2 cores of an AMD EPYC. Production wants one "
        f"measured on SageMaker: run {MEASURE} against an AWS account. [ack: recommendation:local]"
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
