"""Build, recommend, deploy, ask: real commands, the real CDK CLI and a real Triton; nothing is measured.

tests/scripts/test_walk_measured.py has the jobs, whose answers depend on how busy the machine is.
"""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput

from tests.repository_copy import RepositoryCopy, repository_copy
from workloads import ModelArtifact, Recommendation, file_sha256

pytestmark = pytest.mark.integration

STEP = 12
"""Every twelfth example of the evaluation is compared."""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepositoryCopy]:
    """Spellcheck, deployed with a recommendation that was chosen by hand; compared on a part of its evaluation."""
    with repository_copy(tmp_path_factory.mktemp("deployed") / "repository") as copy:
        evaluation = copy.root / "workloads" / "spellcheck" / "evaluation.jsonl"
        evaluation.write_text("".join(evaluation.read_text("utf-8").splitlines(keepends=True)[::STEP]), "utf-8")
        copy.run("python", "-m", "model_build", "build", "spellcheck", "--target", "cpu")
        copy.run("cdk", "bootstrap", "--ci")
        numbers = ("--count", "3", "--min", "2", "--max", "7", "--each", "4200")
        copy.run("python", "-m", "scripts.rehearsal.recommend", "spellcheck", *numbers)
        copy.deploy()
        yield copy


def test_the_build_of_the_committed_checkpoint_passes_its_gate(deployed: RepositoryCopy) -> None:
    file = deployed.root / "build" / "spellcheck" / "cpu" / "artifact.json"
    artifact = ModelArtifact.from_json(file)
    assert artifact.archive_sha256 == file_sha256(file.with_name(artifact.archive))
    parity = artifact.parity
    assert parity is not None
    assert parity.identical_answers == parity.examples >= 50
    assert parity.compiled["exact_match"] >= 0.85
    assert parity.compiled["unchanged_rate"] >= 0.95


def test_the_request_that_dry_run_prints_is_complete(deployed: RepositoryCopy) -> None:
    command = ("python", "-m", "inference_recommender", "run", "spellcheck", "--job", "advanced", "--dry-run")
    request = json.loads(deployed.run(*command))
    outputs = deployed.outputs()
    assert request["RoleArn"] == outputs["RecommenderRoleArn"]
    assert request["InputConfig"]["ModelName"] == outputs["ModelName"]
    assert not deployed.client("sagemaker").list_inference_recommendations_jobs()["InferenceRecommendationsJobs"]


def test_the_deployment_puts_exactly_the_recommended_numbers_into_place(deployed: RepositoryCopy) -> None:
    file = deployed.root / "workloads" / "spellcheck" / "recommendation.json"
    chosen = Recommendation.from_json(file).recommended
    assert chosen is not None
    assert chosen.autoscaling is not None
    endpoint = deployed.client("sagemaker").describe_endpoint(EndpointName=deployed.outputs()["EndpointName"])
    assert endpoint["EndpointStatus"] == "InService"
    scaling = deployed.client("application-autoscaling")
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert target["ResourceId"] == f"endpoint/{endpoint['EndpointName']}/variant/AllTraffic"
    assert (target["MinCapacity"], target["MaxCapacity"]) == (
        chosen.autoscaling.min_capacity,
        chosen.autoscaling.max_capacity,
    )
    (policy,) = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    assert tracking["TargetValue"] == chosen.autoscaling.target_invocations_per_instance
    config = deployed.client("sagemaker").describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
    assert config["ProductionVariants"][0]["InitialInstanceCount"] == chosen.instance_count


def test_the_alarms_watch_the_objective(deployed: RepositoryCopy) -> None:
    alarms = {alarm["MetricName"]: alarm for alarm in deployed.client("cloudwatch").describe_alarms()["MetricAlarms"]}
    assert alarms["ModelLatency"]["ExtendedStatistic"] == "p99"
    assert alarms["ModelLatency"]["Threshold"] == 50_000
    assert alarms["OverheadLatency"]["Threshold"] == 20_000


def test_json_and_binary_both_correct_a_query(deployed: RepositoryCopy) -> None:
    query = deployed.misspelt()
    printed = deployed.run("python", "-m", "inference_recommender", "invoke", "spellcheck", query["text"])
    assert printed == f"{query['text']} -> {query['label']}\n"
    tensor = InferInput("TEXT", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[query["text"].encode()]], dtype=np.object_))
    body, header_length = InferenceServerClient.generate_request_body([tensor])
    content_type = f"application/vnd.sagemaker-triton.binary+json;json-header-size={header_length}"
    response = deployed.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=deployed.outputs()["EndpointName"], ContentType=content_type, Body=body
    )
    answered = InferenceServerClient.parse_response_body(
        response["Body"].read(), header_length=int(response["ContentType"].rsplit("=", 1)[1])
    )
    assert answered.as_numpy("CORRECTED").ravel().tolist() == [query["label"].encode()]
