"""The requests of Inference Recommender jobs, built from a workload. Pure.

A default job measures the instance types with traffic that the service chooses, an advanced job with the workload's
traffic. An advanced job of more tests than the service allows becomes several. Each request is checked against
botocore's service model before it is sent.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aws_api import service_model
from aws_api.expiry import TAG
from inference_recommender.measure.system import SystemUnderTest
from workloads import LatencyObjective, PhasedTraffic, StairTraffic, UsageError, Workload
from workloads.instances import needs_host_ami

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

# ContainerConfig has no Triton among its frameworks. AWS's Triton example uses PYTORCH; the value selects no image,
# because the model has its own.
FRAMEWORK = {"Framework": "PYTORCH", "FrameworkVersion": "2.13.0"}

JSON = "application/json"
SERVICE_DEFAULT = "service-default"
"""The name of a default job's traffic; no profile of a workload may have it."""
DOCUMENTED = {
    "initial_users": range(1, 4),
    "spawn_rate_per_minute": range(0, 4),
    "duration_s": range(120, 3601),
}
"""The values of a phase that AWS documents. AWS's own samples exceed them."""
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

    def input_config(self) -> dict[str, Any]:
        key = "ModelPackageVersionArn" if self.model.startswith("arn:") else "ModelName"
        endpoints = {"Endpoints": [{"EndpointName": self.endpoint_name}]} if self.endpoint_name else {}
        return {key: self.model, **endpoints}


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
    undocumented: tuple[str, ...] = ()
    """Sentences about keys of workload.toml whose values are outside what AWS documents."""
    deployed: SystemUnderTest | None = None
    """An existing endpoint that the job tests."""
    old_drivers: tuple[str, ...] = ()
    """Instance types whose hosts start in a job with a driver that is too old for our images."""

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

    def check_drivers(self) -> None:
        """Raises `UsageError` if a job's containers could not start on SageMaker."""
        if self.old_drivers:
            raise UsageError(
                f"{', '.join(self.old_drivers)}: a job's hosts of these types start with NVIDIA driver 470, which no "
                "supported Triton image runs on, and a job cannot select another (InferenceAmiVersion). Deploy an "
                "endpoint and measure it: `python -m inference_recommender run WORKLOAD --endpoint NAME`."
            )


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
    chosen = _configurations_of(workload) if configurations is None else tuple(configurations)
    jobs = split_into_jobs(chosen)
    names = [job_name] if len(jobs) == 1 else [f"{job_name}-{number}" for number in range(1, len(jobs) + 1)]
    requests = tuple(
        {
            **_request(name, "Advanced", workload, tested, traffic_name, f"traffic {traffic_name}"),
            "InputConfig": {
                **_input(workload, tested, part),
                "JobDurationInSeconds": min(_longest_s(traffic) + ALLOWANCE_S, LONGEST_JOB_S),
                "TrafficPattern": traffic_pattern(traffic),
                "ResourceLimit": _resource_limit(part, workload.recommender.parallel_tests),
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
    _raise(problems)
    return JobPlan(
        requests=requests,
        traffic=traffic,
        warnings=tuple(_many_tests(jobs)),
        undocumented=undocumented(traffic_name, traffic),
        old_drivers=_old_drivers(chosen),
    )


def plan_default_job(
    workload: Workload, tested: TestedModel, job_name: str, deployed: SystemUnderTest | None = None
) -> JobPlan:
    """Plans a default job on the candidate instance types, and on `deployed`, the endpoint that `tested` names. Raises
    `UsageError` like `plan_job`.
    """
    configurations = tuple(Configuration(instance_type=name) for name in workload.instance_types)
    request = {
        **_request(job_name, "Default", workload, tested, "default", "default job"),
        "InputConfig": _input(workload, tested, configurations),
    }
    _raise(list(_problems(workload, [request], configurations)))
    return JobPlan(
        requests=(request,),
        traffic=None,
        warnings=tuple(_default_warnings(workload, tested)),
        deployed=deployed,
        old_drivers=_old_drivers(configurations),
    )


def split_into_jobs(configurations: Sequence[Configuration]) -> list[list[Configuration]]:
    """Returns the configurations of each job, in order. One with more tests than a job may have is split."""
    jobs: list[list[Configuration]] = [[]]
    for configuration in configurations:
        for part in [configuration] if configuration.tests <= MOST_TESTS else configuration.split():
            if sum(other.tests for other in jobs[-1]) + part.tests > MOST_TESTS:
                jobs.append([])
            jobs[-1].append(part)
    return jobs


def traffic_pattern(traffic: PhasedTraffic | StairTraffic) -> dict[str, Any]:
    """Returns the API's TrafficPattern."""
    match traffic:
        case PhasedTraffic():
            phases = [
                {
                    "InitialNumberOfUsers": phase.initial_users,
                    "SpawnRate": phase.spawn_rate_per_minute,
                    "DurationInSeconds": phase.duration_s,
                }
                for phase in traffic.phases
            ]
            return {"TrafficType": "PHASES", "Phases": phases}
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
    limit = traffic.stop.max_invocations_per_minute
    return {
        **({} if limit is None else {"MaxInvocations": limit}),
        "ModelLatencyThresholds": [
            {"Percentile": percentile, "ValueInMilliseconds": -int(-objective.model_latency_ms // 1)}
        ],
        "FlatInvocations": traffic.stop.flat_invocations,
    }


def undocumented(name: str, traffic: PhasedTraffic | StairTraffic) -> tuple[str, ...]:
    """Returns a sentence for each value of a phase that AWS does not document."""
    if not isinstance(traffic, PhasedTraffic):
        return ()
    return tuple(
        f"traffic.{name}.phases.{number}.{key} is {getattr(phase, key)}; the service documents {allowed.start} to "
        f"{allowed.stop - 1}."
        for number, phase in enumerate(traffic.phases)
        for key, allowed in DOCUMENTED.items()
        if getattr(phase, key) not in allowed
    )


def _configurations_of(workload: Workload) -> tuple[Configuration, ...]:
    """Returns every candidate instance type with the environment parameters that the workload varies."""
    environment = workload.recommender.environment
    return tuple(Configuration(instance_type=name, environment=environment) for name in workload.instance_types)


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
        **tested.input_config(),
        **({"VolumeKmsKeyId": account.kms_key_arn} if account.kms_key_arn else {}),
        **({"VpcConfig": vpc} if account.subnets or account.security_groups else {}),
        "ContainerConfig": {
            "Domain": DOMAIN,
            "Task": TASKS[workload.model.task],
            **FRAMEWORK,
            "PayloadConfig": {"SamplePayloadUrl": tested.payload_url, "SupportedContentTypes": [JSON]},
            "SupportedInstanceTypes": types,
        },
    }


def _problems(
    workload: Workload, requests: Sequence[Mapping[str, Any]], configurations: Sequence[Configuration]
) -> Iterator[str]:
    """Yields a sentence for each reason why the service would reject a job."""
    file = f"workloads/{workload.name}/workload.toml"
    known = service_model.enum("sagemaker", "ProductionVariantInstanceType")
    unknown = [one.instance_type for one in configurations if one.instance_type not in known]
    for name in unknown:
        yield f"{file}: instance_types: got '{name}'. Allowed: instance types of SageMaker endpoints, as ml.c5.xlarge."
    for key in workload.recommender.tags:
        if key in (RUN_TAG, TAG) or key.lower().startswith("aws:"):
            yield f"{file}: recommender.tags: got the key '{key}', which is reserved. Choose another."
    if SERVICE_DEFAULT in workload.traffic:
        yield f"{file}: traffic.{SERVICE_DEFAULT}: this name stands for a default job's traffic. Choose another."
    if not unknown:
        for request in requests:
            yield from service_model.problems("sagemaker", "CreateInferenceRecommendationsJob", request)


def _old_drivers(configurations: Sequence[Configuration]) -> tuple[str, ...]:
    types = dict.fromkeys(configuration.instance_type for configuration in configurations)
    return tuple(name for name in types if needs_host_ami(name))


def _resource_limit(part: Sequence[Configuration], parallel_tests: int) -> dict[str, int]:
    tests = sum(configuration.tests for configuration in part)
    return {"MaxNumberOfTests": tests, "MaxParallelOfTests": min(parallel_tests, tests)}


def _longest_s(traffic: PhasedTraffic | StairTraffic) -> int:
    """Returns the most seconds that the traffic can take. The API's reference calls a staircase's duration that of each
    step, other documents that of the whole staircase. The job's limit allows for both.
    """
    return traffic.duration_s * traffic.steps if isinstance(traffic, StairTraffic) else traffic.duration_s


def _raise(problems: Sequence[str]) -> None:
    if problems:
        raise UsageError("\n".join(problems))


def _many_tests(jobs: Sequence[Sequence[Configuration]]) -> Iterator[str]:
    if len(jobs) > 1:
        tests = sum(configuration.tests for job in jobs for configuration in job)
        yield f"{tests} tests exceed the {MOST_TESTS} of one job, so {len(jobs)} jobs run one after another."


def _default_warnings(workload: Workload, tested: TestedModel) -> Iterator[str]:
    if workload.recommender.environment:
        yield "recommender.environment is ignored: a default job takes no ranges and tunes by itself."
    if tested.endpoint_name:
        yield (
            f"{tested.endpoint_name} receives the whole test load. AWS advises against testing an endpoint in "
            "production."
        )
