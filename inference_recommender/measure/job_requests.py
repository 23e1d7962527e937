"""The requests of Inference Recommender jobs and of the model registry, built from a workload. Pure: nothing is sent,
no clock is read.

A default job measures the instance types with traffic that the service chooses; an advanced job with the workload's. An
advanced job of more tests than one may have becomes several.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inference_recommender.measure.tested_model import (
    LONGEST_JOB_S,
    MOST_DESCRIPTION,
    MOST_TESTS,
    Configuration,
    JobEnvironment,
    Tested,
    problems,
    split_into_jobs,
    traffic_problem,
)
from inference_recommender.measurement import DeployedEndpoint
from workloads import LatencyObjective, PhasedTraffic, StairTraffic, Unavailable, UsageError, Workload
from workloads.instances import needs_host_ami

ALLOWANCE_S = 7200
"""JobDurationInSeconds bounds the whole job, the start and the end of every endpoint included; the traffic must fit in
the rest. AWS's example allows 7200 s for 240 s of traffic."""
PARALLEL_TESTS = 3
"""Default of MaxParallelOfTests, as in AWS's example: each test needs an instance of the account's endpoint quota."""
DEFAULT_JOB_S = 2700
"""A default job takes at most 45 minutes, as its documentation has it."""

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
"""A workload's task in the service's words: IMAGE_CLASSIFICATION, OBJECT_DETECTION, TEXT_GENERATION,
IMAGE_SEGMENTATION, FILL_MASK, CLASSIFICATION, REGRESSION and OTHER are all it has."""

# ContainerConfig has no Triton among its frameworks. PYTORCH is what AWS's own Triton example says; the value
# chooses no image, since the model brings its own.
FRAMEWORK = {"Framework": "PYTORCH", "FrameworkVersion": "2.13.0"}

JSON = "application/json"
SERVICE_DEFAULT = "service-default"
"""The name of a default job's traffic; no profile of a workload may have it."""

DOCUMENTED_USERS = range(1, 4)
DOCUMENTED_SPAWN_RATE = range(0, 4)
DOCUMENTED_PHASE_S = range(120, 3601)
JOB_PERCENTILE = "P95"
"""An advanced job sends it, whatever the objective: "For custom load tests, specify the value as P95" says the API's
reference. The objective's own percentile is judged afterwards (`sizing.decision`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan:
    """The jobs of one run, in order."""

    requests: tuple[dict[str, Any], ...]
    """Requests of CreateInferenceRecommendationsJob."""
    traffic: PhasedTraffic | StairTraffic | None
    """None where the service chooses the traffic."""
    warnings: tuple[str, ...]
    """Sentences about what the run leaves out or where it may surprise."""
    undocumented: tuple[str, ...] = ()
    """Keys of workload.toml whose values are outside what AWS documents, a sentence each."""
    deployed: DeployedEndpoint | None = None
    """The existing endpoint that the job tests, if any."""
    old_drivers: tuple[str, ...] = ()
    """The instance types whose hosts start in a job with a driver that is too old for the images we know."""

    @property
    def request(self) -> dict[str, Any]:
        """The first job's request."""
        return self.requests[0]

    @property
    def payload_url(self) -> str:
        """Where the jobs look for their payloads."""
        return str(self.request["InputConfig"]["ContainerConfig"]["PayloadConfig"]["SamplePayloadUrl"])

    @property
    def job_name(self) -> str:
        return str(self.request["JobName"])

    def warnings_for(self, *, local: bool) -> tuple[str, ...]:
        """Returns the warnings to show. An account on this machine has none of AWS's limits on traffic."""
        if local or not self.undocumented:
            return self.warnings
        return (" ".join(self.undocumented), *self.warnings)

    def refuse_old_drivers(self, instead: str, *, local: bool) -> None:
        """Raises `UsageError` where the job's containers would not start; `instead` is the command that measures.

        An account on this machine has the driver that the machine has.
        """
        if self.old_drivers and not local:
            raise UsageError(
                f"{', '.join(self.old_drivers)}: hosts of these types start with NVIDIA driver 470, on which no Triton "
                "image we know starts, and a job of Inference Recommender cannot choose another (InferenceAmiVersion). "
                f"Measure on an endpoint that does: `{instead}`."
            )

    @property
    def expected_s(self) -> float:
        """Expected seconds of a job's traffic, or of the whole job where its traffic is not known."""
        return self.traffic.duration_s if self.traffic else DEFAULT_JOB_S


def configurations_of(workload: Workload) -> tuple[Configuration, ...]:
    """Returns every candidate instance type with the environment parameters that the workload varies."""
    environment = workload.recommender.environment
    return tuple(Configuration(instance_type=name, environment=environment) for name in workload.instance_types)


