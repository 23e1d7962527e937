"""Inference Recommender jobs answer in the API's shapes, whatever happens while their tests run against a Triton.

The jobs replay figures.
"""

import os
import signal
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_aws import machine
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import BUCKET, IMAGE, ROLE, Clients, Endpoints, echo_request, refused, wait_until
from tests.local_aws.replayed_load import LATENCY_MS, PER_USER

pytestmark = pytest.mark.integration

ENDED = ("COMPLETED", "FAILED", "STOPPED")


@pytest.fixture(scope="module")
def model(sagemaker: Any) -> str:
    return Endpoints(sagemaker).model("measured", DELAY_S="0.01")


MEDIAN = {"ModelLatencyThresholds": [{"Percentile": "P50", "ValueInMilliseconds": 500}]}
"""A capacity by the median needs few requests. These tests are not about statistics."""


def request(
    name: str, model: str | None, *, instance_types: tuple[str, ...] = ("ml.c5.xlarge",), seconds: int = 3
) -> Any:
    """Returns a request for a job of `seconds`, whose load changes after the first."""
    phases = [
        {"InitialNumberOfUsers": users, "SpawnRate": 0, "DurationInSeconds": duration}
        for users, duration in ((1, 1), (2, seconds - 1))
    ]
    return {
        "JobName": name,
        "JobType": "Advanced",
        "RoleArn": ROLE,
        "JobDescription": "a test",
        "InputConfig": {
            **({"ModelName": model} if model else {}),
            "JobDurationInSeconds": 600,
            "TrafficPattern": {"TrafficType": "PHASES", "Phases": phases},
            "ResourceLimit": {"MaxNumberOfTests": 5, "MaxParallelOfTests": 5},
            "EndpointConfigurations": [{"InstanceType": each} for each in instance_types],
            "ContainerConfig": {
                "Domain": "NATURAL_LANGUAGE_PROCESSING",
                "Framework": "PYTORCH",
                "FrameworkVersion": "2.13.0",
                "PayloadConfig": {
                    "SamplePayloadUrl": f"s3://{BUCKET}/payloads.tar.gz",
                    "SupportedContentTypes": ["application/json"],
                },
            },
        },
        "StoppingConditions": {"MaxInvocations": 30000, **MEDIAN, "FlatInvocations": "Continue"},
        "Tags": [{"Key": "workload", "Value": "echo"}],
    }


def ended(sagemaker: Any, name: str) -> dict[str, Any]:
    def described() -> dict[str, Any]:
        found: dict[str, Any] = sagemaker.describe_inference_recommendations_job(JobName=name)
        return found

    wait_until(lambda: described()["Status"] in ENDED)
    return described()


