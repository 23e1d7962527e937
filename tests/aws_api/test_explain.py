"""Each published failure has its explanation, and an account's failures are read from where AWS keeps them."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from aws_api.errors import NotFound
from aws_api.explain import (
    LAST_LINES,
    Failure,
    explain,
    explain_endpoint,
    known_causes,
)
from aws_api.logs import ContainerLog
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli.jobs import explain_job
from tests.builders import message_of
from workloads import UsageError
from workloads.document import parse_toml

CASES = parse_toml(Path(__file__).with_name("published_failures.toml").read_text("utf-8"))
KNOWN = {known.name: known for known in known_causes()}
READ_ON = "aws logs tail GROUP --since 1d --region us-east-1"
PING = "The primary container for production variant AllTraffic did not pass the ping health check."


def failure(*reasons: str, log: str = "") -> Failure:
    lines = ContainerLog(group="GROUP", lines=tuple(log.strip().splitlines()))
    return Failure(subject="endpoint e", status="Failed", reasons=reasons, log=lines, read_on=READ_ON)


@pytest.mark.parametrize("name", CASES)
def test_a_published_failure_is_explained(name: str) -> None:
    case = CASES[name]
    reasons, log = case.get("reasons", []), case.get("log", "")
    explanation = explain(failure(*reasons, log=log))
    known = KNOWN[case["expected"]]
    assert (explanation.cause, explanation.action, explanation.source) == (known.cause, known.action, known.source)
    shown = case.get("line") or " ".join([*reasons, log]).strip()
    assert explanation.line is not None
    assert explanation.line == shown or (len(shown) > len(explanation.line) and explanation.line in shown)
    assert re.search(known.pattern, explanation.line, re.IGNORECASE)
    assert explanation.last_lines == ()


def test_every_known_cause_has_a_published_failure_and_a_source() -> None:
    assert {case["expected"] for case in CASES.values()} == set(KNOWN)
    assert len(KNOWN) == len(known_causes())
    sources = [*(known.source for known in known_causes()), *(case["source"] for case in CASES.values())]
    assert [source for source in sources if not source.startswith("https://")] == []


def test_an_unknown_failure_prints_the_end_of_the_log_and_a_command_for_the_rest() -> None:
    log = "\n".join(f"line {number}" for number in range(100))
    explanation = explain(failure("The moon was full.", log=log))
    assert explanation.last_lines == tuple(f"line {number}" for number in range(100 - LAST_LINES, 100))
    assert explanation.text().startswith(
        f"endpoint e: Failed\n  reason   The moon was full.\n  cause    unknown\n  read on  {READ_ON}\n"
        "  The last lines of the log:\n    line 80\n"
    )


def test_a_known_failure_prints_cause_line_action_and_source() -> None:
    log = "Serialization Error in verifyHeader: 0 (Magic tag does not match)"
    known = KNOWN["tensorrt-version"]
    assert explain(failure(PING, log=log)).text() == (
        f"endpoint e: Failed\n  reason   {PING}\n  cause    {known.cause}\n  line     {log}\n"
        f"  do       {known.action}\n  source   {known.source}\n  read on  {READ_ON}"
    )


def test_tritons_warning_on_a_host_without_a_gpu_is_no_cause() -> None:
    warning = (
        "W0720 15:30:54.9 1 pinned_memory_manager.cc:236] Unable to allocate pinned system memory, pinned memory pool "
        "will not be available: CUDA driver version is insufficient for CUDA runtime version"
    )
    assert explain(failure(PING, log=warning)).cause == KNOWN["ping"].cause


def test_used_up_memory_explains_a_container_that_logs_nothing() -> None:
    assert explain(failure(PING, "MemoryUtilization reached 99 %.")).cause == KNOWN["memory"].cause


class Account(SageMakerAccount):
    """SageMaker's answers are given, logs and metrics are moto's."""

    def __init__(self, endpoint: dict[str, Any] | None = None, job: dict[str, Any] | None = None) -> None:
        super().__init__(boto3.Session("key", "secret", region_name="us-east-1"))
        self.endpoint, self.job = endpoint, job or {}

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "describe_endpoint_config":
            return {"ProductionVariants": [{"VariantName": "AllTraffic"}]}
        return super().call(service, operation, **arguments)

    def describe_endpoint(self, name: str) -> dict[str, Any]:
        if self.endpoint is None:
            raise NotFound("DescribeEndpoint", "ValidationException", "Could not find endpoint")
        now = datetime.now(UTC)
        return {"EndpointName": name, "EndpointConfigName": name, "CreationTime": now} | self.endpoint

    def describe_job(self, name: str) -> dict[str, Any]:
        if not self.job:
            raise NotFound("DescribeInferenceRecommendationsJob", "ResourceNotFound", "none")
        return self.job

    def job_steps(self, name: str) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = self.job["Steps"]
        return steps

    def write_log(self, group: str, **streams: str) -> None:
        logs = self.client("logs")
        logs.create_log_group(logGroupName=group)
        for number, (stream, text) in enumerate(streams.items()):
            name = stream.replace("_", "/")
            logs.create_log_stream(logGroupName=group, logStreamName=name)
            at = round(time.time() * 1000) - 60_000 + number
            events = [{"timestamp": at, "message": line} for line in text.splitlines()]
            logs.put_log_events(logGroupName=group, logStreamName=name, logEvents=events)


@pytest.fixture(autouse=True)
def _moto() -> Iterator[None]:
    with mock_aws():
        yield


def test_an_endpoint_is_explained_by_its_log_of_any_instance() -> None:
    account = Account({"EndpointStatus": "Failed", "FailureReason": PING})
    exec_error = "exec /opt/nvidia/nvidia_entrypoint.sh: exec format error"
    account.write_log("/aws/sagemaker/Endpoints/e", AllTraffic_new=exec_error, AllTraffic_old="GET /ping 200")
    (explanation,) = explain_endpoint(account, "e").explanations
    assert (explanation.reasons, explanation.line) == ((PING,), exec_error)
    assert explanation.read_on == "aws logs tail /aws/sagemaker/Endpoints/e --since 1d --region us-east-1"


def test_the_metrics_of_a_failed_endpoint_count_as_reasons() -> None:
    account = Account({"EndpointStatus": "Failed", "FailureReason": PING})
    dimensions = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "AllTraffic"}]
    metric = {"MetricName": "MemoryUtilization", "Dimensions": dimensions, "Value": 98.7, "Unit": "Percent"}
    account.client("cloudwatch").put_metric_data(Namespace="/aws/sagemaker/Endpoints", MetricData=[metric])
    (explanation,) = explain_endpoint(account, "e").explanations
    assert explanation.reasons == (PING, "MemoryUtilization reached 99 %.")
    assert explanation.cause == KNOWN["memory"].cause
    assert explanation.read_on == "aws sagemaker describe-endpoint --endpoint-name e --region us-east-1"


@pytest.mark.parametrize("status", ["InService", "Creating", "Updating"])
def test_an_endpoint_without_a_failure_is_reported_as_such(status: str) -> None:
    explanations = explain_endpoint(Account({"EndpointStatus": status}), "e")
    assert explanations.text() == f"endpoint e is {status}: nothing failed."


def test_a_container_that_fails_again_and_again_explains_an_endpoint_that_is_still_creating() -> None:
    account = Account({"EndpointStatus": "Creating"})
    account.write_log("/aws/sagemaker/Endpoints/e", AllTraffic_1="exec /usr/bin/serve: exec format error")
    (explanation,) = explain_endpoint(account, "e").explanations
    assert explanation.cause == KNOWN["exec-format"].cause


def test_the_log_of_a_deleted_endpoint_is_read_and_an_unknown_name_is_refused() -> None:
    account = Account()
    account.write_log("/aws/sagemaker/Endpoints/gone", AllTraffic_1="exec /usr/bin/serve: exec format error")
    (explanation,) = explain_endpoint(account, "gone").explanations
    assert (explanation.status, explanation.cause) == ("deleted", KNOWN["exec-format"].cause)
    assert message_of(UsageError, explain_endpoint, account, "nowhere") == (
        "There is neither a stack nor an endpoint called 'nowhere' in us-east-1, nor a log of such an endpoint. Check "
        "the name and the region: `aws sagemaker list-endpoints`."
    )


def test_each_failed_test_of_a_job_is_explained_by_the_log_of_its_endpoint() -> None:
    configuration = {"EndpointName": "sm-epc-1", "InstanceType": "ml.g5.xlarge"}
    failed = {"Status": "FAILED", "InferenceBenchmark": {"EndpointConfiguration": configuration, "FailureReason": PING}}
    account = Account(job={"Status": "COMPLETED", "Steps": [{"Status": "COMPLETED"}, failed]})
    out_of_memory = "CUDA out of memory. Tried to allocate 3.88 GiB."
    group = "/aws/sagemaker/InferenceRecommendationsJobs"
    account.write_log(group, **{"j_Endpoint_sm-epc-1": out_of_memory})
    (explanation,) = explain_job(account, "j").explanations
    assert (explanation.subject, explanation.line) == ("test on ml.g5.xlarge", out_of_memory)
    assert explanation.cause == KNOWN["gpu-memory"].cause
    assert explanation.read_on == f"aws logs tail {group} --since 1d --region us-east-1"


def test_a_job_that_failed_before_its_tests_is_explained_by_its_own_reason() -> None:
    reason = "Provided role ARN cannot be assumed and an AWSSecurityTokenServiceException error occurred."
    explanations = explain_job(Account(job={"Status": "FAILED", "FailureReason": reason, "Steps": []}), "j")
    (explanation,) = explanations.explanations
    assert (explanation.subject, explanation.cause) == ("job j", KNOWN["role-not-assumed"].cause)
    done = explain_job(Account(job={"Status": "COMPLETED", "Steps": []}), "j")
    assert done.text() == "job j is COMPLETED: nothing failed."


def test_an_unknown_job_is_refused_with_the_command_that_lists_jobs() -> None:
    assert message_of(UsageError, explain_job, Account(), "nowhere") == (
        "There is no Inference Recommender job called 'nowhere' in us-east-1. List jobs with `python -m "
        "inference_recommender jobs list`."
    )