def plan_job(
    workload: Workload,
    traffic_name: str,
    traffic: PhasedTraffic | StairTraffic,
    tested: Tested,
    job_name: str,
    environment: JobEnvironment | None = None,
    configurations: Sequence[Configuration] | None = None,
    parallel_tests: int | None = None,
) -> JobPlan:
    """Plans advanced jobs over `configurations`, by default the workload's, of which at most `parallel_tests` run at
    once. Raises `UsageError` with a line for each reason why the service would refuse them.
    """
    chosen = configurations_of(workload) if configurations is None else tuple(configurations)
    tagged = _tagged(environment or JobEnvironment(), workload, traffic_name)
    jobs = split_into_jobs(chosen)
    names = [job_name] if len(jobs) == 1 else [f"{job_name}-{number}" for number in range(1, len(jobs) + 1)]
    refused = [*problems(workload.name, tested, tagged, names, chosen), *_reserved_name(workload)]
    if tested.endpoint_name:
        refused.append("--endpoint: an existing endpoint is tested by a default job only: say --job default.")
    if too_long := traffic_problem(traffic_name, traffic.duration_s):
        refused.append(f"workloads/{workload.name}/workload.toml: {too_long}")
    if parallel_tests is not None and not 1 <= parallel_tests <= MOST_TESTS:
        refused.append(f"--parallel-tests: got {parallel_tests}. Allowed: 1 to {MOST_TESTS}.")
    _raise(refused)
    requests = tuple(
        {
            **_request(name, "Advanced", workload, tested, tagged, f"traffic {traffic_name}"),
            "InputConfig": {
                **_input(workload, tested, tagged, part),
                "JobDurationInSeconds": min(_at_most_s(traffic) + ALLOWANCE_S, LONGEST_JOB_S),
                "TrafficPattern": traffic_pattern(traffic),
                "ResourceLimit": _resource_limit(part, parallel_tests or PARALLEL_TESTS),
                "EndpointConfigurations": [configuration.request() for configuration in part],
            },
            "StoppingConditions": stopping_conditions(traffic, workload.latency_objective, JOB_PERCENTILE),
        }
        for name, part in zip(names, jobs, strict=True)
    )
    return JobPlan(
        requests=requests,
        traffic=traffic,
        warnings=tuple(_many_tests(jobs)),
        undocumented=undocumented(traffic_name, traffic),
        old_drivers=_old_drivers(chosen),
    )


