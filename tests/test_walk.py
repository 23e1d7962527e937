"""The main job end to end, in a copy of the repository: build, deploy, measure, deploy what was measured, ask.

Real commands, the real CDK CLI, a real Triton; only the AWS control plane is this machine's own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import psutil
import pytest
from tritonclient.http import InferenceServerClient, InferInput

from local_aws.process.local_account import LocalAccount
from workloads import ROOT, ModelArtifact, Recommendation, file_sha256

pytestmark = pytest.mark.integration

LEFT_OUT = (
    ".*",
    "node_modules",
    "build",
    "runs",
    "cdk.out",
    "__pycache__",
    "*.egg-info",
    "recommendation.json",
    "tests",
)
TRAFFIC = """
[traffic.{name}]
type = "phases"
phases = [{{ initial_users = 1, spawn_rate_per_minute = 12, duration_s = {seconds} }}]
stop = {{ flat_invocations = "Continue" }}

[hosting]
"""


@dataclass
class Walk:
    """A copy of the repository and an account to deploy it to."""

    root: Path
    account: LocalAccount

    def environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        tools = f"{Path(sys.executable).parent}:{ROOT / 'node_modules' / '.bin'}"
        return {**inherited, **self.account.environment, "PATH": f"{tools}:{os.environ['PATH']}"}

    def start(self, *command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, expect: int = 0) -> str:
        process = self.start(*command)
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == expect, f"{' '.join(command)} ended with {process.returncode}\n{stdout}\n{stderr}"
        return stdout if expect == 0 else stderr

    def recommend(self, *options: str) -> tuple[str, ...]:
        return ("python", "-m", "inference_recommender", "run", "spellcheck", "--job", "advanced", *options)

    def deploy(self) -> None:
        self.run("cdk", "deploy", "SpellcheckStack", "--require-approval", "never", "--ci")

    def client(self, service: str) -> Any:
        make: Any = boto3.client
        return make(service, **self.account.client_arguments())

    def outputs(self) -> dict[str, str]:
        stack = self.client("cloudformation").describe_stacks(StackName="SpellcheckStack")["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def tritons(self) -> list[psutil.Process]:
        """Servers that the account has started, oldest first."""
        children = psutil.Process(self.account.pid).children(recursive=True)
        return sorted((one for one in children if one.name() == "tritonserver"), key=lambda one: one.create_time())


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """The copy, built, and deployed without a recommendation."""
    root = tmp_path_factory.mktemp("walk") / "repository"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*LEFT_OUT))
    toml = root / "workloads" / "spellcheck" / "workload.toml"
    profiles = "".join(TRAFFIC.format(name=name, seconds=seconds) for name, seconds in {"tiny": 12, "long": 90}.items())
    toml.write_text(
        toml.read_text("utf-8").replace("[hosting]", profiles.replace("[hosting]\n", "") + "[hosting]", 1), "utf-8"
    )
    with LocalAccount.start(state=root / ".local_aws", toolchain=ROOT / ".venv-triton") as account:
        walk = Walk(root, account)
        walk.run("python", "-m", "model_build", "build", "spellcheck", "--target", "cpu")
        walk.run("cdk", "bootstrap", "--ci")
        walk.deploy()
        yield walk


@pytest.fixture(scope="module")
def recommended(walk: Walk) -> Recommendation:
    """The recommendation of a short job, deployed."""
    shown = walk.run(*walk.recommend("--traffic", "tiny", "--json"))
    recommendation = Recommendation.model_validate_json(shown)
    walk.deploy()
    return recommendation


def test_two_builds_give_one_sha256_and_verify_shows_the_figures(walk: Walk) -> None:
    archive = walk.root / "build" / "spellcheck" / "cpu" / "model.tar.gz"
    first = file_sha256(archive)
    walk.run("python", "-m", "model_build", "build", "spellcheck", "--target", "cpu")
    artifact = ModelArtifact.from_json(archive.with_name("artifact.json"))
    assert first == file_sha256(archive) == artifact.archive_sha256
    shown = json.loads(walk.run("python", "-m", "model_build", "verify", "spellcheck", "--target", "cpu", "--json"))
    assert artifact.parity is not None
    assert shown == artifact.parity.model_dump()
    assert shown["identical_answers"] == shown["examples"] >= 500
    assert shown["compiled"]["exact_match"] >= 0.85
    assert shown["compiled"]["unchanged_rate"] >= 0.95


@pytest.mark.slow
def test_int8_keeps_the_task_metric_within_what_the_workload_allows(walk: Walk) -> None:
    built = json.loads(walk.run("python", "-m", "model_build", "build", "spellcheck", "--target", "cpu-int8", "--json"))
    parity = built["parity"]
    assert built["precision"] == "int8"
    assert parity["max_logit_difference"] > 1e-3, "nothing was quantised"
    assert parity["original"]["exact_match"] - parity["compiled"]["exact_match"] <= 0.01


def test_the_request_that_dry_run_prints_is_complete(walk: Walk) -> None:
    request = json.loads(walk.run(*walk.recommend("--dry-run")))
    outputs = walk.outputs()
    assert request["RoleArn"] == outputs["RecommenderRoleArn"]
    assert request["InputConfig"]["ModelName"] == outputs["ModelName"]
    assert not walk.client("sagemaker").list_inference_recommendations_jobs()["InferenceRecommendationsJobs"]


def test_the_job_becomes_a_recommendation_of_what_this_machine_did(walk: Walk, recommended: Recommendation) -> None:
    assert recommended.provenance.measured_on == "local"
    assert recommended == Recommendation.from_json(walk.root / "workloads" / "spellcheck" / "recommendation.json")
    assert recommended.archive_sha256 == file_sha256(walk.root / "build" / "spellcheck" / "cpu" / "model.tar.gz")
    chosen = recommended.recommended
    assert chosen is not None
    assert chosen.max_invocations_per_minute
    assert chosen.model_latency_ms is not None
    assert chosen.model_latency_ms <= 50
    assert chosen.model_latency_percentiles_ms.p99 is not None
    assert chosen.cost_per_hour_usd is None
    assert chosen.cost_reason
    assert (walk.root / recommended.provenance.run / "report.html").read_text("utf-8").count("<svg") == 3


def test_the_second_deploy_puts_exactly_the_recommended_numbers_into_place(
    walk: Walk, recommended: Recommendation
) -> None:
    chosen = recommended.recommended
    assert chosen is not None
    assert chosen.autoscaling is not None
    endpoint = walk.client("sagemaker").describe_endpoint(EndpointName=walk.outputs()["EndpointName"])
    assert endpoint["EndpointStatus"] == "InService"
    scaling = walk.client("application-autoscaling")
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert target["ResourceId"] == f"endpoint/{endpoint['EndpointName']}/variant/AllTraffic"
    assert (target["MinCapacity"], target["MaxCapacity"]) == (
        chosen.autoscaling.min_capacity,
        chosen.autoscaling.max_capacity,
    )
    (policy,) = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    assert tracking["TargetValue"] == chosen.autoscaling.target_invocations_per_instance
    config = walk.client("sagemaker").describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
    assert config["ProductionVariants"][0]["InitialInstanceCount"] == chosen.instance_count


def test_the_alarms_watch_the_objective(walk: Walk, recommended: Recommendation) -> None:
    alarms = {alarm["MetricName"]: alarm for alarm in walk.client("cloudwatch").describe_alarms()["MetricAlarms"]}
    assert alarms["ModelLatency"]["ExtendedStatistic"] == "p99"
    assert alarms["ModelLatency"]["Threshold"] == 50_000
    assert alarms["OverheadLatency"]["Threshold"] == 20_000


def test_json_and_binary_both_correct_a_query(walk: Walk, recommended: Recommendation) -> None:
    query = _misspelt(walk)
    shown = walk.run("python", "-m", "inference_recommender", "invoke", "spellcheck", query["text"])
    assert shown == f"{query['text']} -> {query['label']}\n"
    tensor = InferInput("TEXT", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[query["text"].encode()]], dtype=np.object_))
    body, header_length = InferenceServerClient.generate_request_body([tensor])
    content_type = f"application/vnd.sagemaker-triton.binary+json;json-header-size={header_length}"
    response = walk.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=walk.outputs()["EndpointName"], ContentType=content_type, Body=body
    )
    answered = InferenceServerClient.parse_response_body(
        response["Body"].read(), header_length=int(response["ContentType"].rsplit("=", 1)[1])
    )
    assert answered.as_numpy("CORRECTED").ravel().tolist() == [query["label"].encode()]


def test_a_taken_job_name_is_refused_before_anything_runs(walk: Walk, recommended: Recommendation) -> None:
    name, elsewhere = recommended.provenance.job_name, str(walk.root / "other-runs")
    told = walk.run(*walk.recommend("--traffic", "tiny", "--job-name", name, "--runs", elsewhere), expect=3)
    assert told.splitlines()[-1] == f"There is already a job called '{name}'. Choose another with --job-name."


def _wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.5)


def _status(walk: Walk, job: str) -> str:
    try:
        return str(walk.client("sagemaker").describe_inference_recommendations_job(JobName=job)["Status"])
    except walk.client("sagemaker").exceptions.ResourceNotFound:
        return "none yet"


def test_triton_killed_midway_fails_the_job_with_the_reason_and_keeps_what_was_measured(
    walk: Walk, recommended: Recommendation
) -> None:
    before = {one.pid for one in walk.tritons()}
    running = walk.start(*walk.recommend("--traffic", "long", "--job-name", "spellcheck-killed"))
    _wait_until(lambda: _status(walk, "spellcheck-killed") == "IN_PROGRESS" and len(walk.tritons()) > len(before))
    time.sleep(8)
    (victim,) = [one for one in walk.tritons() if one.pid not in before]
    victim.send_signal(signal.SIGKILL)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 3
    assert "Job spellcheck-killed failed: " in stderr
    assert "was killed by signal 9" in stderr
    kept = walk.root / "runs" / "spellcheck-killed"
    assert json.loads((kept / "describe.json").read_text("utf-8"))["Status"] == "FAILED"
    (measured,) = json.loads((kept / "measurements.json").read_text("utf-8"))
    assert sum(measured["series"]["invocations"]) > 0
    assert {one.pid for one in walk.tritons()} == before


def test_ctrl_c_stops_the_job_and_keeps_what_was_measured(walk: Walk, recommended: Recommendation) -> None:
    before = {one.pid for one in walk.tritons()}
    running = walk.start(*walk.recommend("--traffic", "long", "--job-name", "spellcheck-interrupted"))
    _wait_until(lambda: _status(walk, "spellcheck-interrupted") == "IN_PROGRESS" and len(walk.tritons()) > len(before))
    time.sleep(5)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    kept = walk.root / "runs" / "spellcheck-interrupted"
    assert stderr.splitlines()[-1] == (
        f"Interrupted: job spellcheck-interrupted was stopped. What was measured is kept in {kept}."
    )
    assert _status(walk, "spellcheck-interrupted") == "STOPPED"
    assert {one.pid for one in walk.tritons()} == before


def test_a_run_with_too_many_errors_gives_no_verdict(walk: Walk, recommended: Recommendation) -> None:
    payloads = walk.root / "workloads" / "spellcheck" / "payloads.jsonl"
    good = payloads.read_text("utf-8")
    payloads.write_text(good + '{"text": " "}\n' * 16, "utf-8")
    try:
        told = walk.run(*walk.recommend("--traffic", "tiny", "--job-name", "spellcheck-errors"), expect=4)
    finally:
        payloads.write_text(good, "utf-8")
    verdict = told.splitlines()[-1]
    assert verdict.startswith("No verdict: ml.c5.xlarge: too many errors: ")
    assert "requests failed; the first: HTTP 400: " in verdict
    assert "is empty or blank" in verdict


def test_a_job_that_another_stops_midway_gives_no_verdict(walk: Walk, recommended: Recommendation) -> None:
    running = walk.start(*walk.recommend("--traffic", "long", "--job-name", "spellcheck-stopped"))
    _wait_until(lambda: _status(walk, "spellcheck-stopped") == "IN_PROGRESS")
    walk.client("sagemaker").stop_inference_recommendations_job(JobName="spellcheck-stopped")
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 4
    kept = walk.root / "runs" / "spellcheck-stopped"
    assert stderr.splitlines()[-1] == (
        f"No verdict: Job spellcheck-stopped was stopped before its traffic ended. What was measured is kept in {kept}."
    )


def _misspelt(walk: Walk) -> dict[str, str]:
    """A misspelt query that the verified model corrects."""
    lines = (walk.root / "workloads" / "spellcheck" / "evaluation.jsonl").read_text("utf-8").splitlines()
    return next(pair for pair in map(json.loads, lines) if pair["text"] != pair["label"])
