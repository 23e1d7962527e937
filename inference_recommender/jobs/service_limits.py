"""What the service would refuse of a job, refused here first: each problem names the flag or the key. Pure.

Patterns, lengths and instance types are those of botocore's service model, which a test compares. Some rules are not in
the model: a VPC needs both of its lists, `aws:` is no beginning of a tag, and the traffic must fit in the longest job.
What workload.toml cannot hold (1 to 3 users a step, 1 to 5 environment parameters, …) its reader refuses already.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import botocore.session

from inference_recommender.jobs.configuration import Configuration
from inference_recommender.jobs.tested_model import RUN_TAG, AnySubject, PackageSubject, Surroundings

LONGEST_JOB_S = 18_000
"""JobDurationInSeconds at most, as its documentation has it."""
MOST_SECURITY_GROUPS = 5
MOST_SUBNETS = 16
MOST_TAGS = 50
MOST_TAG_KEY = 128
MOST_TAG_VALUE = 256
MOST_DESCRIPTION = 128
MOST_PARAMETERS = 5
MOST_VALUES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """Of a string: its pattern, its bounds in characters, and both in words."""

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
    subject: AnySubject,
    surroundings: Surroundings,
    job_names: Sequence[str],
    configurations: Sequence[Configuration],
) -> Iterator[str]:
    """Every problem of a job, whatever its kind, in a sentence each."""
    yield from _strings(subject, surroundings, job_names)
    yield from _network(surroundings)
    yield from _tags(surroundings.tags)
    if surroundings.description is not None and len(surroundings.description) > MOST_DESCRIPTION:
        got = len(surroundings.description)
        yield f"--description: got {got} characters. Allowed: {MOST_DESCRIPTION} at most."
    for one in configurations:
        yield from _configuration(workload, one)


def traffic_problem(name: str, duration_s: int) -> str | None:
    """Why a traffic profile cannot be a job's."""
    if duration_s <= LONGEST_JOB_S:
        return None
    return f"traffic.{name}: lasts {duration_s:,} s. Allowed: {LONGEST_JOB_S:,} s at most, the longest job there is."


@cache
def instance_types() -> frozenset[str]:
    """Every instance type that a SageMaker endpoint may have."""
    service = botocore.session.get_session().get_service_model("sagemaker")
    return frozenset(service.shape_for("ProductionVariantInstanceType").metadata["enum"])


def _strings(subject: AnySubject, surroundings: Surroundings, job_names: Sequence[str]) -> Iterator[str]:
    model = (
        ("--model-package", subject.model_package_arn, MODEL_PACKAGE)
        if isinstance(subject, PackageSubject)
        else ("--model-name", subject.model_name, MODEL_NAME)
    )
    checked: list[tuple[str, str | None, Rule]] = [
        *(("--job-name", name, JOB_NAME) for name in job_names),
        ("--role-arn", subject.role_arn, ROLE_ARN),
        model,
        ("--endpoint", subject.endpoint_name, ENDPOINT_NAME),
        ("--payload-bucket", subject.payload_url, S3_URI),
        ("--kms-key", surroundings.kms_key, KMS_KEY),
        *(("--subnet", subnet, NETWORK_ID) for subnet in surroundings.subnets),
        *(("--security-group", group, NETWORK_ID) for group in surroundings.security_groups),
    ]
    for flag, value, rule in checked:
        if value is not None and rule.broken_by(value):
            yield f"{flag}: got '{value}'. Allowed: {rule.words}."


def _network(surroundings: Surroundings) -> Iterator[str]:
    subnets, groups = len(surroundings.subnets), len(surroundings.security_groups)
    if bool(subnets) != bool(groups):
        missing = "--security-group" if subnets else "--subnet"
        given = "--subnet" if subnets else "--security-group"
        yield f"{missing}: is required with {given}: a VPC needs both."
    if subnets > MOST_SUBNETS:
        yield f"--subnet: got {subnets}. Allowed: {MOST_SUBNETS} at most."
    if groups > MOST_SECURITY_GROUPS:
        yield f"--security-group: got {groups}. Allowed: {MOST_SECURITY_GROUPS} at most."


def _tags(tags: Mapping[str, str]) -> Iterator[str]:
    all_tags = len(tags) + 1  # a run marks its jobs with one more
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
        if key.lower().startswith("aws:"):
            yield f"--tag: got '{key}={value}'. A key that begins with aws: is reserved for AWS."


def _is_tag_text(text: str) -> bool:
    return all(unicodedata.category(character)[0] in "LZN" or character in "_.:/=+-@" for character in text)


def _configuration(workload: str, one: Configuration) -> Iterator[str]:
    file = f"workloads/{workload}/workload.toml"
    if one.instance_type not in instance_types():
        yield (
            f"{file}: instance_types: got '{one.instance_type}', which is no instance type of a SageMaker endpoint. "
            "Allowed: those botocore knows, as ml.c5.xlarge."
        )
    if len(one.environment) > MOST_PARAMETERS:
        yield (
            f"{one.instance_type}: has {len(one.environment)} environment parameters. "
            f"Allowed: {MOST_PARAMETERS} at most, so it cannot be a job's candidate."
        )
    for name, values in one.environment.items():
        if not 1 <= len(values) <= MOST_VALUES:
            yield f"{file}: recommender.environment.{name}: got {len(values)} values. Allowed: 1 to {MOST_VALUES}."