def steps(sagemaker: Any, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sagemaker.list_inference_recommendations_job_steps(JobName=name)["Steps"]
    return found


def metric_values(client: Clients, name: str, step: dict[str, Any], metric: str, stat: str) -> list[float]:
    benchmark = step["InferenceBenchmark"]
    began = benchmark["InvocationStartTime"]
    dimensions = {"JobName": name, "EndpointName": benchmark["EndpointConfiguration"]["EndpointName"]}
    query = {
        "Id": "values",
        "MetricStat": {
            "Metric": {
                "Namespace": "/aws/sagemaker/InferenceRecommendationsJobs",
                "MetricName": metric,
                "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
            },
            "Period": 1,
            "Stat": stat,
        },
    }
    answer = client("cloudwatch").get_metric_data(
        MetricDataQueries=[query], StartTime=began - timedelta(seconds=5), EndTime=began + timedelta(seconds=60)
    )
    values: list[float] = answer["MetricDataResults"][0]["Values"]
    return values


def test_a_job_tests_every_combination_and_reports_it_in_the_apis_shape(
    sagemaker: Any, client: Clients, model: str
) -> None:
    wanted = request("happy", model)
    ranges = [{"Name": "DELAY_S", "Value": ["0.02", "0.08"]}]
    wanted["InputConfig"]["EndpointConfigurations"] = [
        {"InstanceType": "ml.c5.xlarge", "EnvironmentParameterRanges": {"CategoricalParameterRanges": ranges}},
        {"InstanceType": "ml.g5.xlarge"},
    ]
    arn = sagemaker.create_inference_recommendations_job(**wanted)["JobArn"]
    assert arn == "arn:aws:sagemaker:us-east-1:123456789012:inference-recommendations-job/happy"
    job = ended(sagemaker, "happy")
    assert job["Status"] == "COMPLETED", job.get("FailureReason")
    assert job["InputConfig"] == wanted["InputConfig"]
    first, second = job["InferenceRecommendations"]
    assert first["RecommendationId"].startswith("happy/")
    assert [each["ModelConfiguration"]["EnvironmentParameters"] for each in (first, second)] == [
        [{"Key": "DELAY_S", "ValueType": "String", "Value": value}] for value in ("0.02", "0.08")
    ]
    assert first["EndpointConfiguration"]["InstanceType"] == "ml.c5.xlarge"
    assert first["Metrics"]["ModelLatency"] == LATENCY_MS
    assert first["Metrics"]["MaxInvocations"] == 2 * PER_USER * 60
    assert 0 <= first["Metrics"]["CpuUtilization"] <= 100 * (os.cpu_count() or 1)
    assert 0 < first["Metrics"]["MemoryUtilization"] < 100
    assert "CostPerHour" not in first["Metrics"], "this machine has no price"

    step, _, refused = steps(sagemaker, "happy")
    assert (step["Status"], refused["Status"]) == ("COMPLETED", "FAILED")
    assert refused["InferenceBenchmark"]["FailureReason"] == machine.refusal("ml.g5.xlarge")
    assert sum(metric_values(client, "happy", step, "ClientInvocations", "Sum")) == (1 + 2 + 2) * PER_USER
    assert max(metric_values(client, "happy", step, "NumberOfUsers", "Maximum")) == 2
    assert set(metric_values(client, "happy", step, "ClientLatency", "p99")) == {LATENCY_MS}

    tags = {tag["Key"]: tag["Value"] for tag in sagemaker.list_tags(ResourceArn=arn)["Tags"]}
    assert tags["workload"] == "echo"
    assert tags["local-aws:measured-on"] == machine.tag_value(machine.description())
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "workload", "Value": "other"}])
    tags = {tag["Key"]: tag["Value"] for tag in sagemaker.list_tags(ResourceArn=arn)["Tags"]}
    assert tags["workload"] == "other"


def test_a_job_stopped_midway_keeps_what_it_measured(sagemaker: Any, client: Clients, model: str) -> None:
    sagemaker.create_inference_recommendations_job(**request("halted", model, seconds=120))
    under_load(sagemaker, client, "halted")
    sagemaker.stop_inference_recommendations_job(JobName="halted")
    job = ended(sagemaker, "halted")
    assert job["Status"] == "STOPPED"
    (step,) = steps(sagemaker, "halted")
    assert step["Status"] == "STOPPED"
    assert sum(metric_values(client, "halted", step, "ClientInvocations", "Sum")) > 50
    with pytest.raises(ClientError, match=r"InferenceRecommendationsJob halted is STOPPED and cannot be stopped\."):
        sagemaker.stop_inference_recommendations_job(JobName="halted")


def test_a_triton_killed_midway_fails_the_job_and_keeps_what_was_measured(
    sagemaker: Any, client: Clients, model: str, account: LocalAccount
) -> None:
    sagemaker.create_inference_recommendations_job(**request("killed", model, seconds=120))
    under_load(sagemaker, client, "killed")
    said = [line for line in account.log_file.read_text().splitlines() if "load on Triton" in line][-1]
    os.kill(int(said.split("process ")[1].split(")")[0]), signal.SIGKILL)
    job = ended(sagemaker, "killed")
    assert job["Status"] == "FAILED"
    assert job["FailureReason"].startswith(
        "The Triton server of variant AllTraffic was killed by signal 9. Its whole log is "
    )
    assert "Started HTTPService" in job["FailureReason"]
    (step,) = steps(sagemaker, "killed")
    assert step["InferenceBenchmark"]["FailureReason"] == job["FailureReason"]
    assert step["InferenceBenchmark"]["Metrics"]["CpuUtilization"] >= 0
    assert sum(metric_values(client, "killed", step, "ClientInvocations", "Sum")) > 50


