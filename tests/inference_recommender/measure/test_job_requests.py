"""A job's request is valid, has the workload's and the account's settings, and is checked before it is sent."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from botocore.validate import ParamValidator

from aws_api.service_model import input_shape
from inference_recommender.cli.deployed import package_request
from inference_recommender.measure.job_requests import (
    SERVICE_DEFAULT,
    Configuration,
    JobPlan,
    plan_default_job,
    plan_job,
    split_into_jobs,
)
from inference_recommender.payloads import header_size
from tests.builders import message_of
from tests.inference_recommender.api import TESTED
from workloads import StairTraffic, Unavailable, UsageError, Workload, WorkloadFolder, load_workload
from workloads.folder import with_settings


def _plan(workload: Workload, traffic: str = "quick", configurations: Sequence[Configuration] | None = None) -> JobPlan:
    return plan_job(workload, traffic, workload.traffic[traffic], TESTED, "job-1", configurations)


STAIRS = StairTraffic(type="stairs", users_per_step=2, steps=5, duration_s=600)


@pytest.mark.parametrize("name", ["production", "quick", "stairs"])
def test_botocore_accepts_the_request_and_it_is_reproducible(spellcheck: WorkloadFolder, name: str) -> None:
    traffic = STAIRS if name == "stairs" else spellcheck.traffic(name)
    first, second = (plan_job(spellcheck.workload, name, traffic, TESTED, "job-1").request for _ in range(2))
    shape = input_shape("sagemaker", "CreateInferenceRecommendationsJob")
    assert ParamValidator().validate(first, shape).generate_report() == ""
    assert json.dumps(first) == json.dumps(second)


def test_the_request_has_the_workloads_traffic_types_and_limits(spellcheck: WorkloadFolder) -> None:
    request = _plan(spellcheck.workload, "production").request
    config = request["InputConfig"]
    assert request["JobType"] == "Advanced"
    assert config["ModelName"] == TESTED.model
    assert config["ContainerConfig"]["PayloadConfig"]["SamplePayloadUrl"] == TESTED.payload_url
    assert [one["InstanceType"] for one in config["EndpointConfigurations"]] == ["ml.c5.xlarge"]
    first = {"InitialNumberOfUsers": 1, "SpawnRate": 1, "DurationInSeconds": 600}
    assert config["TrafficPattern"]["Phases"][0] == first
    assert config["JobDurationInSeconds"] == 1800 + 7200
    assert request["StoppingConditions"] == {
        "MaxInvocations": 30_000,
        "ModelLatencyThresholds": [{"Percentile": "P95", "ValueInMilliseconds": 50}],
        "FlatInvocations": "Stop",
    }
    assert "MaxInvocations" not in _plan(spellcheck.workload).request["StoppingConditions"]
    stairs = plan_job(spellcheck.workload, "stairs", STAIRS, TESTED, "job-1").request["InputConfig"]
    steps = {"DurationInSeconds": 600, "NumberOfSteps": 5, "UsersPerStep": 2}
    assert stairs["TrafficPattern"] == {"TrafficType": "STAIRS", "Stairs": steps}
    assert stairs["JobDurationInSeconds"] == 5 * 600 + 7200, "in whichever way the duration is meant"


@pytest.mark.parametrize(("percentile", "limit_ms", "threshold_ms"), [("P50", 9.2, 10), ("P99.9", 50.0, 50)])
def test_an_advanced_job_sends_p95_in_whole_milliseconds_whatever_the_objective(
    spellcheck: WorkloadFolder, percentile: str, limit_ms: float, threshold_ms: int
) -> None:
    """The API's reference: "For custom load tests, specify the value as P95"."""
    changes = {"percentile": percentile, "model_latency_ms": limit_ms}
    objective = spellcheck.workload.latency_objective.model_copy(update=changes)
    workload = spellcheck.workload.model_copy(update={"objective": objective})
    (threshold,) = _plan(workload).request["StoppingConditions"]["ModelLatencyThresholds"]
    assert threshold == {"Percentile": "P95", "ValueInMilliseconds": threshold_ms}


