"""The requests of Inference Recommender jobs, built from a workload. Pure.

A default job measures the instance types with traffic that the service chooses, an advanced job with the workload's
traffic. An advanced job of more tests than the service allows becomes several. Each request is checked against
botocore's service model before it is sent.
"""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aws_api import service_model
from aws_api.expiry import TAG
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.payloads import content_type_of
from workloads import (
    EcsServiceHosting,
    LatencyObjective,
    PhasedTraffic,
    RandomWeights,
    StairTraffic,
    UsageError,
    Workload,
)
from workloads.images import driver_of, newest_on, starts
from workloads.own_images import pytorch_version

RUN_TAG = "run"
"""Key of the tag that holds a run's token, by which the run recognizes its own jobs."""
MOST_TESTS = 10
"""The most tests of one job: its endpoint configurations times their environment parameters."""
LONGEST_JOB_S = 18_000
"""Largest JobDurationInSeconds."""
ALLOWANCE_S = 7200
"""Part of JobDurationInSeconds for starting and deleting endpoints, added to the traffic. AWS's example allows 7200 s
for 240 s of traffic."""
DEFAULT_JOB_S = 2700
"""A default job takes at most 45 minutes."""
MOST_DESCRIPTION = 128

DOMAIN = "NATURAL_LANGUAGE_PROCESSING"
TASKS = {
    "text2text-generation": "TEXT_GENERATION",
    "text-classification": "CLASSIFICATION",
    "text-pair-scoring": "REGRESSION",
    "text-ranking": "REGRESSION",
    "token-classification": "CLASSIFICATION",
    "feature-extraction": "OTHER",
    "question-answering": "OTHER",
}
"""A workload's task → the service's."""

BERT = re.compile(r"(?<![a-z])bert-(base|large)-(un)?cased")

