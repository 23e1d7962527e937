"""Buckets and log groups as every stack makes them."""

from typing import Any

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.grants import acknowledge_to_checkov


def private_bucket(scope: Construct, id: str, key: kms.IKey | None = None, **properties: Any) -> s3.Bucket:
    """Returns an encrypted bucket that is closed to the public. `properties` are further ones of `s3.Bucket`."""
    return s3.Bucket(
        scope,
        id,
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        bucket_key_enabled=True if key else None,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        enforce_ssl=True,
        **properties,
    )


def log_group(
    scope: Construct,
    id: str,
    name: str | None = None,
    *,
    key: kms.IKey | None = None,
    retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH,
    removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
) -> logs.LogGroup:
    """Returns a log group with an expiry. Without `key` CloudWatch Logs encrypts it with its own."""
    group = logs.LogGroup(
        scope, id, log_group_name=name, encryption_key=key, retention=retention, removal_policy=removal_policy
    )
    if key is None:
        acknowledge_to_checkov(group, "CKV_AWS_158", "CloudWatch Logs encrypts it with a key of its own.")
    return group