def plan_default_job(
    workload: Workload,
    tested: Tested,
    job_name: str,
    environment: JobEnvironment | None = None,
    deployed: DeployedEndpoint | None = None,
) -> JobPlan:
    """Plans a default job on the candidate instance types, and on the endpoint that `tested` names, if any; `deployed`
    is what is known of that endpoint. Raises `UsageError` like `plan_job`.
    """
    configurations = tuple(Configuration(instance_type=name) for name in workload.instance_types)
    tagged = _tagged(environment or JobEnvironment(), workload, "default")
    _raise([*problems(workload.name, tested, tagged, [job_name], configurations), *_reserved_name(workload)])
    request = {
        **_request(job_name, "Default", workload, tested, tagged, "default job"),
        "InputConfig": _input(workload, tested, tagged, configurations),
    }
    return JobPlan(
        requests=(request,),
        traffic=None,
        warnings=tuple(_default_warnings(workload, tested)),
        deployed=deployed,
        old_drivers=_old_drivers(configurations),
    )


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
    """Returns the API's StoppingConditions with the objective's limit at `percentile`. The threshold takes whole
    milliseconds: the limit is rounded up.
    """
    limit = traffic.stop.max_invocations_per_minute
    return {
        **({} if limit is None else {"MaxInvocations": limit}),
        "ModelLatencyThresholds": [
            {"Percentile": percentile, "ValueInMilliseconds": -int(-objective.model_latency_ms // 1)}
        ],
        "FlatInvocations": traffic.stop.flat_invocations,
    }


def undocumented(name: str, traffic: PhasedTraffic | StairTraffic) -> tuple[str, ...]:
    """Returns a sentence for each documented limit that an advanced job exceeds. AWS's own samples exceed them too."""
    return tuple(_undocumented_phases(name, traffic)) if isinstance(traffic, PhasedTraffic) else ()


def container(workload: Workload, payload_url: str, instance_types: Sequence[str]) -> dict[str, Any]:
    """Returns the API's ContainerConfig."""
    return {
        "Domain": DOMAIN,
        "Task": TASKS[workload.model.task],
        **FRAMEWORK,
        "PayloadConfig": {"SamplePayloadUrl": payload_url, "SupportedContentTypes": [JSON]},
        "SupportedInstanceTypes": list(instance_types),
    }


def group_request(workload: Workload) -> dict[str, Any]:
    """Returns the request of CreateModelPackageGroup for the workload's group in the model registry."""
    return {
        "ModelPackageGroupName": _group_name(workload.name),
        "ModelPackageGroupDescription": workload.description,
        "Tags": [{"Key": "workload", "Value": workload.name}],
    }


def package_request(workload: Workload, model: Mapping[str, Any], payload_url: str, description: str) -> dict[str, Any]:
    """Returns the request of CreateModelPackage for a version that awaits approval. `model` is a response of
    DescribeModel. Raises `Unavailable` where the model is not one container with an image.
    """
    return {
        "ModelPackageGroupName": _group_name(workload.name),
        "ModelPackageDescription": description,
        "ModelApprovalStatus": "PendingManualApproval",
        "Domain": DOMAIN,
        "Task": TASKS[workload.model.task],
        "SamplePayloadUrl": payload_url,
        "InferenceSpecification": {
            "Containers": [{**_package_container(model), **FRAMEWORK}],
            "SupportedContentTypes": [JSON],
            "SupportedResponseMIMETypes": [JSON],
            "SupportedRealtimeInferenceInstanceTypes": list(workload.instance_types),
        },
    }


def _request(
    name: str, kind: str, workload: Workload, tested: Tested, environment: JobEnvironment, traffic: str
) -> dict[str, Any]:
    """Returns what both kinds of job have in common, but for their InputConfig."""
    described = environment.description
    if described is None:
        described = f"{workload.description}: {traffic}"[:MOST_DESCRIPTION]
    return {
        "JobName": name,
        "JobType": kind,
        "RoleArn": tested.role_arn,
        "JobDescription": described,
        **environment.output_config(),
        "Tags": [{"Key": key, "Value": value} for key, value in environment.tags.items()],
    }


def _input(
    workload: Workload, tested: Tested, environment: JobEnvironment, configurations: Sequence[Configuration]
) -> Mapping[str, Any]:
    types = list(dict.fromkeys(configuration.instance_type for configuration in configurations))
    return {
        **tested.input_config(),
        **environment.input_config(),
        "ContainerConfig": container(workload, tested.payload_url, types),
    }


def _old_drivers(configurations: Sequence[Configuration]) -> tuple[str, ...]:
    types = dict.fromkeys(configuration.instance_type for configuration in configurations)
    return tuple(name for name in types if needs_host_ami(name))


def _resource_limit(part: Sequence[Configuration], parallel_tests: int) -> dict[str, int]:
    tests = sum(configuration.tests for configuration in part)
    return {"MaxNumberOfTests": tests, "MaxParallelOfTests": min(parallel_tests, tests)}


def _at_most_s(traffic: PhasedTraffic | StairTraffic) -> int:
    """Returns the longest that the traffic can take, in seconds. The API's reference says of a staircase's duration
    that it is each step's, other documents that it is the whole staircase's. Elsewhere it is taken for the whole; here
    a job must not be cut off by its limit if it is not.
    """
    return traffic.duration_s * traffic.steps if isinstance(traffic, StairTraffic) else traffic.duration_s


def _tagged(environment: JobEnvironment, workload: Workload, traffic: str) -> JobEnvironment:
    """Adds the tags `workload` and `traffic`; the user's own may replace them."""
    return replace(environment, tags={"workload": workload.name, "traffic": traffic, **environment.tags})


def _raise(refused: Sequence[str]) -> None:
    if refused:
        raise UsageError("\n".join(refused))


def _reserved_name(workload: Workload) -> Iterator[str]:
    if SERVICE_DEFAULT in workload.traffic:
        yield (
            f"workloads/{workload.name}/workload.toml: traffic.{SERVICE_DEFAULT}: is what the traffic of a default job "
            "is called. Choose another name."
        )


def _many_tests(jobs: Sequence[Sequence[Configuration]]) -> Iterator[str]:
    if len(jobs) > 1:
        tests = sum(configuration.tests for job in jobs for configuration in job)
        yield f"{tests} tests are more than the {MOST_TESTS} of one job: they are {len(jobs)} jobs, one after another."


def _default_warnings(workload: Workload, tested: Tested) -> Iterator[str]:
    if workload.recommender.environment:
        yield "recommender.environment is left out: a default job tunes what it knows to tune, and takes no ranges."
    if tested.endpoint_name:
        yield (
            f"{tested.endpoint_name} gets the whole load of the test: AWS advises against testing an endpoint that "
            "serves anybody."
        )


def _group_name(workload: str) -> str:
    """Returns the workload's name without underscores, which the registry does not allow."""
    return workload.replace("_", "-")


def _package_container(model: Mapping[str, Any]) -> dict[str, Any]:
    containers = [model["PrimaryContainer"]] if model.get("PrimaryContainer") else model.get("Containers", [])
    if len(containers) != 1 or "Image" not in containers[0]:
        raise Unavailable(
            f"Model {model['ModelName']} cannot be registered: it is not one container with an image of its own, which "
            "is what a version in the registry is made from. Name another with --model-name."
        )
    copied = ("Image", "ModelDataUrl", "ModelDataSource", "Environment")
    return {name: containers[0][name] for name in copied if containers[0].get(name)}


def _undocumented_phases(name: str, traffic: PhasedTraffic) -> Iterator[str]:
    for number, phase in enumerate(traffic.phases):
        for key, value, documented in (
            ("initial_users", phase.initial_users, DOCUMENTED_USERS),
            ("spawn_rate_per_minute", phase.spawn_rate_per_minute, DOCUMENTED_SPAWN_RATE),
            ("duration_s", phase.duration_s, DOCUMENTED_PHASE_S),
        ):
            if value not in documented:
                yield (
                    f"traffic.{name}.phases.{number}.{key} is {value}; "
                    f"the service documents {documented.start} to {documented.stop - 1}."
                )