DEFAULT_TRAFFIC = "production"
"""The traffic of an advanced job."""
SERVICE_DEFAULT = "service-default"
"""The name of a default job's traffic; no profile of a workload may have it."""
JOB_PERCENTILE = "P95"
"""An advanced job sends it, whatever the objective: "For custom load tests, specify the value as P95" says the API's
reference. The objective's percentile is judged afterwards (`sizing.decision`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TestedModel:
    """A SageMaker model by name, or a model package by ARN."""

    model: str
    role_arn: str
    payload_url: str
    endpoint_name: str | None = None
    """An endpoint that a default job tests beside the instance types."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """An instance type, tested with every combination of the environment parameters' values."""

    instance_type: str
    environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def tests(self) -> int:
        return math.prod(len(values) for values in self.environment.values())

    def request(self) -> dict[str, Any]:
        """Returns the API's EndpointInputConfiguration."""
        ranges = [{"Name": name, "Value": list(values)} for name, values in self.environment.items()]
        chosen = {"EnvironmentParameterRanges": {"CategoricalParameterRanges": ranges}} if ranges else {}
        return {"InstanceType": self.instance_type, **chosen}

    def split(self) -> "Iterator[Configuration]":
        """Yields one configuration for each combination, in the order of the values."""
        for values in itertools.product(*self.environment.values()):
            chosen = {name: (value,) for name, value in zip(self.environment, values, strict=True)}
            yield Configuration(instance_type=self.instance_type, environment=chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan:
    """The jobs of one run, in order."""

    requests: tuple[dict[str, Any], ...]
    """Requests of CreateInferenceRecommendationsJob."""
    traffic: PhasedTraffic | StairTraffic | None
    """None if the service chooses the traffic."""
    warnings: tuple[str, ...]
    existing_endpoint: SystemUnderTest | None = None

    @property
    def request(self) -> dict[str, Any]:
        """The first job's request."""
        return self.requests[0]

    @property
    def payload_url(self) -> str:
        return str(self.request["InputConfig"]["ContainerConfig"]["PayloadConfig"]["SamplePayloadUrl"])

    @property
    def job_name(self) -> str:
        return str(self.request["JobName"])

    @property
    def expected_s(self) -> float:
        """Expected seconds of a job's traffic, or of the whole job if the service chooses the traffic."""
        return self.traffic.duration_s if self.traffic else DEFAULT_JOB_S

    def check_drivers(self, workload: Workload) -> list[str]:
        """Returns a warning if no source says whether a host starts the image.

        Raises `UsageError` for a host that is known not to. A model or endpoint of the user's own has its own image.
        """
        settings = workload.recommender
        if settings.model or settings.ignore_driver or "Endpoints" in self.request["InputConfig"]:
            return []
        parts = (request["InputConfig"]["ContainerConfig"]["SupportedInstanceTypes"] for request in self.requests)
        types = list(dict.fromkeys(itertools.chain(*parts)))
        if failing := workload.failing_hosts(types):
            name = failing[0]
            raise UsageError(
                f"hosting.triton_version: a job's hosts of {', '.join(failing)} start with NVIDIA driver "
                f"{driver_of(name)}, on which Triton {workload.triton_on(name)} does not start. A job cannot choose "
                f"another driver. Set hosting.triton_version to {newest_on(name)} and build again, or measure the "
                "stack's endpoint without --job. --set recommender.ignore_driver=true sends the job anyway."
            )
        unknown = [name for name in types if starts(workload.triton_on(name), name) is None]
        if not unknown:
            return []
        version = workload.triton_on(unknown[0])
        return [
            f"{', '.join(unknown)}: no source says whether {f'Triton {version}' if version else 'hosting.image_uri'} "
            "starts with the GPU driver of a job's hosts. Check it with `python -m stacks preflight --probe "
            f"{unknown[0]}`."
        ]


def plan_job(
    workload: Workload,
    traffic_name: str,
    traffic: PhasedTraffic | StairTraffic,
    tested: TestedModel,
    job_name: str,
    configurations: Sequence[Configuration] | None = None,
) -> JobPlan:
    """Plans advanced jobs over `configurations`, by default the workload's. Raises `UsageError` with a line for each
    reason why the service would reject them.
    """
    environment = workload.recommender.environment
    default = (Configuration(instance_type=name, environment=environment) for name in workload.instance_types)
    chosen = tuple(default if configurations is None else configurations)
    jobs, tests = split_into_jobs(chosen), _tests(chosen)
    # The API's reference calls a staircase's duration that of each step, other documents that of the whole staircase.
    longest_s = traffic.duration_s * (traffic.steps if isinstance(traffic, StairTraffic) else 1)
    names = [job_name] if len(jobs) == 1 else [f"{job_name}-{number}" for number in range(1, len(jobs) + 1)]
    requests = tuple(
        {
            **_request(name, "Advanced", workload, tested, traffic_name, f"traffic {traffic_name}"),
            "InputConfig": {
                **_input(workload, tested, part),
                "JobDurationInSeconds": min(longest_s + ALLOWANCE_S, LONGEST_JOB_S),
                "TrafficPattern": traffic_pattern(traffic),
                "ResourceLimit": {
                    "MaxNumberOfTests": _tests(part),
                    "MaxParallelOfTests": min(workload.recommender.parallel_tests, _tests(part)),
                },
                "EndpointConfigurations": [configuration.request() for configuration in part],
            },
            "StoppingConditions": stopping_conditions(traffic, workload.latency_objective, JOB_PERCENTILE),
        }
        for name, part in zip(names, jobs, strict=True)
    )
    problems = list(_problems(workload, requests, chosen))
    if traffic.duration_s > LONGEST_JOB_S:
        problems.append(
            f"workloads/{workload.name}/workload.toml: traffic.{traffic_name}: lasts {traffic.duration_s:,} s. "
            f"Allowed: {LONGEST_JOB_S:,} s at most, the longest job."
        )
    if problems:
        raise UsageError("\n".join(problems))
    return JobPlan(
        requests=requests,
        traffic=traffic,
        warnings=(f"{tests} tests exceed the {MOST_TESTS} of one job, so {len(jobs)} jobs run one after another.",)
        if len(jobs) > 1
        else (),
    )


def plan_default_job(
    workload: Workload, tested: TestedModel, job_name: str, existing_endpoint: SystemUnderTest | None = None
) -> JobPlan:
    """Plans a default job on the instance types and on the endpoint that `tested` names. Raises `UsageError`."""
    configurations = tuple(Configuration(instance_type=name) for name in workload.instance_types)
    request = {
        **_request(job_name, "Default", workload, tested, "default", "default job"),
        "InputConfig": _input(workload, tested, configurations),
    }
    if problems := list(_problems(workload, [request], configurations)):
        raise UsageError("\n".join(problems))
    return JobPlan(
        requests=(request,),
        traffic=None,
        warnings=tuple(_default_warnings(workload, tested)),
        existing_endpoint=existing_endpoint,
    )


def split_into_jobs(configurations: Sequence[Configuration]) -> list[list[Configuration]]:
    """Returns the configurations of each job, in order. One with more tests than a job may have is split."""
    jobs: list[list[Configuration]] = [[]]
    for configuration in configurations:
        for part in [configuration] if configuration.tests <= MOST_TESTS else configuration.split():
            if _tests(jobs[-1]) + part.tests > MOST_TESTS:
                jobs.append([])
            jobs[-1].append(part)
    return jobs


def traffic_pattern(traffic: PhasedTraffic | StairTraffic) -> dict[str, Any]:
    """Returns the API's TrafficPattern."""
    match traffic:
        case PhasedTraffic():
            names = ("InitialNumberOfUsers", "SpawnRate", "DurationInSeconds")
            values = [(phase.initial_users, phase.spawn_rate_per_minute, phase.duration_s) for phase in traffic.phases]
            return {"TrafficType": "PHASES", "Phases": [dict(zip(names, each, strict=True)) for each in values]}
        case StairTraffic():
            stairs = {
                "DurationInSeconds": traffic.duration_s,
                "NumberOfSteps": traffic.steps,
                "UsersPerStep": traffic.users_per_step,
            }
            return {"TrafficType": "STAIRS", "Stairs": stairs}


def stopping_conditions(
    traffic: PhasedTraffic | StairTraffic, objective: LatencyObjective, percentile: str
) -> dict[str, Any]:
    """Returns the API's StoppingConditions with the objective's limit at `percentile`, rounded up to milliseconds."""
    limit, threshold_ms = traffic.stop.max_invocations_per_minute, math.ceil(objective.model_latency_ms)
    return {
        **({} if limit is None else {"MaxInvocations": limit}),
        "ModelLatencyThresholds": [{"Percentile": percentile, "ValueInMilliseconds": threshold_ms}],
        "FlatInvocations": traffic.stop.flat_invocations,
    }


def _request(
    name: str, kind: str, workload: Workload, tested: TestedModel, traffic: str, description: str
) -> dict[str, Any]:
    """Returns what both kinds of job have in common, except for InputConfig. The workload's tags replace ours."""
    account = workload.recommender
    tags = {"workload": workload.name, "traffic": traffic, **account.tags}
    return {
        "JobName": name,
        "JobType": kind,
        "RoleArn": tested.role_arn,
        "JobDescription": f"{workload.description}: {description}"[:MOST_DESCRIPTION],
        **({"OutputConfig": {"KmsKeyId": account.kms_key_arn}} if account.kms_key_arn else {}),
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }


def _input(workload: Workload, tested: TestedModel, configurations: Sequence[Configuration]) -> Mapping[str, Any]:
    account = workload.recommender
    vpc = {"SecurityGroupIds": list(account.security_groups), "Subnets": list(account.subnets)}
    types = list(dict.fromkeys(configuration.instance_type for configuration in configurations))
    return {
        "ModelPackageVersionArn" if tested.model.startswith("arn:") else "ModelName": tested.model,
        **({"Endpoints": [{"EndpointName": tested.endpoint_name}]} if tested.endpoint_name else {}),
        **({"VolumeKmsKeyId": account.kms_key_arn} if account.kms_key_arn else {}),
        **({"VpcConfig": vpc} if account.subnets or account.security_groups else {}),
        "ContainerConfig": {
            "Domain": DOMAIN,
            "Task": TASKS[workload.model.task],
            **container_facts(workload),
            "PayloadConfig": {
                "SamplePayloadUrl": tested.payload_url,
                "SupportedContentTypes": [content_type_of(workload)],
            },
            "SupportedInstanceTypes": types,
        },
    }


def container_facts(workload: Workload) -> dict[str, str]:
    """Returns framework and nearest model, which a job and a model package name alike.

    The API has no Triton among its frameworks, and AWS's TensorRT example uses PYTORCH. The values select no image,
    because the model has its own.
    """
    checkpoint = workload.model.checkpoint
    name = checkpoint.architecture if isinstance(checkpoint, RandomWeights) else checkpoint
    bert = BERT.search(name)
    facts = {
        "Framework": "PYTORCH",
        "FrameworkVersion": pytorch_version(workload),
        "NearestModelName": workload.recommender.nearest_model_name or (bert and bert[0]),
    }
    return {key: value for key, value in facts.items() if value}


def _problems(
    workload: Workload, requests: Sequence[Mapping[str, Any]], configurations: Sequence[Configuration]
) -> Iterator[str]:
    """Yields a sentence for each reason why the service would reject a job."""
    file = f"workloads/{workload.name}/workload.toml"
    known = service_model.enum("sagemaker", "ProductionVariantInstanceType")
    unknown = [one.instance_type for one in configurations if one.instance_type not in known]
    if unknown and isinstance(workload.hosting, EcsServiceHosting):
        yield (
            f"{file}: hosting.kind: is '{workload.hosting.kind}', so the workload has no endpoint and {unknown[0]} no "
            "job. Allowed: 'sagemaker-endpoint'. Measure the running service with "
            f"`python -m inference_recommender run {workload.name} --url URL`."
        )
    else:
        for name in unknown:
            allowed = "instance types of SageMaker endpoints, as ml.c5.xlarge"
            yield f"{file}: instance_types: got '{name}'. Allowed: {allowed}."
    for key in workload.recommender.tags:
        if key in (RUN_TAG, TAG) or key.lower().startswith("aws:"):
            yield f"{file}: recommender.tags: got the key '{key}', which is reserved. Choose another."
    if SERVICE_DEFAULT in workload.traffic:
        yield f"{file}: traffic.{SERVICE_DEFAULT}: this name stands for a default job's traffic. Choose another."
    if not unknown:
        for request in requests:
            yield from service_model.problems("sagemaker", "CreateInferenceRecommendationsJob", request)


def _tests(configurations: Sequence[Configuration]) -> int:
    return sum(configuration.tests for configuration in configurations)


def _default_warnings(workload: Workload, tested: TestedModel) -> Iterator[str]:
    if workload.recommender.environment:
        yield "recommender.environment is ignored: a default job takes no ranges and tunes by itself."
    if tested.endpoint_name:
        yield (
            f"{tested.endpoint_name} receives the whole test load. AWS advises against testing an endpoint in "
            "production."
        )
