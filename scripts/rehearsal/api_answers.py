"""Asks the services' APIs about a resource of a CloudFormation type, by the calls of api_answers.toml."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jmespath
import tomllib
from botocore.exceptions import ClientError

Client = Callable[[str], Any]

# Errors for a part of a resource that was never set, or is not kept: local_aws leaves out policies under a condition.
NO_SUCH = (
    "NoSuchBucketPolicy",
    "NoSuchLifecycleConfiguration",
    "NoSuchPublicAccessBlockConfiguration",
    "NoSuchTagSet",
    "OwnershipControlsNotFoundError",
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A call of api_answers.toml."""

    service: str
    operation: str
    path: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)

    def ask(self, client: Client, physical_id: str, asked: Mapping[str, Any]) -> Any:
        """Returns the answer's part about the resource; None if there is none."""
        parts = {"id": physical_id, "last": physical_id.replace(":", "/").split("/")[-1]}
        parts |= {f"part{number}": part for number, part in enumerate(physical_id.split("|"))}
        if ":service/" in physical_id:
            parts["cluster"] = physical_id.split("/")[-2]
        if ":resource/" in physical_id:
            parts["namespace"] = physical_id.partition(":resource/")[2].split("/")[0]
        if "Roles" in asked:
            parts |= {"role": asked["Roles"][0], "policy": asked.get("PolicyName", "")}
        parameters = _filled(self.parameters, parts)
        try:
            answer = getattr(client(self.service), self.operation)(**parameters)
        except ClientError as error:
            if error.response["Error"]["Code"] in NO_SUCH:
                return {}
            raise
        return jmespath.search(self.path.format(**parts), answer)

    def renamed(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        return {self.renames.get(key, key): value for key, value in properties.items()}


def _filled(value: Any, parts: Mapping[str, str]) -> Any:
    match value:
        case str():
            return value.format(**parts)
        case list():
            return [_filled(each, parts) for each in value]
        case Mapping():
            return {key: _filled(each, parts) for key, each in value.items()}
    return value


ANSWERS = {
    kind: tuple(Answer(**call) for call in calls)
    for kind, calls in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}


def ask(kind: str, client: Client, physical_id: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """Merges the answers of all calls for a type; None if the first call knows no such resource."""
    told: dict[str, Any] = {}
    for number, answer in enumerate(ANSWERS[kind]):
        part = answer.ask(client, physical_id, asked)
        if number == 0 and not part and part != {}:
            return None
        told |= part or {}
    return told
