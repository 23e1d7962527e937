"""Where a build runs: what the command line says, and for the rest what AWS says, or a stand-in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aws_api.errors import AwsUnavailable
from model_build.remote.aws_account import Account
from workloads import UsageError

ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
MAX_RUNTIME_S = 2 * 3600

STAND_IN_REGION = "us-east-1"
STAND_IN_ROLE = "arn:aws:iam::000000000000:role/ModelBuildRole"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The command line's own words; None is what was not given."""

    role_arn: str | None = None
    bucket: str | None = None
    instance_type: str | None = None
    image_uri: str | None = None
    kms_key: str | None = None
    security_groups: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    max_runtime_s: int = MAX_RUNTIME_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    role_arn: str
    bucket: str
    region: str
    stamp: str
    """Makes the names of jobs and of their folders unique: letters, digits and hyphens, 20 at most."""
    instance_type: str | None = None
    """None takes what the target needs."""
    image_uri: str | None = None
    """None takes the stock image of the target's runtime."""
    kms_key: str | None = None
    security_groups: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    max_runtime_s: int = MAX_RUNTIME_S


def resolve(options: Options, account: Account, stamp: str) -> Where:
    """Asks AWS for what was not given. Raises `UsageError` or `AwsUnavailable`."""
    if options.role_arn is None:
        raise UsageError(
            "--role-arn: missing. A processing job assumes an IAM role that sagemaker.amazonaws.com may assume, that "
            "may read and write the bucket, pull the image and write logs. Give --role-arn "
            "arn:aws:iam::ACCOUNT:role/NAME."
        )
    bucket = options.bucket or account.default_bucket()
    return _where(options, options.role_arn, bucket, account.region, stamp)


def resolve_for_show(options: Options, account: Account, stamp: str) -> tuple[Where, Mapping[str, str]]:
    """Does the same for a dry run: names stand in for what was not given and AWS cannot tell.

    Also returns the stand-ins, by option. Raises `UsageError`.
    """
    stand_ins: dict[str, str] = {}
    try:
        region = account.region
    except AwsUnavailable:
        region = stand_ins["region"] = STAND_IN_REGION
    role = options.role_arn or stand_ins.setdefault("role-arn", STAND_IN_ROLE)
    bucket = options.bucket
    if bucket is None:
        try:
            bucket = account.default_bucket()
        except AwsUnavailable:
            bucket = stand_ins["bucket"] = f"sagemaker-{region}-000000000000"
    return _where(options, role, bucket, region, stamp), stand_ins


def _where(options: Options, role: str, bucket: str, region: str, stamp: str) -> Where:
    if not ROLE.fullmatch(role):
        raise UsageError(f"--role-arn: got '{role}', but a role's ARN is arn:aws:iam::ACCOUNT:role/NAME.")
    if bool(options.subnets) != bool(options.security_groups):
        both = ("--subnet", "--security-group")
        given, missing = both if options.subnets else reversed(both)
        raise UsageError(f"{given} was given without {missing}. A job in a VPC needs both.")
    return Where(
        role_arn=role,
        bucket=bucket,
        region=region,
        stamp=stamp,
        instance_type=options.instance_type,
        image_uri=options.image_uri,
        kms_key=options.kms_key,
        security_groups=options.security_groups,
        subnets=options.subnets,
        max_runtime_s=options.max_runtime_s,
    )
