"""Where a release comes from, as cdk.json's context says: `release-repository`, `release-connection`, `release-branch`.

In cdk.json and not on the command line: the pipeline synthesises itself, and reads what is committed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stacks.errors import IncompleteRelease, WrongRelease

REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)+")
CONNECTION = re.compile(
    r"arn:aws[a-z-]*:(codeconnections|codestar-connections):[a-z0-9-]+:\d{12}:connection/[0-9a-f-]{36}"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseSource:
    repository: str
    """OWNER/NAME."""
    connection_arn: str
    """Of AWS CodeConnections, made and confirmed by hand once: it is a person's consent at the repository's host."""
    branch: str = "main"


def read_release(context: Callable[[str], Any]) -> ReleaseSource | None:
    """None where cdk.json names no release. Raises `IncompleteRelease` or `WrongRelease`."""
    repository, connection = context("release-repository"), context("release-connection")
    if repository is None and connection is None:
        return None
    if repository is None or connection is None:
        raise IncompleteRelease("release-repository" if repository is None else "release-connection")
    for key, value, form, example in (
        ("release-repository", repository, REPOSITORY, "OWNER/NAME"),
        ("release-connection", connection, CONNECTION, "arn:aws:codeconnections:REGION:ACCOUNT:connection/ID"),
    ):
        if not form.fullmatch(str(value)):
            raise WrongRelease(key, value, example)
    return ReleaseSource(
        repository=str(repository), connection_arn=str(connection), branch=str(context("release-branch") or "main")
    )
