"""The model that a job tests, the job's environment, and refusals that anticipate the service's own. Pure.

Each problem names the flag or the key. Patterns, lengths and instance types are those of botocore's service model; a
test compares them. Some rules are not in the model: a VPC needs both of its lists, a tag must not begin with `aws:`,
and the traffic must fit in the longest job. The reader of workload.toml already refuses what that file cannot hold (1
to 3 users a step, 1 to 5 environment parameters, …).
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import botocore.session

from aws_api.expiry import TAG
from workloads import Workload

RUN_TAG = "run"
"""Key of the tag that holds a run's token, by which the run recognises its own jobs."""

MOST_TESTS = 10
"""Limit of one job: its endpoint configurations, and the tests that environment parameters make of them."""
LONGEST_JOB_S = 18_000
"""Largest JobDurationInSeconds that the API's reference allows."""
MOST_SECURITY_GROUPS = 5
MOST_SUBNETS = 16
MOST_TAGS = 50
MOST_TAG_KEY = 128
MOST_TAG_VALUE = 256
MOST_DESCRIPTION = 128
MOST_PARAMETERS = 5
MOST_VALUES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TestedModel:
    """A SageMaker model by its name. With `endpoint_name`, an endpoint that serves it is tested beside it."""

    model_name: str
    role_arn: str
    payload_url: str
    endpoint_name: str | None = None

    def input_config(self) -> dict[str, Any]:
        return {"ModelName": self.model_name, **_endpoints(self.endpoint_name)}


@dataclass(frozen=True, kw_only=True, slots=True)
class TestedPackage:
    """A version of a model in the model registry."""

    model_package_arn: str
    role_arn: str
    payload_url: str
    endpoint_name: str | None = None

    def input_config(self) -> dict[str, Any]:
        return {"ModelPackageVersionArn": self.model_package_arn, **_endpoints(self.endpoint_name)}


Tested = TestedModel | TestedPackage


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEnvironment:
    """Network, encryption and tags of a job, its endpoints and its artifacts."""

    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    kms_key: str | None = None
    """Encrypts the endpoints' volumes and what the job writes."""
    tags: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    """The job's description; None takes the workload's."""

    def input_config(self) -> dict[str, Any]:
        vpc = {"SecurityGroupIds": list(self.security_groups), "Subnets": list(self.subnets)}
        return {
            **({"VolumeKmsKeyId": self.kms_key} if self.kms_key else {}),
            **({"VpcConfig": vpc} if self.subnets else {}),
        }

    def output_config(self) -> dict[str, Any]:
        return {"OutputConfig": {"KmsKeyId": self.kms_key}} if self.kms_key else {}


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


def split_into_jobs(configurations: Sequence[Configuration]) -> list[list[Configuration]]:
    """Returns the configurations of each job, in order. One with more tests than a job may have is split."""
    jobs: list[list[Configuration]] = [[]]
    for configuration in configurations:
        for part in [configuration] if configuration.tests <= MOST_TESTS else configuration.split():
            if sum(other.tests for other in jobs[-1]) + part.tests > MOST_TESTS:
                jobs.append([])
            jobs[-1].append(part)
    return jobs


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A string's pattern, its bounds in characters, and both in words."""

    pattern: str
    least: int
    most: int
    words: str

    def broken_by(self, value: str) -> bool:
        return not (self.least <= len(value) <= self.most and re.fullmatch(self.pattern, value))


JOB_NAME = Rule(
    pattern=r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,63}",
    least=1,
    most=64,
    words="1 to 64 letters, digits and hyphens, with a letter or a digit at both ends",
)
ROLE_ARN = Rule(
    pattern=r"arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+",
    least=20,
    most=2048,
    words="an IAM role's ARN, arn:aws:iam::ACCOUNT:role/NAME",
)
MODEL_NAME = Rule(
    pattern=r"[a-zA-Z0-9]([\-a-zA-Z0-9]*[a-zA-Z0-9])?",
    least=1,
    most=63,
    words="1 to 63 letters, digits and hyphens, with a letter or a digit at both ends",
)
MODEL_PACKAGE = Rule(
    pattern=r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]{9,16}:[0-9]{12}:model-package/[\S]{1,2048}",
    least=1,
    most=2048,
    words="a model package's ARN, arn:aws:sagemaker:REGION:ACCOUNT:model-package/GROUP/VERSION",
)
ENDPOINT_NAME = Rule(
    pattern=r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}",
    least=1,
    most=63,
    words="1 to 63 letters, digits and hyphens, with a letter or a digit at both ends",
)
S3_URI = Rule(
    pattern=r"(https|s3)://([^/]+)/?(.*)", least=1, most=1024, words="a bucket's name that makes an s3:// URI of 1,024"
)
KMS_KEY = Rule(
    pattern=r"[a-zA-Z0-9:/_-]*", least=1, most=2048, words="a KMS key's id or ARN, or alias/NAME, or an alias' ARN"
)
NETWORK_ID = Rule(pattern=r"[-0-9a-zA-Z]+", least=1, most=32, words="an id of at most 32 letters, digits and hyphens")


def problems(
    workload: str,
    tested: Tested,
    environment: JobEnvironment,
    job_names: Sequence[str],
    configurations: Sequence[Configuration],
) -> Iterator[str]:
    """Yields a sentence for each problem of a job, whatever its kind."""
    yield from _strings(tested, environment, job_names)
    yield from _network(environment)
    yield from _tags(environment.tags)
    if environment.description is not None and len(environment.description) > MOST_DESCRIPTION:
        got = len(environment.description)
        yield f"--description: got {got} characters. Allowed: {MOST_DESCRIPTION} at most."
    for configuration in configurations:
        yield from _configuration(workload, configuration)


