"""AWS calls as a role of the pipeline, and the check that the role's policies allowed them.

The local account evaluates the policies of the calling role and writes each call to a log. A program can ignore a
denial, so `CallLog` is read after every action. CodePipeline assumes an action's role with its own role: both must
allow it.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from local_aws.permissions.policy import Permission, PolicyDecision, decide, parsed
from local_aws.process.local_account import client_arguments, session_variables
from scripts.rehearsal.release.pipeline_template import Pipeline
from workloads import ProjectError

GENERATED_SUFFIX = re.compile(r"-[0-9A-Z]{12}$")


class Denied(ProjectError):
    """A role made a call that its policies do not allow. On AWS the action fails."""

    exit_code = 1


class Roles:
    """Clients of the local account. `account` holds the environment with the owner's access key."""

    def __init__(self, account: Mapping[str, str]) -> None:
        self.environment = account

    def as_owner(self, service: str) -> Any:
        return _client(service, self.environment)

    def client(self, service: str, role_arn: str, by: str | None = None) -> Any:
        """Returns a client with a new session of the role, assumed by the role `by`, or by an AWS service if None.

        Sessions expire after an hour, and a rehearsal on a busy machine takes longer.
        """
        sts = self.as_owner("sts") if by is None else self.client("sts", by)
        session = {"RoleArn": role_arn, "RoleSessionName": "rehearsal"}
        answer = allowed(lambda: sts.assume_role(**session), f"{by or 'the service'} assumes {role_arn}")
        return _client(service, {**self.environment, **session_variables(answer["Credentials"])})


def _client(service: str, account: Mapping[str, str]) -> Any:
    make: Any = boto3.session.Session().client
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 2})
    return make(service, config=config, **client_arguments(account))


def allowed(call: Callable[[], Any], what: str) -> Any:
    """Returns what the call returns. Raises `Denied` with the message of AWS, which names role, action and resource."""
    try:
        return call()
    except ClientError as error:
        if "AccessDenied" in error.response["Error"]["Code"] or error.response["Error"]["Code"] == "403":
            raise Denied(f"{what}: {error.response['Error']['Message']}") from error
        raise


class CallLog:
    """The local account's log of calls by roles. `roles` collects the actions of each role by its name."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._position = 0
        self.roles: dict[str, set[str]] = {}

    def check(self, where: str) -> None:
        """Reads the calls since the last check. Raises `Denied` for the first call that was not allowed."""
        if not self._file.exists():
            return
        with self._file.open("rb") as file:
            file.seek(self._position)
            lines = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        self._position += sum(map(len, lines))
        calls: list[Mapping[str, Any]] = [json.loads(line) for line in lines]
        for call in calls:
            # Every release makes the roles of beta again, with another suffix by CloudFormation.
            role = GENERATED_SUFFIX.sub("", str(call["role"]).rpartition("/")[2])
            self.roles.setdefault(role, set()).add(call["action"])
        for call in calls:
            if not call["allowed"]:
                raise Denied(f"{where}: {call['role']} may not {call['action']} on {call['resource']}.")


def check_connection(pipeline: Pipeline, iam: Any) -> None:
    """Checks that every role that needs the connection to the Git host may use it. Raises `Denied`.

    AWS uses a connection without a call that could be logged. IAM compares the service of the action with that of the
    connection's ARN. Source: https://docs.aws.amazon.com/dtconsole/latest/userguide/rename.html
    """
    sources = [action for action in pipeline.actions if action.provider == "CodeStarSourceConnection"]
    connection = sources[0].configuration["ConnectionArn"]
    clones = {action.outputs[0] for action in sources if "OutputArtifactFormat" in action.configuration}
    users = {action.title: action.role_arn for action in sources}
    users |= {
        action.title: pipeline.projects[action.configuration["ProjectName"]].role_arn
        for action in pipeline.actions
        if clones & set(action.inputs)
    }
    for title, role_arn in users.items():
        call = Permission(f"{connection.split(':')[2]}:UseConnection", connection, {})
        if decide(call, [parsed(text) for text in _policies(iam, role_arn)]) is not PolicyDecision.ALLOWED:
            raise Denied(f"{title}: {role_arn} may not {call.action} on {call.resource}.")


def _policies(iam: Any, role_arn: str) -> list[str]:
    """Returns a role's inline policies as JSON. The roles of a pipeline have no managed policies."""
    name = role_arn.rpartition("/")[2]
    names = iam.list_role_policies(RoleName=name)["PolicyNames"]
    documents = [iam.get_role_policy(RoleName=name, PolicyName=each)["PolicyDocument"] for each in names]
    return [json.dumps(document) if not isinstance(document, str) else document for document in documents]