def under_load(sagemaker: Any, client: Clients, name: str) -> None:
    def measured() -> bool:
        (step,) = steps(sagemaker, name)
        job = sagemaker.describe_inference_recommendations_job(JobName=name)
        assert job["Status"] not in ENDED, job.get("FailureReason")
        return "InvocationStartTime" in step["InferenceBenchmark"] and (
            sum(metric_values(client, name, step, "ClientInvocations", "Sum")) > 50
        )

    wait_until(measured)


def test_a_name_that_is_taken_is_refused_as_the_service_does(sagemaker: Any, model: str) -> None:
    wanted = request("taken", model, instance_types=("ml.g4dn.xlarge",))
    arn = sagemaker.create_inference_recommendations_job(**wanted)["JobArn"]
    assert refused(sagemaker.create_inference_recommendations_job, **wanted) == (
        400,
        "ResourceInUse",
        "InferenceRecommendationsJob names must be unique within an AWS account and region, and there is already an "
        f"InferenceRecommendationsJob with this name ({arn}).",
    )


PACKAGE = "arn:aws:sagemaker:us-east-1:123456789012:model-package/p/1"
LONG = {"InitialNumberOfUsers": 1, "SpawnRate": 0, "DurationInSeconds": 900}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"ModelName": None}, "Exactly one of ModelName and ModelPackageVersionArn is required, but none was given."),
    (
        {},
        {"ModelPackageVersionArn": PACKAGE},
        "Exactly one of ModelName and ModelPackageVersionArn is required, but both were given.",
    ),
    ({}, {"ModelName": None, "ModelPackageVersionArn": PACKAGE}, f"Model package {PACKAGE} not found"),
    (
        {"JobName": "not_a_name"},
        {},
        "1 validation error detected: Value 'not_a_name' at 'jobName' failed to satisfy constraint: Member must "
        "satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,63}",
    ),
    (
        {},
        {"TrafficPattern": {"TrafficType": "PHASES", "Phases": [LONG]}},
        "The traffic takes 900 seconds, more than JobDurationInSeconds 600: shorten it or raise that.",
    ),
]
"""Members of the request and of its InputConfig that differ (None: absent), and the error."""


@pytest.mark.parametrize(("members", "configuration", "message"), REFUSED)
def test_a_bad_request_is_refused_in_one_sentence(
    sagemaker: Any, model: str, members: dict[str, Any], configuration: dict[str, Any], message: str
) -> None:
    bad = {**request("bad", model), **members}
    changed = {**bad["InputConfig"], **configuration}
    bad["InputConfig"] = {name: value for name, value in changed.items() if value is not None}
    assert refused(sagemaker.create_inference_recommendations_job, **bad) == (400, "ValidationException", message)


def test_jobs_are_listed_by_name_status_and_page(sagemaker: Any, model: str) -> None:
    for name in ("listed-a", "listed-b"):
        sagemaker.create_inference_recommendations_job(**request(name, model, instance_types=("ml.g4dn.xlarge",)))
        job = ended(sagemaker, name)
        assert (job["Status"], job["FailureReason"]) == ("FAILED", machine.refusal("ml.g4dn.xlarge"))
    pages = sagemaker.get_paginator("list_inference_recommendations_jobs").paginate(
        NameContains="listed", StatusEquals="FAILED", SortBy="Name", SortOrder="Descending", MaxResults=1
    )
    found = [job["JobName"] for page in pages for job in page["InferenceRecommendationsJobs"]]
    assert found == ["listed-b", "listed-a"]


