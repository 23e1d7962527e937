"""Reads a CreateInferenceRecommendationsJob request: its tests, and the models and endpoints that they need.

`service_model` has checked the shapes; here are the service's rules across members, in its words where they are known.
A test is one endpoint configuration with one combination of environment parameters, or an existing endpoint.
MaxParallelOfTests has no effect: on one machine, parallel tests would measure each other.
"""

import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moto.sagemaker.exceptions import ValidationError

from aws_api.service_model import enum, range_problems
from local_aws import service_model
from local_aws.permissions.actions import GRANT_IS_FOR_AWS, ApiCall
from local_aws.permissions.enforced import read_object
from local_aws.process.model_server import ModelServer
from local_aws.sagemaker.endpoint_fleet import EndpointVariant, instance_types_of
from local_aws.sagemaker.model_host import ModelContainer
from workloads import Unavailable

DEFAULT_DURATION_S = {"Advanced": 7200, "Default": 2700}
MAX_TESTS = 10
DEFAULT_TRAFFIC_S = 45
"""Seconds of traffic of a Default job, for which the API has none; a shorter job has shorter steps."""
DEFAULT_STEPS = 3
VARIANT = "AllTraffic"
DOCUMENTED: Mapping[str, Mapping[str, int]] = {
    "InitialNumberOfUsers": {"min": 1, "max": 3},
    "SpawnRate": {"min": 0, "max": 3},
    "DurationInSeconds": {"min": 120, "max": 3600},
    "JobDurationInSeconds": {"max": 18_000},
}
"""Limits that the service model lacks: API reference (Phase, RecommendationJobInputConfig) and developer guide ("Run a
custom load test"). Neither limits phases, the product of users and phases, MaxNumberOfTests or MaxParallelOfTests."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceTest:
    """A test of a model on an endpoint that the job creates."""

    instance_type: str
    inference_specification: str | None
    environment: Mapping[str, str]
    endpoint_name: str = field(default_factory=lambda: f"sm-epc-{uuid.uuid4()}")
    variant_name: str = VARIANT

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
    """A test of an existing endpoint, as it was when the job was created."""

    endpoint_name: str
    variant_name: str
    instance_type: str
    plane: Any

    @classmethod
    def of(cls, plane: Any, name: str) -> "EndpointTest":
        """Raises moto's `ValidationError` for an endpoint that the service would not test."""
        endpoint = plane.endpoint(name)
        if endpoint.endpoint_status != "InService":
            raise ValidationError(f"Endpoint {name} is {endpoint.endpoint_status}: it must be InService.")
        if (count := len(endpoint.production_variants)) != 1:
            raise ValidationError(f"Endpoint {name} has {count} variants: it must have one.")
        (variant,) = endpoint.production_variants
        instance_type = next(iter(instance_types_of(variant)), "serverless")
        return cls(endpoint_name=name, variant_name=variant["VariantName"], instance_type=instance_type, plane=plane)

    def server(self) -> ModelServer:
        """Returns the server that answers for it now. Raises `Unavailable`."""
        picked = self.plane.endpoint(self.endpoint_name).pick(self.variant_name)
        if picked is None:
            raise Unavailable(f"Endpoint {self.endpoint_name} does not answer any more.")
        server: ModelServer = picked[1]
        return server


@dataclass(frozen=True, kw_only=True, slots=True)
class RecommendationPlan:
    payload_url: str
    content_type: str
    traffic_pattern: Mapping[str, Any]
    stopping_conditions: Mapping[str, Any]
    duration_s: int
    endpoints: tuple[str, ...]
    tests: tuple[InstanceTest, ...]


