"""A job that the service would refuse is refused first: bounds are botocore's, messages name the flag or the key."""

import re
from dataclasses import replace
from functools import cache
from typing import Any

import botocore.session
import pytest
from botocore.model import Shape

from aws_api.service_model import problems, validation_error
from inference_recommender.measure import tested_model as job_limits
from inference_recommender.measure.job_requests import JobPlan, plan_default_job, plan_job
from inference_recommender.measure.tested_model import Configuration, JobEnvironment, Tested, TestedModel, TestedPackage
from workloads import StairTraffic, UsageError, WorkloadFolder

TESTED = TestedModel(
    model_name="spellcheck-model",
    role_arn="arn:aws:iam::123456789012:role/recommender",
    payload_url="s3://bucket/inference-recommender/spellcheck/payloads.tar.gz",
)
PACKAGE = TestedPackage(
    model_package_arn="arn:aws:sagemaker:us-east-1:123456789012:model-package/spellcheck/1",
    role_arn=TESTED.role_arn,
    payload_url=TESTED.payload_url,
)


@cache
def shape(name: str) -> Shape:
    """Returns a shape of SageMaker's service model, which takes half a second to load."""
    return botocore.session.get_session().get_service_model("sagemaker").shape_for(name)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (job_limits.JOB_NAME, "RecommendationJobName"),
        (job_limits.ROLE_ARN, "RoleArn"),
        (job_limits.MODEL_NAME, "ModelName"),
        (job_limits.MODEL_PACKAGE, "ModelPackageArn"),
        (job_limits.ENDPOINT_NAME, "EndpointName"),
        (job_limits.S3_URI, "S3Uri"),
        (job_limits.KMS_KEY, "KmsKeyId"),
        (job_limits.NETWORK_ID, "RecommendationJobVpcSubnetId"),
        (job_limits.NETWORK_ID, "RecommendationJobVpcSecurityGroupId"),
    ],
)
def test_a_rule_is_botocores(rule: job_limits.Rule, name: str) -> None:
    metadata = shape(name).metadata
    assert (rule.pattern, rule.most) == (metadata["pattern"], metadata["max"])
    assert rule.least == max(metadata["min"], 1), "an empty text is never meant"


@pytest.mark.parametrize(
    ("bound", "name"),
    [
        (job_limits.MOST_SECURITY_GROUPS, "RecommendationJobVpcSecurityGroupIds"),
        (job_limits.MOST_SUBNETS, "RecommendationJobVpcSubnets"),
        (job_limits.MOST_TAGS, "TagList"),
        (job_limits.MOST_TAG_KEY, "TagKey"),
        (job_limits.MOST_TAG_VALUE, "TagValue"),
        (job_limits.MOST_DESCRIPTION, "RecommendationJobDescription"),
        (job_limits.MOST_PARAMETERS, "CategoricalParameters"),
        (job_limits.MOST_VALUES, "CategoricalParameterRangeValues"),
    ],
)
def test_a_bound_is_botocores(bound: int, name: str) -> None:
    assert bound == shape(name).metadata["max"]


def advanced(folder: WorkloadFolder, subject: Tested = TESTED, environment: JobEnvironment | None = None) -> JobPlan:
    return plan_job(folder.workload, "production", folder.traffic("production"), subject, "job-1", environment)


