"""Reads which calls roles made at the account, and tells the one that a role's own policies do not allow.

The account evaluates the policies and notes each call. A program may get over a denial without a word, so the notes are
read after every action. A connection is used by AWS itself, without a call: `check_connection` asks the policies.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local_aws.permissions.policy import Asked, Decision, decide, parsed
from scripts.rehearsal.release.pipeline_template import Pipeline
from scripts.rehearsal.release.roles import Denied

GENERATED = re.compile(r"-[0-9A-Z]{12}$")


class CallsLog:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self.roles: dict[str, set[str]] = {}
        """The actions that each role has used, by the role's name."""

    def check(self, where: str) -> None:
        """Reads what was noted since the last time. Raises `Denied` for the first call that was not allowed."""
        if not self._file.exists():
            return
        with self._file.open("rb") as file:
            file.seek(self._read)
            lines = file.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._read += sum(map(len, whole))
        calls: list[Mapping[str, Any]] = [json.loads(line) for line in whole]
        for call in calls:
            # Without the ending that CloudFormation makes: beta's roles are made anew by every release.
            role = GENERATED.sub("", str(call["role"]).rpartition("/")[2])
            self.roles.setdefault(role, set()).add(call["action"])
        for call in calls:
            if not call["allowed"]:
                raise Denied(f"{where}: {call['role']} may not {call['action']} on {call['resource']}.")


def check_connection(pipeline: Pipeline, iam: Any) -> str:
    """Returns the connection's ARN, which the source's roles and those of the builds that get a clone may use.

    An action on a connection is granted under the service in the connection's ARN: IAM compares the two. Raises
    `Denied`. Source: https://docs.aws.amazon.com/dtconsole/latest/userguide/rename.html
    """
    sources = [action for action in pipeline.actions if action.provider == "CodeStarSourceConnection"]
    connection = sources[0].configuration["ConnectionArn"]
    service = connection.split(":")[2]
    clones = {action.outputs[0] for action in sources if "OutputArtifactFormat" in action.configuration}
    users = {f"{action.stage}/{action.name}": action.role_arn for action in sources}
    users |= {
        f"{action.stage}/{action.name}": pipeline.projects[action.configuration["ProjectName"]].role_arn
        for action in pipeline.actions
        if clones & set(action.inputs)
    }
    for where, role_arn in users.items():
        asked = Asked(f"{service}:UseConnection", connection, {})
        if decide(asked, [parsed(text) for text in policies_of(iam, role_arn)]) is not Decision.ALLOWED:
            raise Denied(f"{where}: {role_arn} may not {asked.action} on {asked.resource}.")
    return connection


def policies_of(iam: Any, role_arn: str) -> list[str]:
    """Returns a role's inline policies, as JSON. The roles of a pipeline have no others."""
    name = role_arn.rpartition("/")[2]
    names = iam.list_role_policies(RoleName=name)["PolicyNames"]
    documents = [iam.get_role_policy(RoleName=name, PolicyName=each)["PolicyDocument"] for each in names]
    return [json.dumps(document) if not isinstance(document, str) else document for document in documents]