def plan(request: Mapping[str, Any], package: Mapping[str, Any]) -> RecommendationPlan:
    """Reads the request and its model package, which `package_of` returns. Raises moto's `ValidationError`."""
    configuration = request["InputConfig"]
    container = configuration.get("ContainerConfig") or {}
    specification = package.get("InferenceSpecification") or {}
    payload = container.get("PayloadConfig") or {}
    url = payload.get("SamplePayloadUrl") or package.get("SamplePayloadUrl")
    if not url:
        raise ValidationError("ContainerConfig.PayloadConfig.SamplePayloadUrl is required to send traffic.")
    types = payload.get("SupportedContentTypes") or specification.get("SupportedContentTypes") or ["application/json"]
    conditions = request.get("StoppingConditions") or {}
    if not 1 <= (limit := conditions.get("MaxInvocations", 1)) <= 30_000:
        raise ValidationError(f"StoppingConditions.MaxInvocations is {limit}; it must be between 1 and 30000.")
    duration = configuration.get("JobDurationInSeconds") or DEFAULT_DURATION_S[request["JobType"]]
    supported = specification.get("SupportedRealtimeInferenceInstanceTypes")
    endpoints = tuple(endpoint["EndpointName"] for endpoint in configuration.get("Endpoints") or [])
    return RecommendationPlan(
        payload_url=url,
        content_type=types[0],
        traffic_pattern=_traffic(request, configuration, duration),
        stopping_conditions={key: value for key, value in conditions.items() if value is not None},
        duration_s=duration,
        endpoints=endpoints,
        tests=_tests(request, container.get("SupportedInstanceTypes") or supported or [], optional=bool(endpoints)),
    )