@pytest.mark.parametrize(
    ("subject", "environment", "told"),
    [
        (
            replace(TESTED, model_name="spellcheck_model"),
            JobEnvironment(),
            "--model-name: got 'spellcheck_model'. Allowed: 1 to 63 letters, digits and hyphens, with a letter or a "
            "digit at both ends.",
        ),
        (
            replace(TESTED, role_arn="recommender"),
            JobEnvironment(),
            "--role-arn: got 'recommender'. Allowed: an IAM role's ARN, arn:aws:iam::ACCOUNT:role/NAME.",
        ),
        (
            replace(PACKAGE, model_package_arn="spellcheck/1"),
            JobEnvironment(),
            "--model-package: got 'spellcheck/1'. Allowed: a model package's ARN, "
            "arn:aws:sagemaker:REGION:ACCOUNT:model-package/GROUP/VERSION.",
        ),
        (
            TESTED,
            JobEnvironment(kms_key="my key"),
            "--kms-key: got 'my key'. Allowed: a KMS key's id or ARN, or alias/NAME, or an alias' ARN.",
        ),
        (
            TESTED,
            JobEnvironment(subnets=("subnet-1",)),
            "--security-group: is required with --subnet: a VPC needs both.",
        ),
        (
            TESTED,
            JobEnvironment(security_groups=("sg-1",)),
            "--subnet: is required with --security-group: a VPC needs both.",
        ),
        (
            TESTED,
            JobEnvironment(subnets=("subnet_1",), security_groups=("sg-1",)),
            "--subnet: got 'subnet_1'. Allowed: an id of at most 32 letters, digits and hyphens.",
        ),
        (
            TESTED,
            JobEnvironment(subnets=("subnet-1",), security_groups=tuple(f"sg-{n}" for n in range(6))),
            "--security-group: got 6. Allowed: 5 at most.",
        ),
        (
            TESTED,
            JobEnvironment(subnets=tuple(f"subnet-{n}" for n in range(17)), security_groups=("sg-1",)),
            "--subnet: got 17. Allowed: 16 at most.",
        ),
        (
            TESTED,
            JobEnvironment(tags={"team": "a;b"}),
            "--tag: got 'team=a;b'. Allowed: letters, digits, spaces and _ . : / = + - @.",
        ),
        (
            TESTED,
            JobEnvironment(tags={"k" * 129: ""}),
            f"--tag: got '{'k' * 129}='. Allowed: a key of 1 to 128 characters and a value of at most 256.",
        ),
        (
            TESTED,
            JobEnvironment(tags={f"k{n}": "" for n in range(48)}),
            "--tag: got 52 with those of the run's own. Allowed: 50 at most.",
        ),
        (TESTED, JobEnvironment(description="d" * 129), "--description: got 129 characters. Allowed: 128 at most."),
        (
            replace(TESTED, endpoint_name="visited"),
            JobEnvironment(),
            "--endpoint: an existing endpoint is tested by a default job only: say --job default.",
        ),
    ],
)
def test_what_the_service_would_refuse_is_refused_in_the_words_of_the_command_line(
    spellcheck: WorkloadFolder, subject: Tested, environment: JobEnvironment, told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        advanced(spellcheck, subject, environment)
    assert str(caught.value) == told
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("aws:team", "--tag: got 'aws:team=search'. A key that begins with aws: is reserved for AWS."),
        ("run", "--tag: got 'run=search'. The key run is the run's own: by it a run knows its jobs again."),
        (
            "inference-recommender:expires-at",
            "--tag: got 'inference-recommender:expires-at=search'. The key inference-recommender:expires-at is the "
            "run's own: `sweep` goes by it.",
        ),
    ],
)
def test_a_tag_with_a_reserved_key_is_refused(spellcheck: WorkloadFolder, key: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        advanced(spellcheck, TESTED, JobEnvironment(tags={key: "search"}))
    assert str(caught.value) == told


def test_every_problem_is_told_at_once(spellcheck: WorkloadFolder) -> None:
    with pytest.raises(UsageError) as caught:
        plan_default_job(spellcheck.workload, replace(TESTED, endpoint_name="-"), "a_b", JobEnvironment(kms_key="?"))
    assert [problem.partition(":")[0] for problem in str(caught.value).splitlines()] == [
        "--job-name",
        "--endpoint",
        "--kms-key",
    ]


def test_a_candidate_that_no_endpoint_can_have_is_refused_by_file_and_key(spellcheck: WorkloadFolder) -> None:
    with pytest.raises(UsageError) as caught:
        plan_job(
            spellcheck.workload,
            "quick",
            spellcheck.traffic("quick"),
            TESTED,
            "job-1",
            configurations=[Configuration(instance_type="inf1.xlarge")],
        )
    assert str(caught.value) == (
        "workloads/spellcheck/workload.toml: instance_types: got 'inf1.xlarge', which is no instance type of a "
        "SageMaker endpoint. Allowed: those botocore knows, as ml.c5.xlarge."
    )


def test_a_default_runs_candidate_with_more_parameters_than_a_range_may_have_is_refused(
    spellcheck: WorkloadFolder,
) -> None:
    tuned = Configuration(instance_type="ml.c5.xlarge", environment={f"P{n}": ("1",) for n in range(6)})
    with pytest.raises(UsageError) as caught:
        plan_job(spellcheck.workload, "quick", spellcheck.traffic("quick"), TESTED, "job-1", configurations=[tuned])
    assert str(caught.value) == (
        "ml.c5.xlarge: has 6 environment parameters. Allowed: 5 at most, so it cannot be a job's candidate."
    )


def test_traffic_that_outlasts_the_longest_job_is_refused(spellcheck: WorkloadFolder) -> None:
    stairs = StairTraffic(type="stairs", users_per_step=1, steps=10, duration_s=18_001)
    with pytest.raises(UsageError) as caught:
        plan_job(spellcheck.workload, "endless", stairs, TESTED, "job-1")
    assert str(caught.value) == (
        "workloads/spellcheck/workload.toml: traffic.endless: lasts 18,001 s. Allowed: 18,000 s at most, the longest "
        "job there is."
    )


@pytest.mark.parametrize("subject", [TESTED, PACKAGE])
def test_the_service_has_nothing_against_a_request_with_all_surroundings(
    spellcheck: WorkloadFolder, subject: Tested
) -> None:
    environment = JobEnvironment(
        subnets=("subnet-1", "subnet-2"),
        security_groups=("sg-1",),
        kms_key="alias/models",
        tags={"team": "search, no: search-1".replace(",", "")},
        description="how fast is it",
    )
    request = advanced(spellcheck, subject, environment).request
    assert validation_error("sagemaker", "CreateInferenceRecommendationsJob", request) is None
    assert request["InputConfig"]["VpcConfig"] == {
        "SecurityGroupIds": ["sg-1"],
        "Subnets": ["subnet-1", "subnet-2"],
    }
    assert request["InputConfig"]["VolumeKmsKeyId"] == request["OutputConfig"]["KmsKeyId"] == "alias/models"
    assert request["JobDescription"] == "how fast is it"
    tags = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
    assert tags == {"workload": "spellcheck", "traffic": "production", "team": "search no: search-1"}


TEXTS = ["", "-", "a", "a-", "a b", "ä", "a_b", "a" * 63, "a" * 64, "a" * 65, "arn:aws:iam::123456789012:role/r", "é"]


@pytest.mark.parametrize("text", TEXTS)
def test_where_the_service_model_complains_so_do_we_and_only_there(spellcheck: WorkloadFolder, text: str) -> None:
    """Tries the same texts in every place where a user may write one; an empty text is left out."""
    for place in ("model_name", "role_arn", "endpoint_name"):
        subject = replace(TESTED, **{place: text or "?"})
        bare = JobEnvironment()
        assert _refused_by_us(spellcheck, subject, bare) == _refused_by_the_model(subject, bare), place
    for environment in (JobEnvironment(tags={"key": text}), JobEnvironment(description=text)):
        assert _refused_by_us(spellcheck, TESTED, environment) == _refused_by_the_model(TESTED, environment), (
            environment
        )


def _refused_by_us(folder: WorkloadFolder, subject: TestedModel, environment: JobEnvironment) -> bool:
    try:
        plan_default_job(folder.workload, subject, "job-1", environment)
    except UsageError:
        return True
    return False


def _refused_by_the_model(subject: TestedModel, environment: JobEnvironment) -> bool:
    request: dict[str, Any] = {
        "JobName": "job-1",
        "JobType": "Default",
        "RoleArn": subject.role_arn,
        "InputConfig": subject.input_config(),
        "Tags": [{"Key": key, "Value": value} for key, value in environment.tags.items()],
    }
    if environment.description is not None:
        request["JobDescription"] = environment.description
    found = list(problems(shape("CreateInferenceRecommendationsJobRequest"), request))
    # The model's pattern of a tag is Java's, with Unicode classes: here in Python's words.
    letters = re.compile(r"[\w\s.:/=+\-@]*")
    return bool(found) or not all(letters.fullmatch(value) for value in environment.tags.values())
