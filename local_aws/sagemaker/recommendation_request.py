"""A CreateInferenceRecommendationsJob request → the tests it asks for. Pure.

The shapes were checked before (`service_model`); here are the service's rules across members, in its words where
they are known. One test is one endpoint configuration with one combination of environment parameters, or an endpoint
that exists. MaxParallelOfTests is taken and not followed: on one machine tests beside each other would measure each
other.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moto.sagemaker.exceptions import ValidationError

from local_aws import machine

DEFAULT_DURATION_S = {"Advanced": 7200, "Default": 2700}
MAX_TESTS = 10

# A Default job has no traffic of its own in the API. This is what it runs here; a shorter job has shorter steps.
DEFAULT_TRAFFIC_S = 45
DEFAULT_STEPS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadTest:
    """One test of a job."""

    instance_type: str
    inference_specification: str | None
    environment: Mapping[str, str]

    def model_configuration(self) -> dict[str, Any]:
        """As a result shows it."""
        shown: dict[str, Any] = {}
        if self.inference_specification:
            shown["InferenceSpecificationName"] = self.inference_specification
        if self.environment:
            shown["EnvironmentParameters"] = [
                {"Key": key, "ValueType": "String", "Value": value} for key, value in self.environment.items()
            ]
        return shown


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointTest:
    """The test of an endpoint that exists."""

    endpoint_name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan:
    payload_url: str
    content_type: str
    traffic_pattern: Mapping[str, Any]
    stopping_conditions: Mapping[str, Any]
    duration_s: int
    tests: tuple[LoadTest | EndpointTest, ...]


def check_subject(request: Mapping[str, Any]) -> None:
    """That the request names one model, and an endpoint only where the service takes one. Raises `ValidationError`."""
    configuration = request["InputConfig"]
    named = [key for key in ("ModelName", "ModelPackageVersionArn") if configuration.get(key)]
    if not named:
        raise ValidationError("Exactly one of ModelName and ModelPackageVersionArn is required, but none was given.")
    if len(named) == 2:
        raise ValidationError("Exactly one of ModelName and ModelPackageVersionArn is required, but both were given.")
    if configuration.get("Endpoints") and request["JobType"] != "Default":
        raise ValidationError("Endpoints can be given for a Default job only.")


def plan(request: Mapping[str, Any], package: Mapping[str, Any]) -> JobPlan:
    """`package` holds what the model's package says (SamplePayloadUrl, InferenceSpecification), nothing for a model of
    a name; ContainerConfig goes before it. Raises moto's `ValidationError` in one sentence.
    """
    configuration = request["InputConfig"]
    container, specification = configuration.get("ContainerConfig") or {}, package.get("InferenceSpecification") or {}
    payload = container.get("PayloadConfig") or {}
    payload_url = payload.get("SamplePayloadUrl") or package.get("SamplePayloadUrl")
    if not payload_url:
        raise ValidationError("ContainerConfig.PayloadConfig.SamplePayloadUrl is required to send traffic.")
    duration = configuration.get("JobDurationInSeconds") or DEFAULT_DURATION_S[request["JobType"]]
    content_types = payload.get("SupportedContentTypes") or specification.get("SupportedContentTypes") or ()
    return JobPlan(
        payload_url=payload_url,
        content_type=next(iter(content_types), "application/json"),
        traffic_pattern=_traffic(request, configuration, duration),
        stopping_conditions=_stopping(request.get("StoppingConditions") or {}),
        duration_s=duration,
        tests=_tests(
            request,
            configuration,
            container.get("SupportedInstanceTypes") or specification.get("SupportedRealtimeInferenceInstanceTypes"),
        ),
    )


def _traffic(request: Mapping[str, Any], configuration: Mapping[str, Any], duration_s: int) -> Mapping[str, Any]:
    pattern: Mapping[str, Any] | None = configuration.get("TrafficPattern")
    if request["JobType"] == "Default":
        duration = min(DEFAULT_TRAFFIC_S, duration_s)
        stairs = {"DurationInSeconds": duration, "NumberOfSteps": DEFAULT_STEPS, "UsersPerStep": 1}
        return {"TrafficType": "STAIRS", "Stairs": stairs}
    if not pattern:
        raise ValidationError("TrafficPattern is required for an Advanced job.")
    kind = pattern.get("TrafficType", "PHASES")
    wanted, other = ("Stairs", "Phases") if kind == "STAIRS" else ("Phases", "Stairs")
    if not pattern.get(wanted) or pattern.get(other):
        raise ValidationError(f"TrafficPattern of type {kind} needs {wanted} and nothing else.")
    total = _traffic_duration(pattern)
    if total > duration_s:
        raise ValidationError(
            f"The traffic takes {total} seconds, more than JobDurationInSeconds {duration_s}: shorten it or raise that."
        )
    return {**pattern, "TrafficType": kind}


def _traffic_duration(pattern: Mapping[str, Any]) -> int:
    if stairs := pattern.get("Stairs"):
        return int(stairs.get("DurationInSeconds", 0))
    return sum(int(phase.get("DurationInSeconds", 0)) for phase in pattern["Phases"])


def _stopping(conditions: Mapping[str, Any]) -> Mapping[str, Any]:
    limit = conditions.get("MaxInvocations")
    if limit is not None and not 1 <= limit <= 30_000:
        raise ValidationError(f"StoppingConditions.MaxInvocations is {limit}; it must be between 1 and 30000.")
    return {key: value for key, value in conditions.items() if value is not None}


def _tests(
    request: Mapping[str, Any], configuration: Mapping[str, Any], supported: Sequence[str] | None
) -> tuple[LoadTest | EndpointTest, ...]:
    existing = [EndpointTest(endpoint_name=one["EndpointName"]) for one in configuration.get("Endpoints") or []]
    configurations = configuration.get("EndpointConfigurations") or []
    if not configurations and request["JobType"] == "Default":
        configurations = [{"InstanceType": name} for name in supported or []]
    if not configurations and not existing:
        raise ValidationError("EndpointConfigurations is required: name at least one InstanceType to test.")
    limit = (configuration.get("ResourceLimit") or {}).get("MaxNumberOfTests", MAX_TESTS)
    found = tuple(test for one in configurations for test in _of_endpoint(one))
    return (*existing, *found[:limit])


def _of_endpoint(endpoint: Mapping[str, Any]) -> Iterator[LoadTest]:
    instance_type = endpoint.get("InstanceType")
    if instance_type is None:
        raise ValidationError("This local account tests instance types only, not ServerlessConfig.")
    if instance_type not in machine.instance_types():
        raise ValidationError(f"'{instance_type}' is no instance type that a SageMaker endpoint can have.")
    ranges = (endpoint.get("EnvironmentParameterRanges") or {}).get("CategoricalParameterRanges") or []
    for values in itertools.product(*(item["Value"] for item in ranges)):
        yield LoadTest(
            instance_type=instance_type,
            inference_specification=endpoint.get("InferenceSpecificationName"),
            environment={item["Name"]: value for item, value in zip(ranges, values, strict=True)},
        )
