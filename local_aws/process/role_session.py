"""A session of a role at the local account, as environment variables for a process that runs with this role."""

from collections.abc import Mapping
from typing import Any

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

from workloads import Unavailable

SESSION_S = 43_200
"""AWS's longest session. No process of a rehearsal runs longer."""
PASSED_ON = ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_EC2_METADATA_DISABLED")
"""The account's exports without its owner's credentials."""


def role_session(account: Mapping[str, str], role_arn: str, name: str = "AWSCodeBuild") -> dict[str, str]:
    """Returns the variables of a new session of the role. `account` is the account's exports. Raises `Unavailable`."""
    sts: Any = botocore.session.Session().create_client(
        "sts",
        endpoint_url=account["AWS_ENDPOINT_URL"],
        region_name=account["AWS_REGION"],
        aws_access_key_id=account["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=account["AWS_SECRET_ACCESS_KEY"],
    )
    request = {"RoleArn": role_arn, "RoleSessionName": name, "DurationSeconds": SESSION_S}
    try:
        session = sts.assume_role(**request)["Credentials"]
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(f"{role_arn} cannot be assumed at the local account: {error}") from error
    return {
        **{name: account[name] for name in PASSED_ON if name in account},
        "AWS_ACCESS_KEY_ID": session["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": session["SecretAccessKey"],
        "AWS_SESSION_TOKEN": session["SessionToken"],
    }
