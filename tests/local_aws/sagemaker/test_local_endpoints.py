"""Endpoints of the local account are answered by a real Triton, and go through the statuses of the service."""

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from aws_api.sagemaker import SageMakerAccount
from local_aws import machine
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import ROLE, Clients, Endpoints, echo_request, gone, refused, wait_until

pytestmark = pytest.mark.integration

WRONG_NAME = echo_request("a").replace("TEXT", "TXET")
ARN = "arn:aws:sagemaker:us-east-1:123456789012"


def invoke(runtime: Any, endpoint: str, *texts: str) -> list[str]:
    answer = runtime.invoke_endpoint(EndpointName=endpoint, ContentType="application/json", Body=echo_request(*texts))
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    found: list[str] = json.loads(answer["Body"].read())["outputs"][0]["data"]
    return found


def triton_of(account: LocalAccount, endpoint: str) -> int:
    """The process id that the account said answers for the endpoint, the latest one."""
    lines = [line for line in account.log_file.read_text().splitlines() if f"endpoint {endpoint}: variant" in line]
    return int(lines[-1].rsplit("process ", 1)[1].rstrip(")"))


def log_of(account: LocalAccount, endpoint: str, variant: str) -> list[str]:
    """Returns the lines of the endpoint's only server in CloudWatch Logs."""
    logs, group = boto3.client("logs", **account.client_arguments()), f"/aws/sagemaker/Endpoints/{endpoint}"
    (stream,) = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{variant}/i-")["logStreams"]
    told = logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True)
    return [event["message"] for event in told["events"]]


def test_an_endpoint_is_created_answers_is_updated_and_deleted(
    endpoints: Endpoints, runtime: Any, account: LocalAccount, sagemaker: Any, tmp_path: Path
) -> None:
    first_gate, second_gate = tmp_path / "first", tmp_path / "second"
    name = endpoints.create("life", config=endpoints.config("life-1", count=3, GATE=str(first_gate)))
    assert sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"] == "Creating"
    busy = (400, "ValidationException", f'Cannot update in-progress endpoint "{ARN}:endpoint/life".')
    assert refused(sagemaker.delete_endpoint, EndpointName=name) == busy
    first_gate.touch()
    described = endpoints.settled(name)
    assert described["EndpointStatus"] == "InService"
    assert described["ProductionVariants"][0]["DesiredInstanceCount"] == 3
    assert sagemaker.describe_endpoint_config(EndpointConfigName="life-1")["ProductionVariants"][0]["ModelName"]
    assert sagemaker.describe_model(ModelName="life-1-model")["PrimaryContainer"]["ModelDataUrl"].endswith(
        "echo.tar.gz"
    )
    assert invoke(runtime, name, "a", "b") == ["got a", "got b"]
    first = triton_of(account, name)
    started = [words.rpartition("] ")[2] for words in log_of(account, name, "AllTraffic")]
    assert started[0].startswith('"fetching s3://models/')
    assert [line.split()[0] for line in started[1:3]] == ['"unpacking', '"starting']
    order = ('"loading: echo:1"', "\"successfully loaded 'echo'\"", '"Started HTTPService at unix:')
    assert [next(n for n, line in enumerate(started) if line.startswith(each)) for each in order] == sorted(
        next(n for n, line in enumerate(started) if line.startswith(each)) for each in order
    )

    sagemaker.update_endpoint(
        EndpointName=name, EndpointConfigName=endpoints.config("life-2", SAYS="now ", GATE=str(second_gate))
    )
    assert sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"] == "Updating"
    assert invoke(runtime, name, "a") == ["got a"], "the old one answers while the new one starts"
    assert refused(sagemaker.update_endpoint, EndpointName=name, EndpointConfigName="life-1") == busy
    assert refused(sagemaker.delete_endpoint, EndpointName=name) == busy
    second_gate.touch()
    described = endpoints.settled(name)
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "life-2")
    assert invoke(runtime, name, "a") == ["now a"]
    wait_until(lambda: gone(first))

    weights = [{"VariantName": "AllTraffic", "DesiredInstanceCount": 4, "DesiredWeight": 1.0}]
    sagemaker.update_endpoint_weights_and_capacities(EndpointName=name, DesiredWeightsAndCapacities=weights)
    described = endpoints.settled(name)
    assert (described["EndpointStatus"], described["ProductionVariants"][0]["CurrentInstanceCount"]) == ("InService", 4)

    second = triton_of(account, name)
    sagemaker.delete_endpoint(EndpointName=name)
    wait_until(lambda: gone(second))
    missing = f'Could not find endpoint "{ARN}:endpoint/life".'
    assert endpoints.deleted(name) == (400, "ValidationException", missing)


