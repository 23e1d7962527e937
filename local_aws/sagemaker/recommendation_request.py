"""Reads a CreateInferenceRecommendationsJob request: the tests it asks for, and the models and endpoints they need.

`service_model` has checked the shapes; here are the service's rules across members, in its words where they are known.
A test is one endpoint configuration with one combination of environment parameters, or an existing endpoint.
MaxParallelOfTests is accepted and ignored: on one machine, tests side by side would measure each other.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from moto.sagemaker.exceptions import ValidationError

from local_aws import machine
from local_aws.process.model_server import ModelServer
from local_aws.sagemaker.endpoint_fleet import Variant, instance_types_of
from local_aws.sagemaker.model_host import Container
from workloads import Unavailable

DEFAULT_DURATION_S = {"Advanced": 7200, "Default": 2700}
MAX_TESTS = 10

DEFAULT_TRAFFIC_S = 45
"""Seconds of traffic of a Default job, for which the API has none; a shorter job has shorter steps."""
DEFAULT_STEPS = 3
VARIANT = "AllTraffic"


class ControlPlane(Protocol):
    """The part of the SageMaker backend that jobs need.

    Its methods raise moto's `ValidationError` for missing things.
    """

    def describe_model(self, model_name: str) -> Any: ...

    def describe_model_package(self, model_package_name: str) -> Any: ...

    def endpoint(self, name: str) -> Any: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadTest:
    """A test of a model on an endpoint of its own."""

    instance_type: str
    inference_specification: str | None
    environment: Mapping[str, str]

    def model_configuration(self) -> dict[str, Any]:
        """Returns ModelConfiguration in the shape of a result."""
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
    """The request for a test of an existing endpoint."""

    endpoint_name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan:
    payload_url: str
    content_type: str
    traffic_pattern: Mapping[str, Any]
    stopping_conditions: Mapping[str, Any]
    duration_s: int
    tests: tuple[LoadTest | EndpointTest, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExistingEndpoint:
    """An endpoint that a job tests where it is, as it was when the job was made."""

    endpoint_name: str
    variant_name: str
    instance_type: str
    plane: ControlPlane

    def server(self) -> ModelServer:
        """Returns the server that answers for it now. Raises `Unavailable`."""
        picked = self.plane.endpoint(self.endpoint_name).pick(self.variant_name)
        if picked is None:
            raise Unavailable(f"Endpoint {self.endpoint_name} does not answer any more.")
        server: ModelServer = picked[1]
        return server


def check_tested_model(request: Mapping[str, Any]) -> None:
    """Checks that the request names one model, and endpoints only for a Default job.

    Raises moto's `ValidationError`.
    """
    configuration = request["InputConfig"]
    named = [key for key in ("ModelName", "ModelPackageVersionArn") if configuration.get(key)]
    if not named:
        raise ValidationError("Exactly one of ModelName and ModelPackageVersionArn is required, but none was given.")
    if len(named) == 2:
        raise ValidationError("Exactly one of ModelName and ModelPackageVersionArn is required, but both were given.")
    if configuration.get("Endpoints") and request["JobType"] != "Default":
        raise ValidationError("Endpoints can be given for a Default job only.")


def plan(request: Mapping[str, Any], package: Mapping[str, Any]) -> JobPlan:
    """Returns the tests with their traffic. Raises moto's `ValidationError` in one sentence.

    `package` is the result of `package_of`; ContainerConfig takes precedence over it.
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


def package_of(plane: ControlPlane, configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what the model's package says; nothing where the job names a model."""
    if not (arn := configuration.get("ModelPackageVersionArn")):
        return {}
    package = plane.describe_model_package(arn)
    specification = package.inference_specification or {}
    return {"SamplePayloadUrl": package.sample_payload_url, "InferenceSpecification": specification}


def container_of(
    plane: ControlPlane, configuration: Mapping[str, Any], package: Mapping[str, Any], instance_type: str
) -> Container:
    """Returns the container of the model or of its package, whose first one counts.

    Raises moto's `ValidationError` where this machine cannot start it.
    """
    if package:
        model = {
            "ModelName": configuration["ModelPackageVersionArn"],
            "Containers": package["InferenceSpecification"].get("Containers", []),
        }
    else:
        model = plane.describe_model(configuration["ModelName"]).response_object
    try:
        return Variant.of({"VariantName": VARIANT, "InstanceType": instance_type}, model).container
    except Unavailable as error:
        raise ValidationError(str(error)) from error


def existing_endpoint(plane: ControlPlane, name: str) -> ExistingEndpoint:
    """Raises moto's `ValidationError` for an endpoint that the service would not test."""
    endpoint = plane.endpoint(name)
    if endpoint.endpoint_status != "InService":
        raise ValidationError(f"Endpoint {name} is {endpoint.endpoint_status}: it must be InService.")
    if len(endpoint.production_variants) != 1:
        raise ValidationError(f"Endpoint {name} has {len(endpoint.production_variants)} variants: it must have one.")
    (variant,) = endpoint.production_variants
    return ExistingEndpoint(
        endpoint_name=name,
        variant_name=variant["VariantName"],
        instance_type=next(iter(instance_types_of(variant)), "serverless"),
        plane=plane,
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
    existing = [
        EndpointTest(endpoint_name=endpoint["EndpointName"]) for endpoint in configuration.get("Endpoints") or []
    ]
    configurations = configuration.get("EndpointConfigurations") or []
    if not configurations and request["JobType"] == "Default":
        configurations = [{"InstanceType": name} for name in supported or []]
    if not configurations and not existing:
        raise ValidationError("EndpointConfigurations is required: name at least one InstanceType to test.")
    limit = (configuration.get("ResourceLimit") or {}).get("MaxNumberOfTests", MAX_TESTS)
    fresh = [test for endpoint in configurations for test in _combinations(endpoint)]
    return (*existing, *fresh[:limit])


def _combinations(endpoint: Mapping[str, Any]) -> Iterator[LoadTest]:
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