@pytest.mark.parametrize(("allowed", "tests", "parallel"), [(3, 6, 3), (9, 6, 6)])
def test_parallel_tests_are_as_many_as_the_account_allows(
    spellcheck: WorkloadFolder, allowed: int, tests: int, parallel: int
) -> None:
    workload = with_settings(spellcheck, [f"recommender.parallel_tests={allowed}"]).workload
    limit = _plan(workload, configurations=many(tests)).request["InputConfig"]["ResourceLimit"]
    assert limit == {"MaxNumberOfTests": tests, "MaxParallelOfTests": parallel}


def many(tests: int) -> list[Configuration]:
    return [Configuration(instance_type="ml.c5.xlarge", environment={"N": (str(n),)}) for n in range(tests)]


PACKAGE = "arn:aws:sagemaker:us-east-1:123456789012:model-package/spellcheck/1"


def _on_gpus(spellcheck: WorkloadFolder, *settings: str) -> Workload:
    types = "ml.g5.xlarge,ml.c5.xlarge,ml.g6.xlarge,ml.g4dn.xlarge"
    return with_settings(spellcheck, [f"targets.cpu.instance_types={types}", *settings]).workload


@pytest.mark.parametrize("kind", ["default", "advanced"])
def test_a_job_is_refused_on_hosts_that_are_known_not_to_start_the_image(spellcheck: WorkloadFolder, kind: str) -> None:
    workload = _on_gpus(spellcheck, "hosting.triton_version=25.04")
    plan = plan_default_job(workload, TESTED, "job-1") if kind == "default" else _plan(workload)
    assert message_of(UsageError, plan.check_drivers, workload) == (
        "hosting.triton_version: a job's hosts of ml.g5.xlarge, ml.g4dn.xlarge start with NVIDIA driver 470, on which "
        "Triton 25.04 does not start. A job cannot choose another driver. Set hosting.triton_version to 24.09 and "
        "build again, or measure the stack's endpoint without --job. --set recommender.ignore_driver=true sends the "
        "job anyway."
    )


NEWER = "hosting.triton_version=25.04"


@pytest.mark.parametrize(
    ("settings", "endpoint"),
    [
        ((), None),
        ((NEWER, "recommender.ignore_driver=true"), None),
        ((NEWER, f"recommender.model={PACKAGE}"), None),
        ((NEWER,), "e"),
    ],
)
def test_a_job_runs_with_the_default_image_an_override_or_a_model_or_endpoint_of_the_users_own(
    spellcheck: WorkloadFolder, settings: tuple[str, ...], endpoint: str | None
) -> None:
    workload = _on_gpus(spellcheck, *settings)
    assert plan_default_job(workload, replace(TESTED, endpoint_name=endpoint), "job-1").check_drivers(workload) == []


def test_a_pair_of_which_no_source_says_anything_is_a_warning(spellcheck: WorkloadFolder) -> None:
    settings = ["targets.cpu.instance_types=ml.g6.xlarge", "hosting.triton_version=25.09"]
    workload = with_settings(spellcheck, settings).workload
    assert plan_default_job(workload, TESTED, "job-1").check_drivers(workload) == [
        "ml.g6.xlarge: no source says whether Triton 25.09 starts with the GPU driver of a job's hosts. Check it with "
        "`python -m stacks preflight --probe ml.g6.xlarge`."
    ]


