"""Where a remote build runs: the account's facts from `[recommender]`, the options, and the rest from AWS."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from aws_api.errors import AwsUnavailable
from model_build.remote.build_account import BuildAccount
from workloads import UsageError, WorkloadFolder

ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
MAX_RUNTIME_S = 2 * 3600
STAND_IN_REGION = "us-east-1"
STAND_IN_ROLE = "arn:aws:iam::000000000000:role/ModelBuildRole"


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSite:
    role_arn: str
    bucket: str
    region: str
    stamp: str
    """Makes the names of jobs and of their folders unique: letters, digits and hyphens, 20 at most."""
    instance_type: str | None = None
    """None selects the type that the target needs."""
    image_uri: str | None = None
    """None selects AWS's image of the target's runtime."""
    kms_key: str | None = None
    security_groups: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    max_runtime_s: int = MAX_RUNTIME_S


def build_site(
    folder: WorkloadFolder,
    account: BuildAccount,
    stamp: str,
    *,
    instance_type: str | None = None,
    image_uri: str | None = None,
    max_runtime_s: int = MAX_RUNTIME_S,
    stand_ins: dict[str, str] | None = None,
) -> BuildSite:
    """Asks AWS for the region and the bucket. Raises `UsageError` or `AwsUnavailable`.

    With `stand_ins`, as in a dry run, names stand in for unknown ones, and are added to it.
    """
    facts = folder.workload.recommender
    region = _known("region", lambda: account.region, STAND_IN_REGION, stand_ins)
    role = facts.role_arn or (None if stand_ins is None else stand_ins.setdefault("role_arn", STAND_IN_ROLE))
    if role is None or not ROLE.fullmatch(role):
        raise UsageError(
            f"recommender.role_arn: got {role or 'none'}. A processing job assumes an IAM role that trusts "
            "sagemaker.amazonaws.com and may use the bucket, the image and the logs. Add "
            "--set recommender.role_arn=arn:aws:iam::ACCOUNT:role/NAME."
        )
    if bool(facts.subnets) != bool(facts.security_groups):
        given, missing = ("subnets", "security_groups") if facts.subnets else ("security_groups", "subnets")
        raise UsageError(f"recommender.{given} is set without {missing}. A job in a VPC needs both.")
    return BuildSite(
        role_arn=role,
        bucket=facts.bucket or _known("bucket", account.default_bucket, f"sagemaker-{region}-000000000000", stand_ins),
        region=region,
        stamp=stamp,
        instance_type=instance_type,
        image_uri=image_uri,
        kms_key=facts.kms_key_arn,
        security_groups=facts.security_groups,
        subnets=facts.subnets,
        max_runtime_s=max_runtime_s,
    )


def _known(key: str, read: Callable[[], str], stand_in: str, stand_ins: dict[str, str] | None) -> str:
    """Returns a fact that AWS knows, or in a dry run without AWS its stand-in."""
    try:
        return read()
    except AwsUnavailable:
        if stand_ins is None:
            raise
        return stand_ins.setdefault(key, stand_in)
