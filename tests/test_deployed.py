"""Build, recommend, deploy and invoke: real commands, the real CDK CLI and a real Triton, without measurements.

Deploys spellcheck, and a team's own checkpoint from `init` to a recommendation, whose job replays a load
(tests/local_aws/replayed_load.py). tests/scripts/test_walk_measured.py and tests/test_own_model.py measure.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput

import model_build.__main__ as model_build
from tests import checkpoints
from tests.local_aws.replayed_load import LATENCY_MS
from tests.repository_copy import RepositoryCopy, repository_copy
from workloads import ModelArtifact, Recommendation, file_sha256

pytestmark = pytest.mark.integration

STEP = 12
"""Every twelfth example of the evaluation is compared."""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepositoryCopy]:
    """Deploys spellcheck, with a part of its evaluation and a given recommendation, and reviews, which `init` wrote."""
    root = tmp_path_factory.mktemp("deployed") / "repository"
    with repository_copy(root, "tests.local_aws.replaying_account") as copy:
        evaluation = copy.root / "workloads" / "spellcheck" / "evaluation.jsonl"
        evaluation.write_text("".join(evaluation.read_text("utf-8").splitlines(keepends=True)[::STEP]), "utf-8")
        copy.run("python", "-m", "model_build", "build", "spellcheck", "--target", "cpu")
        write_reviews(copy)
        copy.run("cdk", "bootstrap", "--ci")
        copy.run("python", "-m", "scripts.rehearsal.steps", "recommend", "spellcheck", "3", "2", "7", "4200")
        copy.deploy("ReviewsStack")  # beside spellcheck's: one synthesis for both
        yield copy


def write_reviews(copy: RepositoryCopy) -> None:
    """Makes a workload of a RoBERTa and a text file, and builds it: the commands in this process, which has torch."""
    checkpoints.roberta_classifier(copy.root / "brought" / "roberta", num_hidden_layers=1)
    texts = copy.root / "brought" / "reviews.txt"
    texts.write_text("\n".join(checkpoints.texts(20)), "utf-8")
    source = ["--from", str(copy.root / "brought" / "roberta"), "--examples", str(texts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_build, "ROOT", copy.root)
        assert model_build.main(["init", "reviews", *source]) == 0
        assert model_build.main(["build", "reviews", "--target", "cpu"]) == 0


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
    jobs = deployed.client("sagemaker").list_inference_recommendations_jobs()["InferenceRecommendationsJobs"]
    assert not [job for job in jobs if job["JobName"].startswith("spellcheck")]


def test_the_deployment_puts_exactly_the_recommended_numbers_into_place(deployed: RepositoryCopy) -> None:
    file = deployed.root / "workloads" / "spellcheck" / "recommendation.json"
    chosen = Recommendation.from_json(file).recommended
    assert chosen is not None
    assert chosen.autoscaling is not None
    endpoint = deployed.client("sagemaker").describe_endpoint(EndpointName=deployed.outputs()["EndpointName"])
    assert endpoint["EndpointStatus"] == "InService"
    scaling = deployed.client("application-autoscaling")
    variant = f"endpoint/{endpoint['EndpointName']}/variant/AllTraffic"
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker", ResourceIds=[variant])[
        "ScalableTargets"
    ]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (
        chosen.autoscaling.min_capacity,
        chosen.autoscaling.max_capacity,
    )
    policies = scaling.describe_scaling_policies(ServiceNamespace="sagemaker", ResourceId=variant)
    (policy,) = policies["ScalingPolicies"]
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    assert tracking["TargetValue"] == chosen.autoscaling.target_invocations_per_instance
    config = deployed.client("sagemaker").describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
    assert config["ProductionVariants"][0]["InitialInstanceCount"] == chosen.instance_count


def test_the_alarms_watch_the_objective(deployed: RepositoryCopy) -> None:
    endpoint = {"Name": "EndpointName", "Value": deployed.outputs()["EndpointName"]}
    found = deployed.client("cloudwatch").describe_alarms()["MetricAlarms"]
    alarms = {alarm["MetricName"]: alarm for alarm in found if endpoint in alarm["Dimensions"]}
    assert alarms["ModelLatency"]["ExtendedStatistic"] == "p95"
    assert alarms["ModelLatency"]["Threshold"] == 200_000
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


def test_an_own_checkpoint_is_served_and_sized(deployed: RepositoryCopy) -> None:
    """Runs the last two commands that `init` printed, with an unedited folder and a role's credentials."""
    built = ModelArtifact.from_json(deployed.root / "build" / "reviews" / "cpu" / "artifact.json")
    assert built.parity is not None
    assert built.parity.identical_answers == built.parity.examples == 20
    assert built.parity.compiled == {"agreement": 1.0}
    folder = deployed.root / "workloads" / "reviews"
    row = json.loads((folder / "evaluation.jsonl").read_text("utf-8").splitlines()[0])
    answered = deployed.run("python", "-m", "inference_recommender", "invoke", "reviews", row["text"])
    assert answered.startswith(f"{row['text']} -> {row['label']}, score 0.")
    command = ("python", "-m", "inference_recommender", "run", "reviews", "--job", "advanced", "--traffic", "quick")
    document: dict[str, Any] = json.loads(deployed.run(*command, "--json", variables=a_roles_credentials(deployed)))
    recommendation = Recommendation.from_json(folder / "recommendation.json")
    assert recommendation.target == "cpu"
    assert recommendation.archive_sha256 == built.archive_sha256
    chosen = recommendation.recommended
    assert chosen is not None
    assert (chosen.instance_type, chosen.model_latency_ms) == ("ml.c5.xlarge", LATENCY_MS)
    assert chosen.capacity_basis == "estimate"
    assert document["recommended"]["instance_type"] == "ml.c5.xlarge"


def a_roles_credentials(deployed: RepositoryCopy) -> dict[str, str]:
    """Returns the variables of a session of a role that may do all."""
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    allowed = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    trusting, allowing = (json.dumps({"Version": "2012-10-17", "Statement": [each]}) for each in (trust, allowed))
    iam = deployed.client("iam")
    role = iam.create_role(RoleName="releases", AssumeRolePolicyDocument=trusting)["Role"]["Arn"]
    iam.put_role_policy(RoleName="releases", PolicyName="all", PolicyDocument=allowing)
    given = deployed.client("sts").assume_role(RoleArn=role, RoleSessionName="release")["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": given["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": given["SecretAccessKey"],
        "AWS_SESSION_TOKEN": given["SessionToken"],
    }