def key_problem(workload: Workload, key: str | None, role_arn: str | None) -> str | None:
    """Returns why a job under the stack's role cannot use a key, or None; it would fail after it had begun."""
    if key is None or role_arn is not None or key == workload.recommender.kms_key_arn:
        return None
    return (
        f"--kms-key: got '{key}', which the roles of {workload.stack_name} may not use: without kms:CreateGrant a job "
        f'fails after it has begun. Write kms_key_arn = "ARN" below [recommender] in workloads/{workload.name}/'
        "workload.toml, deploy, and give the same ARN here; or name another role with --role-arn."
    )


def traffic_problem(name: str, duration_s: int) -> str | None:
    """Returns the reason why a traffic profile cannot be a job's, or None."""
    if duration_s <= LONGEST_JOB_S:
        return None
    return f"traffic.{name}: lasts {duration_s:,} s. Allowed: {LONGEST_JOB_S:,} s at most, the longest job there is."


@cache
def instance_types() -> frozenset[str]:
    """Returns every instance type that a SageMaker endpoint may have, as botocore knows them."""
    service = botocore.session.get_session().get_service_model("sagemaker")
    return frozenset(service.shape_for("ProductionVariantInstanceType").metadata["enum"])


def _endpoints(name: str | None) -> dict[str, Any]:
    return {"Endpoints": [{"EndpointName": name}]} if name else {}


def _strings(tested: Tested, environment: JobEnvironment, job_names: Sequence[str]) -> Iterator[str]:
    model = (
        ("--model-package", tested.model_package_arn, MODEL_PACKAGE)
        if isinstance(tested, TestedPackage)
        else ("--model-name", tested.model_name, MODEL_NAME)
    )
    checked: list[tuple[str, str | None, Rule]] = [
        *(("--job-name", name, JOB_NAME) for name in job_names),
        ("--role-arn", tested.role_arn, ROLE_ARN),
        model,
        ("--endpoint", tested.endpoint_name, ENDPOINT_NAME),
        ("--payload-bucket", tested.payload_url, S3_URI),
        ("--kms-key", environment.kms_key, KMS_KEY),
        *(("--subnet", subnet, NETWORK_ID) for subnet in environment.subnets),
        *(("--security-group", group, NETWORK_ID) for group in environment.security_groups),
    ]
    for flag, value, rule in checked:
        if value is not None and rule.broken_by(value):
            yield f"{flag}: got '{value}'. Allowed: {rule.words}."


def _network(environment: JobEnvironment) -> Iterator[str]:
    subnets, groups = len(environment.subnets), len(environment.security_groups)
    if bool(subnets) != bool(groups):
        missing = "--security-group" if subnets else "--subnet"
        given = "--subnet" if subnets else "--security-group"
        yield f"{missing}: is required with {given}: a VPC needs both."
    if subnets > MOST_SUBNETS:
        yield f"--subnet: got {subnets}. Allowed: {MOST_SUBNETS} at most."
    if groups > MOST_SECURITY_GROUPS:
        yield f"--security-group: got {groups}. Allowed: {MOST_SECURITY_GROUPS} at most."


def _tags(tags: Mapping[str, str]) -> Iterator[str]:
    all_tags = len(tags) + 2  # a run marks its jobs with its token and with their expiry
    if all_tags > MOST_TAGS:
        yield f"--tag: got {all_tags} with those of the run's own. Allowed: {MOST_TAGS} at most."
    for key, value in tags.items():
        if not 1 <= len(key) <= MOST_TAG_KEY or len(value) > MOST_TAG_VALUE:
            yield (
                f"--tag: got '{key}={value}'. Allowed: a key of 1 to {MOST_TAG_KEY} characters "
                f"and a value of at most {MOST_TAG_VALUE}."
            )
        if not _is_tag_text(key + value):
            yield f"--tag: got '{key}={value}'. Allowed: letters, digits, spaces and _ . : / = + - @."
        if key == RUN_TAG:
            yield f"--tag: got '{key}={value}'. The key {RUN_TAG} is the run's own: by it a run knows its jobs again."
        if key == TAG:
            yield f"--tag: got '{key}={value}'. The key {TAG} is the run's own: `sweep` goes by it."
        if key.lower().startswith("aws:"):
            yield f"--tag: got '{key}={value}'. A key that begins with aws: is reserved for AWS."


def _is_tag_text(text: str) -> bool:
    return all(unicodedata.category(character)[0] in "LZN" or character in "_.:/=+-@" for character in text)


def _configuration(workload: str, configuration: Configuration) -> Iterator[str]:
    file = f"workloads/{workload}/workload.toml"
    if configuration.instance_type not in instance_types():
        yield (
            f"{file}: instance_types: got '{configuration.instance_type}', which is no instance type of a SageMaker "
            "endpoint. Allowed: those botocore knows, as ml.c5.xlarge."
        )
    if len(configuration.environment) > MOST_PARAMETERS:
        yield (
            f"{configuration.instance_type}: has {len(configuration.environment)} environment parameters. "
            f"Allowed: {MOST_PARAMETERS} at most, so it cannot be a job's candidate."
        )
    for name, values in configuration.environment.items():
        if not 1 <= len(values) <= MOST_VALUES:
            yield f"{file}: recommender.environment.{name}: got {len(values)} values. Allowed: 1 to {MOST_VALUES}."
