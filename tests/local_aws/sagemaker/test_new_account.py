"""An account with the quotas of a new AWS account, and with the limits that AWS documents for recommender jobs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.sagemaker.exceptions import ValidationError

from local_aws.process.local_account import LocalAccount
from local_aws.quotas import ENDPOINTS
from local_aws.sagemaker.recommendation_request import check_documented_limits
from tests.local_aws.conftest import IMAGE, REPLAYING, ROLE, Clients, Endpoints, clients, refused, upload, wait_until
from tests.local_aws.sagemaker.test_recommendation_jobs import request

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, toolchain: Path) -> Iterator[Clients]:
    state = tmp_path_factory.mktemp("new_account")
    with LocalAccount.start(state=state, toolchain=toolchain, quotas="new-account", program=REPLAYING) as account:
        upload(account)
        yield clients(account)


@pytest.fixture(scope="module")
def sagemaker(client: Clients) -> Any:
    return client("sagemaker")


def beyond(quota: str, limit: int, used: int, delta: int) -> tuple[int, str, str]:
    return (
        400,
        "ResourceLimitExceeded",
        f"The account-level service limit '{quota}' is {limit} Instances, with current utilization of "
        f"{used} Instances and a request delta of {delta} Instances. Please use AWS Service Quotas to request an "
        "increase for this quota. If AWS Service Quotas is not available, contact AWS support to request an increase "
        "for this quota.",
    )


def test_instances_beyond_the_quota_are_refused_beside_those_of_other_endpoints(endpoints: Endpoints) -> None:
    create, config = endpoints.sagemaker.create_endpoint, endpoints.config
    gpu = config("gpu", instance_type="ml.g4dn.xlarge")
    answer = refused(create, EndpointName="gpu", EndpointConfigName=gpu)
    assert answer == beyond("ml.g4dn.xlarge for endpoint usage", 0, 0, 1)
    both = ENDPOINTS["c"]["xlarge"]
    endpoints.create("fits", config=config("both", count=both))
    answer = refused(create, EndpointName="third", EndpointConfigName=config("one"))
    assert answer == beyond("ml.c5.xlarge for endpoint usage", both, both, 1)
    endpoints.settled("fits")
    update = endpoints.sagemaker.update_endpoint
    answer = refused(update, EndpointName="fits", EndpointConfigName="one")
    assert answer == beyond("ml.c5.xlarge for endpoint usage", both, both, 1), "a second fleet"
    endpoints.delete_all()
    wait_until(lambda: not endpoints.sagemaker.list_endpoints()["Endpoints"])
    endpoints.create("again", config="one")
    assert endpoints.settled("again")["EndpointStatus"] == "InService"


def test_no_processing_job_starts(sagemaker: Any) -> None:
    cluster = {"InstanceCount": 1, "InstanceType": "ml.c5.4xlarge", "VolumeSizeInGB": 10}
    answer = refused(
        sagemaker.create_processing_job,
        ProcessingJobName="build",
        RoleArn=ROLE,
        AppSpecification={"ImageUri": IMAGE},
        ProcessingResources={"ClusterConfig": cluster},
    )
    assert answer == beyond("ml.c5.4xlarge for processing job usage", 0, 0, 1)


def test_a_jobs_endpoints_count(sagemaker: Any, endpoints: Endpoints) -> None:
    """The tests that run at once need their instances at once."""
    job = request("beyond", endpoints.model("echo"), instance_types=("ml.c5.4xlarge",) * 2)
    job["InputConfig"]["TrafficPattern"] = {"TrafficType": "PHASES", "Phases": [PHASE]}
    answer = refused(sagemaker.create_inference_recommendations_job, **job)
    assert answer == beyond("ml.c5.4xlarge for endpoint usage", 1, 0, 2)


def test_service_quotas_lists_and_returns_the_values(client: Clients) -> None:
    quotas = client("service-quotas")
    pages = quotas.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
    listed = {each["QuotaName"]: each for page in pages for each in page["Quotas"]}
    assert len(listed) > 100, "several pages"
    assert {name: listed[f"{name} for endpoint usage"]["Value"] for name in ("ml.c5.xlarge", "ml.inf1.6xlarge")} == {
        "ml.c5.xlarge": 2,
        "ml.inf1.6xlarge": 0,
    }
    one = listed["ml.c5.xlarge for endpoint usage"]
    assert quotas.get_service_quota(ServiceCode="sagemaker", QuotaCode=one["QuotaCode"])["Quota"] == one
    assert refused(quotas.get_service_quota, ServiceCode="ec2", QuotaCode="L-0")[1] == "NoSuchResourceException"


PHASE = {"InitialNumberOfUsers": 3, "SpawnRate": 3, "DurationInSeconds": 120}
STAIRS = {"DurationInSeconds": 119, "NumberOfSteps": 1, "UsersPerStep": 1}
LIFTED = ". On the local account, `python -m local_aws --pace quick` lifts these limits."


@pytest.mark.parametrize(
    ("traffic", "job_s", "failures"),
    [
        ({"Phases": [PHASE]}, 18_000, []),
        (
            {"Phases": [PHASE, PHASE | {"DurationInSeconds": 20}]},
            600,
            ["'20' at 'inputConfig.trafficPattern.phases.2.member.durationInSeconds' greater 120"],
        ),
        (
            {"Phases": [PHASE | {"InitialNumberOfUsers": 4, "SpawnRate": 24}]},
            600,
            [
                "'4' at 'inputConfig.trafficPattern.phases.1.member.initialNumberOfUsers' less 3",
                "'24' at 'inputConfig.trafficPattern.phases.1.member.spawnRate' less 3",
            ],
        ),
        (
            {"Phases": [PHASE | {"DurationInSeconds": 3601}]},
            18_001,
            [
                "'18001' at 'inputConfig.jobDurationInSeconds' less 18000",
                "'3601' at 'inputConfig.trafficPattern.phases.1.member.durationInSeconds' less 3600",
            ],
        ),
        (
            {"TrafficType": "STAIRS", "Stairs": STAIRS},
            600,
            ["'119' at 'inputConfig.trafficPattern.stairs.durationInSeconds' greater 120"],
        ),
    ],
)
def test_traffic_beyond_the_documented_limits_is_refused(traffic: Any, job_s: int, failures: list[str]) -> None:
    configuration = {"TrafficPattern": traffic, "JobDurationInSeconds": job_s}
    if not failures:
        check_documented_limits(configuration)
        return
    with pytest.raises(ValidationError) as caught:
        check_documented_limits(configuration)
    texts = [
        re.sub(
            r"(.*) (greater|less) (\d+)",
            r"Value \1 failed to satisfy constraint: Member must have value \2 than or equal to \3",
            failure,
        )
        for failure in failures
    ]
    count = f"{len(texts)} validation error{'s' if len(texts) > 1 else ''} detected"
    assert caught.value.message == f"{count}: {'; '.join(texts)}{LIFTED}"


def test_without_the_quick_pace_a_job_with_short_phases_is_refused(sagemaker: Any, endpoints: Endpoints) -> None:
    job = request("short", endpoints.model("short"))
    _, code, message = refused(sagemaker.create_inference_recommendations_job, **job)
    assert code == "ValidationException"
    assert message.startswith("2 validation errors detected: Value '1' at 'inputConfig.trafficPattern")