def package_of(plane: Any, configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the contents of the model's package; empty if the job names a model."""
    if not (arn := configuration.get("ModelPackageVersionArn")):
        return {}
    package = plane.describe_model_package(arn)
    specification = package.inference_specification or {}
    return {"SamplePayloadUrl": package.sample_payload_url, "InferenceSpecification": specification}


def container_of(plane: Any, configuration: Mapping[str, Any], package: Mapping[str, Any]) -> ModelContainer:
    """Returns the container of the model or of its package. Raises moto's `ValidationError` if it cannot start here."""
    if package:
        containers = package["InferenceSpecification"].get("Containers", [])
        model = {"ModelName": configuration["ModelPackageVersionArn"], "Containers": containers}
    else:
        model = plane.model(configuration["ModelName"])
    try:  # the container does not depend on the instance type
        return EndpointVariant.of({"VariantName": VARIANT, "InstanceType": "ml.c5.xlarge"}, model).container
    except Unavailable as error:
        raise ValidationError(str(error)) from error


def role_calls(
    configuration: Mapping[str, Any], planned: RecommendationPlan, passed_role_arn: str | None
) -> Iterator[ApiCall]:
    """Yields the calls that a job makes with its role. `passed_role_arn` is the execution role of its model."""
    yield read_object(planned.payload_url)
    package = configuration.get("ModelPackageVersionArn")
    if package:
        yield ApiCall("sagemaker", "DescribeModelPackage", {"ModelPackageName": package})
    else:
        yield ApiCall("sagemaker", "DescribeModel", {"ModelName": configuration["ModelName"]})
    # A test with environment parameters of its own has a copy of the model.
    copies_model = bool(package) or any(test.environment for test in planned.tests)
    for name in [test.endpoint_name for test in planned.tests]:
        model = {"ModelName": name, **({"ExecutionRoleArn": passed_role_arn} if passed_role_arn else {})}
        both = {"EndpointName": name, "EndpointConfigName": name}
        if copies_model:
            yield ApiCall("sagemaker", "CreateModel", model)
        for operation in ("CreateEndpointConfig", "CreateEndpoint"):
            yield ApiCall("sagemaker", operation, both)
        yield from _uses(name)
        for operation in ("DeleteEndpoint", "DeleteEndpointConfig"):
            yield ApiCall("sagemaker", operation, both)
        if copies_model:
            yield ApiCall("sagemaker", "DeleteModel", model)
    for name in planned.endpoints:
        yield from _uses(name)
    yield ApiCall("cloudwatch", "GetMetricData", {})
    if key_id := configuration.get("VolumeKmsKeyId"):  # hosting, a service of AWS, grants the key of the volumes
        yield ApiCall("kms", "CreateGrant", {"KeyId": key_id, GRANT_IS_FOR_AWS: True})


def _uses(endpoint: str) -> Iterator[ApiCall]:
    yield ApiCall("sagemaker", "DescribeEndpoint", {"EndpointName": endpoint})
    yield ApiCall("sagemaker-runtime", "InvokeEndpoint", {"EndpointName": endpoint})


def check_model(request: Mapping[str, Any]) -> None:
    """Raises moto's `ValidationError` unless one model is named."""
    configuration = request["InputConfig"]
    named = [key for key in ("ModelName", "ModelPackageVersionArn") if configuration.get(key)]
    if len(named) != 1:
        given = "both were" if named else "none was"
        raise ValidationError(f"Exactly one of ModelName and ModelPackageVersionArn is required, but {given} given.")


def check_documented_limits(configuration: Mapping[str, Any]) -> None:
    """Raises moto's `ValidationError` for values beyond `DOCUMENTED`, in the words of the service model's limits."""
    pattern = configuration.get("TrafficPattern") or {}
    parts = {"inputConfig": configuration, "inputConfig.trafficPattern.stairs": pattern.get("Stairs") or {}}
    for number, phase in enumerate(pattern.get("Phases") or [], start=1):
        parts[f"inputConfig.trafficPattern.phases.{number}.member"] = phase
    failures = [
        problem
        for path, part in parts.items()
        for name, limits in DOCUMENTED.items()
        if part.get(name) is not None
        for problem in range_problems(limits, part[name], f"{path}.{name[0].lower()}{name[1:]}")
    ]
    service_model.refuse(failures, ". On the local account, `python -m local_aws --pace quick` lifts these limits.")


def _traffic(request: Mapping[str, Any], configuration: Mapping[str, Any], duration_s: int) -> Mapping[str, Any]:
    pattern: Mapping[str, Any] | None = configuration.get("TrafficPattern")
    if request["JobType"] == "Default":
        duration = min(DEFAULT_TRAFFIC_S, duration_s)
        stairs = {"DurationInSeconds": duration, "NumberOfSteps": DEFAULT_STEPS, "UsersPerStep": 1}
        return {"TrafficType": "STAIRS", "Stairs": stairs}
    if not pattern:
        raise ValidationError("TrafficPattern is required for an Advanced job.")
    kind = pattern.get("TrafficType", "PHASES")
    needed, other = ("Stairs", "Phases") if kind == "STAIRS" else ("Phases", "Stairs")
    if not pattern.get(needed) or pattern.get(other):
        raise ValidationError(f"TrafficPattern of type {kind} needs {needed} and nothing else.")
    parts = [pattern["Stairs"]] if kind == "STAIRS" else pattern["Phases"]
    total = sum(int(part.get("DurationInSeconds", 0)) for part in parts)
    if total > duration_s:
        raise ValidationError(
            f"The traffic takes {total} seconds, more than JobDurationInSeconds {duration_s}: shorten it or raise that."
        )
    return {**pattern, "TrafficType": kind}


def _tests(request: Mapping[str, Any], supported: Sequence[str], *, optional: bool) -> tuple[InstanceTest, ...]:
    configuration = request["InputConfig"]
    configurations = configuration.get("EndpointConfigurations") or []
    if not configurations and request["JobType"] == "Default":
        configurations = [{"InstanceType": name} for name in supported]
    if not configurations and not optional:
        raise ValidationError("EndpointConfigurations is required: name at least one InstanceType to test.")
    limit = (configuration.get("ResourceLimit") or {}).get("MaxNumberOfTests", MAX_TESTS)
    return tuple(test for each in configurations for test in _combinations(each))[:limit]


def _combinations(endpoint: Mapping[str, Any]) -> Iterator[InstanceTest]:
    instance_type = endpoint.get("InstanceType")
    if instance_type is None:
        raise ValidationError("This local account tests instance types only, not ServerlessConfig.")
    if instance_type not in enum("sagemaker", "ProductionVariantInstanceType"):
        raise ValidationError(f"'{instance_type}' is no instance type that a SageMaker endpoint can have.")
    ranges = (endpoint.get("EnvironmentParameterRanges") or {}).get("CategoricalParameterRanges") or []
    for values in itertools.product(*(item["Value"] for item in ranges)):
        yield InstanceTest(
            instance_type=instance_type,
            inference_specification=endpoint.get("InferenceSpecificationName"),
            environment={item["Name"]: value for item, value in zip(ranges, values, strict=True)},
        )
