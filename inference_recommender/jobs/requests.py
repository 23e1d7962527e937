"""The requests of Inference Recommender jobs, built from a workload. Pure: nothing is sent, no clock is read.

A default job measures the instance types by the service's own traffic; an advanced job by the workload's. An advanced
job of more tests than one may have becomes several.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inference_recommender.errors import RefusedRequest
from inference_recommender.jobs.configuration import MOST_TESTS, Configuration, dealt
from inference_recommender.jobs.service_limits import LONGEST_JOB_S, problems, traffic_problem
from inference_recommender.jobs.tested_model import AnySubject, PackageSubject, Subject, Surroundings
from inference_recommender.measurement import DeployedEndpoint
from inference_recommender.traffic import stopping_conditions, traffic_pattern, warnings
from workloads import PhasedTraffic, StairTraffic, Workload

__all__ = [
    "Configuration",
    "JobPlan",
    "PackageSubject",
    "Subject",
    "Surroundings",
    "configurations_of",
    "container",
    "plan_default_job",
    "plan_job",
]

SETUP_ALLOWANCE_S = 1800
"""JobDurationInSeconds bounds the whole job, the endpoints' start included; the traffic alone must fit in the rest."""
DEFAULT_JOB_S = 2700
"""A default job takes at most 45 minutes, as its documentation has it."""

DOMAIN = "NATURAL_LANGUAGE_PROCESSING"
TASKS = {
    "text2text-generation": "TEXT_GENERATION",
    "text-classification": "CLASSIFICATION",
    "text-pair-scoring": "REGRESSION",
    "question-answering": "OTHER",
}
"""A workload's task in the service's words: IMAGE_CLASSIFICATION, OBJECT_DETECTION, TEXT_GENERATION,
IMAGE_SEGMENTATION, FILL_MASK, CLASSIFICATION, REGRESSION and OTHER are all it has."""

# ContainerConfig has no Triton among its frameworks. PYTORCH is what AWS's own Triton example says; the value
# chooses no image, since the model brings its own.
FRAMEWORK = {"Framework": "PYTORCH", "FrameworkVersion": "2.13.0"}

JSON = "application/json"
SERVICES_OWN = "the service's own"
"""The name of a default job's traffic; no profile of a workload can be called so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan:
    """One run: the jobs it is made of, in order."""

    requests: tuple[dict[str, Any], ...]
    """Of CreateInferenceRecommendationsJob."""
    traffic: PhasedTraffic | StairTraffic | None
    """None: the service's own."""
    warnings: tuple[str, ...]
    deployed: DeployedEndpoint | None = None
    """The existing endpoint that the job tests, if any."""

    @property
    def request(self) -> dict[str, Any]:
        """Of the first job."""
        return self.requests[0]

    @property
    def payload_url(self) -> str:
        """Where the jobs will look for their payloads."""
        return str(self.request["InputConfig"]["ContainerConfig"]["PayloadConfig"]["SamplePayloadUrl"])

    @property
    def job_name(self) -> str:
        return str(self.request["JobName"])

    @property
    def expected_s(self) -> float:
        """How long a job is expected to send traffic, or to take in all where its traffic is not known."""
        return self.traffic.duration_s if self.traffic else DEFAULT_JOB_S


def configurations_of(workload: Workload) -> tuple[Configuration, ...]:
    """Every candidate instance type, with the environment parameters that the workload varies."""
    environment = workload.recommender.environment
    return tuple(Configuration(instance_type=name, environment=environment) for name in workload.instance_types)


def plan_job(
    workload: Workload,
    traffic_name: str,
    traffic: PhasedTraffic | StairTraffic,
    subject: AnySubject,
    job_name: str,
    surroundings: Surroundings | None = None,
    configurations: Sequence[Configuration] | None = None,
) -> JobPlan:
    """Advanced jobs over `configurations`, by default those of the workload. Raises `RefusedRequest`."""
    tested = configurations_of(workload) if configurations is None else tuple(configurations)
    around = _tagged(surroundings or Surroundings(), workload, traffic_name)
    jobs = dealt(tested)
    names = [job_name] if len(jobs) == 1 else [f"{job_name}-{number}" for number in range(1, len(jobs) + 1)]
    refused = [*problems(workload.name, subject, around, names, tested)]
    if subject.endpoint_name:
        refused.append("--endpoint: an existing endpoint is tested by a default job only: say --job default.")
    if too_long := traffic_problem(traffic_name, traffic.duration_s):
        refused.append(f"workloads/{workload.name}/workload.toml: {too_long}")
    _raise(refused)
    requests = tuple(
        {
            **_request(name, "Advanced", workload, subject, around, f"traffic {traffic_name}"),
            "InputConfig": {
                **_input(workload, subject, around, chosen),
                "JobDurationInSeconds": min(_at_most_s(traffic) + SETUP_ALLOWANCE_S, LONGEST_JOB_S),
                "TrafficPattern": traffic_pattern(traffic),
                "ResourceLimit": dict.fromkeys(
                    ("MaxNumberOfTests", "MaxParallelOfTests"), sum(c.tests for c in chosen)
                ),
                "EndpointConfigurations": [one.request() for one in chosen],
            },
            "StoppingConditions": stopping_conditions(traffic, workload.latency_objective),
        }
        for name, chosen in zip(names, jobs, strict=True)
    )
    told = (*warnings(traffic_name, traffic, workload.latency_objective), *_many_tests(jobs))
    return JobPlan(requests=requests, traffic=traffic, warnings=told)


