"""Deletes the expired resources that tests have left behind.

Only endpoints, endpoint configurations and models with the tag of `aws_api.expiry` are considered, and only expired
ones are deleted: endpoints first, because they cost money. One that cannot be deleted does not stop the others.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal, Protocol

from aws_api.errors import AwsRefused, NotFound
from aws_api.sagemaker import ExpiringResource
from workloads.document import Document

Outcome = Literal["kept", "would be deleted", "deleted", "already deleted", "rejected"]


class CleanupResult(Document):
    """The outcome for one resource."""

    kind: str
    name: str
    expires_at: datetime
    outcome: Outcome
    reason: str | None = None
    """Why AWS rejected the deletion."""


class CleanupAccount(Protocol):
    """The port to AWS. Every method raises `AwsUnavailable` if it is unreachable."""

    def expiring_resources(self) -> Iterable[ExpiringResource]:
        """Returns all resources with an expiry, in the order of deletion."""

    def delete_resource(self, resource: ExpiringResource) -> None:
        """Raises `NotFound` if it no longer exists, and `AwsRefused` if it cannot be deleted now."""


def cleanup(account: CleanupAccount, now: datetime, *, dry_run: bool) -> Iterator[CleanupResult]:
    """Yields one outcome per resource, without waiting for the others. Raises `AwsUnavailable`."""
    for resource in tuple(account.expiring_resources()):
        yield _cleaned_up(account, resource, now, dry_run=dry_run)


def _cleaned_up(account: CleanupAccount, resource: ExpiringResource, now: datetime, *, dry_run: bool) -> CleanupResult:
    if resource.expires_at > now:
        return _result(resource, "kept")
    if resource.status == "Deleting":
        return _result(resource, "already deleted")
    if dry_run:
        return _result(resource, "would be deleted")
    try:
        account.delete_resource(resource)
    except NotFound:
        return _result(resource, "already deleted")
    except AwsRefused as error:
        return _result(resource, "rejected", str(error))
    return _result(resource, "deleted")


def _result(resource: ExpiringResource, outcome: Outcome, reason: str | None = None) -> CleanupResult:
    return CleanupResult(
        kind=resource.kind, name=resource.name, expires_at=resource.expires_at, outcome=outcome, reason=reason
    )
