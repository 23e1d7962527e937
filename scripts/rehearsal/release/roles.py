"""Calls AWS as a role does: sessions of roles, at the local account, which evaluates their policies on every call.

CodePipeline assumes an action's role with the pipeline's own, so both have to allow it.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from workloads import ProjectError


class Denied(ProjectError):
    """A call that a role may not make. On AWS the action fails with it."""

    exit_code = 1


class Roles:
    def __init__(self, account: Mapping[str, str]) -> None:
        """`account` is the environment with the owner's key, from the account's exports."""
        self._account = account
        self._assumed = cache(self._assume)

    def environment(self) -> Mapping[str, str]:
        return self._account

    def as_owner(self, service: str) -> Any:
        return self._client(service, self._account["AWS_ACCESS_KEY_ID"], self._account["AWS_SECRET_ACCESS_KEY"], None)

    def client(self, service: str, role_arn: str, by: str | None = None) -> Any:
        """Returns a client with a session of the role, assumed by the role `by`, or by AWS's own service if None."""
        return self._client(service, *self._assumed(role_arn, by))

    def _assume(self, role_arn: str, by: str | None) -> tuple[str, str, str]:
        sts = self.as_owner("sts") if by is None else self.client("sts", by)
        with_names = {"RoleArn": role_arn, "RoleSessionName": "rehearsal"}
        given = allowed(lambda: sts.assume_role(**with_names), f"{by or 'the service'} assumes {role_arn}")[
            "Credentials"
        ]
        return given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"]

    def _client(self, service: str, key: str, secret: str, token: str | None) -> Any:
        make: Any = boto3.session.Session().client
        return make(
            service,
            endpoint_url=self._account["AWS_ENDPOINT_URL"],
            region_name=self._account["AWS_REGION"],
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            aws_session_token=token,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 2}),
        )


def allowed(call: Any, what: str) -> Any:
    """Returns what the call returns. Raises `Denied` with AWS's own sentence, which names role, action and resource."""
    try:
        return call()
    except ClientError as error:
        if "AccessDenied" in error.response["Error"]["Code"] or error.response["Error"]["Code"] == "403":
            raise Denied(f"{what}: {error.response['Error']['Message']}") from error
        raise