def plan_default_job(
    workload: Workload,
    subject: AnySubject,
    job_name: str,
    surroundings: Surroundings | None = None,
    deployed: DeployedEndpoint | None = None,
) -> JobPlan:
    """A default job: the service's own traffic, on the candidate types and on the endpoint that the subject names, if
    any; `deployed` is what is known of that one. Raises `RefusedRequest`.
    """
    tested = tuple(Configuration(instance_type=name) for name in workload.instance_types)
    around = _tagged(surroundings or Surroundings(), workload, "default")
    _raise([*problems(workload.name, subject, around, [job_name], tested)])
    request = {
        **_request(job_name, "Default", workload, subject, around, "default job"),
        "InputConfig": _input(workload, subject, around, tested),
    }
    return JobPlan(
        requests=(request,), traffic=None, warnings=tuple(_default_warnings(workload, subject)), deployed=deployed
    )


def container(workload: Workload, payload_url: str, instance_types: Sequence[str]) -> dict[str, Any]:
    """ContainerConfig of the API."""
    return {
        "Domain": DOMAIN,
        "Task": TASKS[workload.model.task],
        **FRAMEWORK,
        "PayloadConfig": {"SamplePayloadUrl": payload_url, "SupportedContentTypes": [JSON]},
        "SupportedInstanceTypes": list(instance_types),
    }


def _request(
    name: str, kind: str, workload: Workload, subject: AnySubject, around: Surroundings, traffic: str
) -> dict[str, Any]:
    """What both kinds of job have in common, but for their InputConfig."""
    described = f"{workload.description}: {traffic}"[:128] if around.description is None else around.description
    return {
        "JobName": name,
        "JobType": kind,
        "RoleArn": subject.role_arn,
        "JobDescription": described,
        **around.output_config(),
        "Tags": [{"Key": key, "Value": value} for key, value in around.tags.items()],
    }


def _input(
    workload: Workload, subject: AnySubject, around: Surroundings, tested: Sequence[Configuration]
) -> Mapping[str, Any]:
    types = list(dict.fromkeys(one.instance_type for one in tested))
    return {
        **subject.input_config(),
        **around.input_config(),
        "ContainerConfig": container(workload, subject.payload_url, types),
    }


def _at_most_s(traffic: PhasedTraffic | StairTraffic) -> int:
    """The API's reference says of a staircase's duration that it is each step's, other documents that it is the whole
    one's. It is taken for the whole; a job must not be cut off by its limit if it is not.
    """
    return traffic.duration_s * traffic.steps if isinstance(traffic, StairTraffic) else traffic.duration_s


def _tagged(around: Surroundings, workload: Workload, traffic: str) -> Surroundings:
    """With the tags by which a job tells what it is of; a person's own may replace them."""
    return replace(around, tags={"workload": workload.name, "traffic": traffic, **around.tags})


def _raise(refused: Sequence[str]) -> None:
    if refused:
        raise RefusedRequest(refused)


def _many_tests(jobs: Sequence[Sequence[Configuration]]) -> Iterator[str]:
    if len(jobs) > 1:
        tests = sum(one.tests for job in jobs for one in job)
        yield f"{tests} tests are more than the {MOST_TESTS} of one job: they are {len(jobs)} jobs, one after another."


def _default_warnings(workload: Workload, subject: AnySubject) -> Iterator[str]:
    if workload.recommender.environment:
        yield "recommender.environment is left out: a default job tunes what it knows to tune, and takes no ranges."
    if subject.endpoint_name:
        yield (
            f"{subject.endpoint_name} gets the whole load of the test: AWS advises against testing an endpoint that "
            "serves anybody."
        )