def test_a_model_package_is_tested_by_its_container_payload_and_instance_types(sagemaker: Any) -> None:
    sagemaker.create_model_package_group(ModelPackageGroupName="echoes", ModelPackageGroupDescription="a test")
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/echo.tar.gz", "Framework": "PYTORCH"}
    arn = sagemaker.create_model_package(
        ModelPackageGroupName="echoes",
        Domain="NATURAL_LANGUAGE_PROCESSING",
        Task="OTHER",
        SamplePayloadUrl=f"s3://{BUCKET}/payloads.tar.gz",
        InferenceSpecification={
            "Containers": [container],
            "SupportedContentTypes": ["application/json"],
            "SupportedRealtimeInferenceInstanceTypes": ["ml.c5.xlarge"],
        },
    )["ModelPackageArn"]
    wanted = {
        "JobName": "packaged",
        "JobType": "Default",
        "RoleArn": ROLE,
        "InputConfig": {"ModelPackageVersionArn": arn, "JobDurationInSeconds": 3},
        "StoppingConditions": MEDIAN,
    }
    sagemaker.create_inference_recommendations_job(**wanted)
    job = ended(sagemaker, "packaged")
    assert job["Status"] == "COMPLETED", job.get("FailureReason")
    (found,) = job["InferenceRecommendations"]
    assert found["EndpointConfiguration"]["InstanceType"] == "ml.c5.xlarge"
    assert found["Metrics"]["MaxInvocations"] > 0
    listed = sagemaker.list_inference_recommendations_jobs(ModelPackageVersionArnEquals=arn)
    assert [job["JobName"] for job in listed["InferenceRecommendationsJobs"]] == ["packaged"]


def test_an_existing_endpoint_is_tested_where_it_is_and_goes_on_answering(
    sagemaker: Any, client: Clients, runtime: Any, endpoints: Endpoints, model: str
) -> None:
    endpoints.create("lives", config=endpoints.config("lives-config"))
    assert endpoints.settled("lives")["EndpointStatus"] == "InService"
    wanted = request("visited", model)
    wanted |= {"JobType": "Default"}
    wanted["InputConfig"] = {
        "ModelName": model,
        "JobDurationInSeconds": 3,
        "Endpoints": [{"EndpointName": "lives"}],
        "ContainerConfig": wanted["InputConfig"]["ContainerConfig"],
    }
    sagemaker.create_inference_recommendations_job(**wanted)
    job = ended(sagemaker, "visited")
    assert job["Status"] == "COMPLETED", job.get("FailureReason")
    (performance,) = job["EndpointPerformances"]
    assert performance["EndpointInfo"] == {"EndpointName": "lives"}
    assert performance["Metrics"]["MaxInvocations"] > 0
    assert "InferenceRecommendations" not in job
    (step,) = steps(sagemaker, "visited")
    assert step["InferenceBenchmark"]["EndpointMetrics"] == performance["Metrics"]
    assert "EndpointConfiguration" not in step["InferenceBenchmark"]
    body = echo_request("still here")
    answer = runtime.invoke_endpoint(EndpointName="lives", ContentType="application/json", Body=body)
    assert b"got still here" in answer["Body"].read()


def test_a_job_writes_the_log_stream_that_the_sagemaker_sdk_waits_for(
    sagemaker: Any, client: Clients, model: str
) -> None:
    sagemaker.create_inference_recommendations_job(**request("logged", model))
    stream = {"logGroupName": "/aws/sagemaker/InferenceRecommendationsJobs", "logStreamName": "logged/execution"}
    assert client("logs").get_log_events(**stream)["events"], "the SDK's first look is right after the job's creation"
    ended(sagemaker, "logged")

    def messages() -> list[str]:
        return [event["message"] for event in client("logs").get_log_events(**stream)["events"]]

    wait_until(lambda: messages()[-1] == "COMPLETED")
    begun, *others = messages()
    assert begun.startswith("PENDING: 1 test(s), one after another, on ")
    assert others == ["IN_PROGRESS", "test on ml.c5.xlarge: COMPLETED", "COMPLETED"]