def test_an_endpoint_that_starts_is_deleted_as_soon_as_sagemaker_allows_it(
    endpoints: Endpoints, sagemaker: Any, tmp_path: Path
) -> None:
    gate, said, aws = tmp_path / "gate", list[str](), SageMakerAccount()
    name = endpoints.create("impatient", config=endpoints.config("impatient-config", GATE=str(gate)))
    aws._clients["sagemaker"] = sagemaker

    def sleep(seconds: float) -> None:
        gate.touch()
        time.sleep(0.1)

    aws.delete_endpoint(name, said.append, sleep)
    assert said[0] == "Endpoint impatient starts or updates. Waiting to delete it: 0 of 60 min"
    assert endpoints.deleted(name)[2].startswith("Could not find endpoint")


def test_an_autoscaled_variant_keeps_its_instance_type_until_it_is_deregistered(
    endpoints: Endpoints, sagemaker: Any, client: Clients
) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-scaling-update.html"""
    name = endpoints.create("scaled", config=endpoints.config("scaled-1"))
    endpoints.settled(name)
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/scaled/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling = client("application-autoscaling")
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=2)
    endpoints.config("scaled-2", SAYS="another model ")
    endpoints.config("scaled-3", instance_type="ml.c5.2xlarge")

    sagemaker.update_endpoint(EndpointName=name, EndpointConfigName="scaled-2")
    assert endpoints.settled(name)["EndpointConfigName"] == "scaled-2", "another model is no other type"
    assert refused(sagemaker.update_endpoint, EndpointName=name, EndpointConfigName="scaled-3") == (
        400,
        "ValidationException",
        "Variant AllTraffic of endpoint scaled is registered with Application Auto Scaling, and the update "
        "would remove it or change its instance type ml.c5.xlarge. Delete its scaling policies and call "
        "DeregisterScalableTarget first.",
    )
    scaling.deregister_scalable_target(**target)
    sagemaker.update_endpoint(EndpointName=name, EndpointConfigName="scaled-3")
    assert endpoints.settled(name)["EndpointConfigName"] == "scaled-3"


def test_an_instance_type_with_a_chip_is_refused(endpoints: Endpoints) -> None:
    config = endpoints.config("chip-config", instance_type="ml.inf1.xlarge")
    described = endpoints.settled(endpoints.create("chip", config=config))
    assert (described["EndpointStatus"], described["FailureReason"]) == ("Failed", machine.refusal("ml.inf1.xlarge"))


def test_a_variant_for_inference_components_is_refused(client: Clients) -> None:
    variant = {"VariantName": "Shared", "InstanceType": "ml.c5.xlarge", "InitialInstanceCount": 1}
    config = {"EndpointConfigName": "shared", "ExecutionRoleArn": ROLE, "ProductionVariants": [variant]}
    reason = "Variant 1 has no ModelName. This account runs no inference components."
    assert refused(client("sagemaker").create_endpoint_config, **config) == (400, "ValidationException", reason)


def test_a_killed_triton_fails_its_endpoint_with_the_last_log_lines(
    endpoints: Endpoints, runtime: Any, account: LocalAccount
) -> None:
    name = endpoints.create("mortal", config=endpoints.config("mortal-1"))
    endpoints.settled(name)
    os.kill(triton_of(account, name), signal.SIGKILL)
    wait_until(lambda: endpoints.settled(name)["EndpointStatus"] == "Failed")
    reason = endpoints.settled(name)["FailureReason"]
    assert reason.startswith("The Triton server of variant AllTraffic was killed by signal 9. Its whole log is ")
    assert "Started HTTPService" in reason
    with pytest.raises(ClientError, match="is Failed: The Triton server of variant AllTraffic was killed"):
        invoke(runtime, name, "a")
    with pytest.raises(runtime.exceptions.ValidationError, match="Endpoint nowhere of account 123456789012 not found"):
        invoke(runtime, "nowhere", "a")


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        # Triton 2.51 itself calls a body that it cannot parse a server error.
        ("this is not JSON", 500, "failed to parse the request JSON buffer: Invalid value. at 1"),
        (WRONG_NAME, 400, "unexpected inference input 'TXET' for model 'echo'"),
        (echo_request("a").replace("[1, 1]", "[1, 2]"), 400, "unexpected shape for input 'TEXT' for model 'echo'"),
        (
            echo_request("a").replace("BYTES", "INT32").replace('"a"', "1"),
            400,
            "inference input 'TEXT' data-type is 'INT32', but model 'echo' expects 'BYTES'",
        ),
    ],
    ids=["not JSON", "wrong name", "wrong shape", "wrong type"],
)
def test_a_bad_body_is_a_model_error_that_says_what_is_wrong(
    shared_endpoint: str, runtime: Any, account: LocalAccount, body: str, status: int, said: str
) -> None:
    with pytest.raises(runtime.exceptions.ModelError) as failed:
        runtime.invoke_endpoint(EndpointName=shared_endpoint, ContentType="application/json", Body=body)
    answer = failed.value.response
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert answer["OriginalStatusCode"] == status
    assert said in answer["OriginalMessage"]
    kind, log = ("client" if status == 400 else "server"), answer["LogStreamArn"].removeprefix("file://")
    assert answer["Error"]["Message"] == (
        f'Received {kind} error ({status}) from primary with message "{answer["OriginalMessage"]}". '
        f"See {log} for more information."
    )
    assert log.startswith(str(account.log_file.parent / "logs" / "shared-AllTraffic-"))


def test_a_body_over_six_mebibytes_is_refused(shared_endpoint: str, runtime: Any) -> None:
    status, _, message = refused(runtime.invoke_endpoint, EndpointName=shared_endpoint, Body=b"x" * 6_291_457)
    assert (status, "HTTP content length exceeded 6291456 bytes." in message) == (413, True), message


def test_invocations_are_published_with_microsecond_latencies(
    shared_endpoint: str, runtime: Any, client: Clients
) -> None:
    invoke(runtime, shared_endpoint, "a")
    with pytest.raises(runtime.exceptions.ModelError):
        runtime.invoke_endpoint(EndpointName=shared_endpoint, ContentType="application/json", Body=WRONG_NAME)
    dimensions = [{"Name": "EndpointName", "Value": shared_endpoint}, {"Name": "VariantName", "Value": "AllTraffic"}]

    def published(metric: str, statistic: str) -> list[float]:
        kind, now = ("Extended" if statistic.startswith("p") else ""), datetime.now(UTC)
        points = client("cloudwatch").get_metric_statistics(
            Namespace="AWS/SageMaker",
            MetricName=metric,
            Dimensions=dimensions,
            StartTime=now - timedelta(minutes=5),
            EndTime=now,
            Period=60,
            **{f"{kind}Statistics": [statistic]},
        )["Datapoints"]
        return [(point | point.get("ExtendedStatistics", {}))[statistic] for point in points]

    wait_until(lambda: sum(published("Invocations", "Sum")) >= 2 and sum(published("Invocation4XXErrors", "Sum")) >= 1)
    assert 100 < published("ModelLatency", "p99")[0] < 1_000_000
    assert 0 < published("OverheadLatency", "Average")[0] < 1_000_000


def test_a_variant_is_scaled_and_its_policy_told_as_the_api_tells_them(
    shared_endpoint: str, client: Clients, endpoints: Endpoints
) -> None:
    scaling, cloudwatch = client("application-autoscaling"), client("cloudwatch")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{shared_endpoint}/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling.register_scalable_target(**target, MinCapacity=3, MaxCapacity=9)
    assert endpoints.settled(shared_endpoint)["ProductionVariants"][0]["CurrentInstanceCount"] == 3
    (told,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert told["RoleARN"].endswith("/AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint")
    metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
    put = scaling.put_scaling_policy(
        **target,
        PolicyName="Policy",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={"TargetValue": 70.0, "PredefinedMetricSpecification": metric},
    )
    names = [each["AlarmName"] for each in put["Alarms"]]
    alarms = cloudwatch.describe_alarms(AlarmNames=names)["MetricAlarms"]
    assert [(each["Threshold"], each["EvaluationPeriods"]) for each in alarms] == [(70, 3), (63, 15)]
    assert scaling.describe_scaling_activities(**target)["ScalingActivities"] == []
    with pytest.raises(ClientError, match="a schedule such as this one: 'noon' is none of at"):
        scaling.put_scheduled_action(**target, ScheduledActionName="Noon", Schedule="noon")
    with pytest.raises(ClientError, match="Maximum capacity cannot be less than minimum capacity"):
        scaling.register_scalable_target(**target, MinCapacity=10)
    scaling.deregister_scalable_target(**target)
    assert scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"] == []
    assert cloudwatch.describe_alarms(AlarmNames=names)["MetricAlarms"] == []


@pytest.fixture(scope="module")
def shared_endpoint(sagemaker: Any) -> Any:
    made = Endpoints(sagemaker)
    name = made.create("shared", config=made.config("shared-config"))
    assert made.settled(name)["EndpointStatus"] == "InService"
    yield name
    made.delete_all()