TOML = "workloads/spellcheck/workload.toml"
INVALID = "failed to satisfy constraint: Member must"
REFUSALS: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "model": (
        [],
        {"model": "spell_check"},
        f"Value 'spell_check' at 'inputConfig.modelName' {INVALID} satisfy regular",
    ),
    "one list of the network": (
        ["recommender.subnets=subnet-1"],
        {},
        f"Value '[]' at 'inputConfig.vpcConfig.securityGroupIds' {INVALID} have length greater than or equal to 1",
    ),
    "tag of AWS": (
        ["recommender.tags.aws:team=search"],
        {},
        f"{TOML}: recommender.tags: got the key 'aws:team', which is reserved. Choose another.",
    ),
    "tag of the run": (
        ["recommender.tags.run=search"],
        {},
        f"{TOML}: recommender.tags: got the key 'run', which is reserved. Choose another.",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_request_that_the_service_would_reject_is_not_sent(spellcheck: WorkloadFolder, name: str) -> None:
    settings, changes, problem = REFUSALS[name]
    workload, tested = with_settings(spellcheck, settings).workload, replace(TESTED, **changes)
    assert message_of(UsageError, plan_default_job, workload, tested, "job-1").startswith(problem)


@pytest.mark.parametrize(
    ("configuration", "problem"),
    [
        (
            Configuration(instance_type="inf1.xlarge"),
            f"{TOML}: instance_types: got 'inf1.xlarge'. Allowed: instance types of SageMaker endpoints, as "
            "ml.c5.xlarge.",
        ),
        (
            Configuration(instance_type="ml.c5.xlarge", environment={f"P{n}": ("1",) for n in range(6)}),
            "have length less than or equal to 5",
        ),
    ],
)
def test_a_candidate_that_no_endpoint_can_have_is_rejected(
    spellcheck: WorkloadFolder, configuration: Configuration, problem: str
) -> None:
    message = message_of(UsageError, _plan, spellcheck.workload, configurations=[configuration])
    assert message.endswith(problem)


def test_a_workload_without_an_endpoint_has_no_job() -> None:
    assert message_of(UsageError, _plan, load_workload("query_intent").workload) == (
        "workloads/query_intent/workload.toml: hosting.kind: is 'ecs-service', so the workload has no endpoint and "
        "inf1.6xlarge no job. Allowed: 'sagemaker-endpoint'. Measure the running service with "
        "`python -m inference_recommender run query_intent --url URL`."
    )


def test_traffic_longer_than_the_longest_job_and_a_reserved_name_are_rejected(spellcheck: WorkloadFolder) -> None:
    stairs = StairTraffic(type="stairs", users_per_step=1, steps=10, duration_s=18_001)
    workload = spellcheck.workload.model_copy(update={"traffic": {SERVICE_DEFAULT: stairs}})
    assert message_of(UsageError, _plan, workload, SERVICE_DEFAULT) == (
        "workloads/spellcheck/workload.toml: traffic.service-default: this name stands for a default job's traffic. "
        "Choose another.\n"
        "workloads/spellcheck/workload.toml: traffic.service-default: lasts 18,001 s. Allowed: 18,000 s at most, the "
        "longest job."
    )


def test_account_settings_are_in_the_request(spellcheck: WorkloadFolder) -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/a"
    folder = with_settings(
        spellcheck,
        [
            "recommender.subnets=subnet-1,subnet-2",
            'recommender.security_groups=["sg-1"]',
            f"recommender.kms_key_arn={key}",
            "recommender.tags.team=search-1",
        ],
    )
    tested = replace(TESTED, model=PACKAGE)
    request = plan_job(folder.workload, "production", folder.traffic("production"), tested, "job-1").request
    config = request["InputConfig"]
    assert config["ModelPackageVersionArn"] == PACKAGE
    assert config["VpcConfig"] == {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1", "subnet-2"]}
    assert config["VolumeKmsKeyId"] == request["OutputConfig"]["KmsKeyId"] == key
    tags = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
    assert tags == {"workload": "spellcheck", "traffic": "production", "team": "search-1"}


RANGES = ["recommender.environment.THREADS=['1', '2', '4']", "recommender.environment.POOL=['0', '1']"]


def test_environment_parameters_are_ranges_of_an_advanced_job_and_ignored_by_a_default_job(
    spellcheck: WorkloadFolder,
) -> None:
    workload = with_settings(spellcheck, RANGES).workload
    config = _plan(workload).request["InputConfig"]
    (endpoint,) = config["EndpointConfigurations"]
    assert endpoint["EnvironmentParameterRanges"]["CategoricalParameterRanges"] == [
        {"Name": "THREADS", "Value": ["1", "2", "4"]},
        {"Name": "POOL", "Value": ["0", "1"]},
    ]
    assert config["ResourceLimit"] == {"MaxNumberOfTests": 6, "MaxParallelOfTests": 3}
    default = plan_default_job(workload, replace(TESTED, model=PACKAGE), "job-1")
    assert default.warnings == (
        "recommender.environment is ignored: a default job takes no ranges and tunes by itself.",
    )
    assert set(default.request["InputConfig"]) == {"ModelPackageVersionArn", "ContainerConfig"}
    assert default.request["InputConfig"]["ContainerConfig"]["SupportedInstanceTypes"] == ["ml.c5.xlarge"]


def test_more_than_ten_tests_are_several_jobs(spellcheck: WorkloadFolder) -> None:
    plan = _plan(spellcheck.workload, configurations=many(23))
    assert [request["JobName"] for request in plan.requests] == ["job-1-1", "job-1-2", "job-1-3"]
    assert [len(request["InputConfig"]["EndpointConfigurations"]) for request in plan.requests] == [10, 10, 3]
    assert plan.warnings == ("23 tests exceed the 10 of one job, so 3 jobs run one after another.",)


def test_splitting_into_jobs_loses_and_repeats_no_test() -> None:
    """One configuration has more tests than a job, one fits into what is left, one does not."""
    values = [{"A": "1234", "B": "123"}, {"A": "12"}, {"C": "12345"}, {"D": "123", "E": "12"}]
    given = [
        Configuration(instance_type="ml.c5.xlarge", environment={key: tuple(text) for key, text in one.items()})
        for one in values
    ]
    jobs = split_into_jobs(given)
    assert [sum(one.tests for one in job) for job in jobs] == [10, 9, 6]
    tests = [part for one in given for part in one.split()]
    assert [part for job in jobs for one in job for part in one.split()] == tests


def test_a_model_of_several_containers_cannot_be_registered(spellcheck: WorkloadFolder) -> None:
    with pytest.raises(Unavailable, match="Model m cannot be registered: a model package needs one container"):
        package_request(spellcheck.workload, {"ModelName": "m", "Containers": [{}, {}]}, "s3://b/k")


@pytest.mark.parametrize(
    ("name", "target", "settings", "facts"),
    [
        ("spellcheck", "cpu", (), {"FrameworkVersion": "2.9.0"}),
        ("spellcheck", "tensorrt", (), {"FrameworkVersion": "2.5.0"}),
        ("spellcheck", "cuda", (), {"FrameworkVersion": "2.7.1"}),
        ("question_answering", "inf1-data-parallel", (), {"FrameworkVersion": "1.13.1"}),
        ("text_classification", "cpu", ("hosting.image_uri=1.dkr.ecr/mine:1",), {}),
        (
            "spellcheck",
            "cpu",
            ("recommender.nearest_model_name=t",),
            {"FrameworkVersion": "2.9.0", "NearestModelName": "t"},
        ),
    ],
)
def test_a_job_and_a_package_name_the_images_own_pytorch_and_the_nearest_model(
    name: str, target: str, settings: tuple[str, ...], facts: dict[str, str]
) -> None:
    workload = with_settings(load_workload(name).hosted_on(target), settings).workload
    request = plan_default_job(workload, TESTED, "job-1").request
    package = package_request(workload, {"PrimaryContainer": {"Image": "i"}}, "s3://b/k")
    expected = {"Framework": "PYTORCH", **facts}
    (container,) = package["InferenceSpecification"]["Containers"]
    for sent in (request["InputConfig"]["ContainerConfig"], container):
        keys = sent.keys() & {"Framework", "FrameworkVersion", "NearestModelName"}
        assert {key: sent[key] for key in keys} == expected


def test_the_nearest_model_of_a_bert_is_its_architecture(spellcheck: WorkloadFolder) -> None:
    published = load_workload("text_classification").as_published("bert-large").workload
    config = plan_default_job(published, TESTED, "job-1").request["InputConfig"]["ContainerConfig"]
    assert config["NearestModelName"] == "bert-large-uncased"


def test_a_job_of_binary_requests_names_the_size_of_their_headers(spellcheck: WorkloadFolder) -> None:
    settings = ("objective.payload_format=binary", "objective.rows_per_invocation=4")
    workload = with_settings(spellcheck, settings).workload
    config = plan_default_job(workload, TESTED, "job-1").request["InputConfig"]["ContainerConfig"]
    size = header_size(["text"], workload.latency_objective)
    binary = f"application/vnd.sagemaker-triton.binary+json;json-header-size={size}"
    assert config["PayloadConfig"]["SupportedContentTypes"] == [binary]
