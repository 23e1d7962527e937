"""The use case of `sweep`: delete what tests left behind, and nothing else.

`Account` is the port to AWS. Only endpoints, endpoint configurations and models with the tag of `aws_api.expiry` are
looked at, and of these only the expired are deleted: endpoints first, because they cost money. One that cannot be
deleted does not keep the others from it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from aws_api.errors import AwsRefused, AwsUnavailable, NotFound, translate_aws_errors
from aws_api.expiry import expiry_of
from aws_api.session import AwsSession
from workloads.document import Document

Kind = Literal["endpoint", "endpoint-config", "model"]
Outcome = Literal["kept", "would be deleted", "deleted", "deleted before", "refused", "not tried"]
LISTED: Mapping[Kind, tuple[str, str, str]] = {
    "endpoint": ("list_endpoints", "Endpoints", "Endpoint"),
    "endpoint-config": ("list_endpoint_configs", "EndpointConfigs", "EndpointConfig"),
    "model": ("list_models", "Models", "Model"),
}
"""The call that lists each kind, the key of its answer, and what names and ARNs begin with there; in the order in which
they are deleted."""
DELETING = "Deleting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Expiring:
    """A thing with an expiry."""

    kind: Kind
    name: str
    expires_at: datetime
    status: str | None = None
    """EndpointStatus, of an endpoint."""


class Swept(Document):
    """Says what became of one thing."""

    kind: Kind
    name: str
    expires_at: datetime
    outcome: Outcome
    reason: str | None = None
    """Why AWS refused to delete it."""


class Account(Protocol):
    """The port to AWS. Every method raises `AwsUnavailable` where it is not there."""

    def expiring(self) -> Iterable[Expiring]:
        """Returns everything with an expiry, in the order in which it is to be deleted."""

    def delete(self, thing: Expiring) -> None:
        """Raises `NotFound` where it is gone, and `AwsRefused` where it cannot be deleted now."""


def sweep(account: Account, now: datetime, *, dry_run: bool) -> tuple[Swept, ...]:
    """Deletes what has expired. Raises `Suspended` where it was interrupted or AWS cannot be reached any more."""
    found = tuple(account.expiring())
    done: list[Swept] = []
    try:
        for thing in found:
            done.append(_swept(account, thing, now, dry_run=dry_run))
    except (KeyboardInterrupt, AwsUnavailable) as error:
        rest = (_outcome(thing, "not tried" if thing.expires_at <= now else "kept") for thing in found[len(done) :])
        raise Suspended((*done, *rest), error) from error
    return tuple(done)


class Suspended(Exception):
    """Ends a sweep before its end. `swept` has what was done by then, and what was not tried."""

    def __init__(self, swept: tuple[Swept, ...], cause: KeyboardInterrupt | AwsUnavailable) -> None:
        self.swept = swept
        self.cause = cause


def _swept(account: Account, thing: Expiring, now: datetime, *, dry_run: bool) -> Swept:
    if thing.expires_at > now:
        return _outcome(thing, "kept")
    if thing.status == DELETING:
        return _outcome(thing, "deleted before")
    if dry_run:
        return _outcome(thing, "would be deleted")
    try:
        account.delete(thing)
    except NotFound:
        return _outcome(thing, "deleted before")
    except AwsRefused as error:
        return _outcome(thing, "refused", str(error))
    return _outcome(thing, "deleted")


def _outcome(thing: Expiring, outcome: Outcome, reason: str | None = None) -> Swept:
    return Swept(kind=thing.kind, name=thing.name, expires_at=thing.expires_at, outcome=outcome, reason=reason)


class SweepAws(AwsSession):
    """An `Account`. The tags of each endpoint, configuration and model are asked for one by one: the service lists none
    by their tags."""

    def expiring(self) -> Sequence[Expiring]:
        return tuple(thing for kind in LISTED for thing in self._of_kind(kind))

    def delete(self, thing: Expiring) -> None:
        _, _, noun = LISTED[thing.kind]
        call = getattr(self._sagemaker, f"delete_{thing.kind.replace('-', '_')}")
        with translate_aws_errors(f"Delete{noun}"):
            call(**{f"{noun}Name": thing.name})

    def _of_kind(self, kind: Kind) -> Iterator[Expiring]:
        call, key, noun = LISTED[kind]
        with translate_aws_errors(f"List{key}"):
            listed = [item for page in self._sagemaker.get_paginator(call).paginate() for item in page[key]]
        for item in listed:
            expires_at = expiry_of(self._tags(item[f"{noun}Arn"]))
            if expires_at is not None:
                name, status = item[f"{noun}Name"], item.get("EndpointStatus")
                yield Expiring(kind=kind, name=name, expires_at=expires_at, status=status)

    def _tags(self, arn: str) -> list[dict[str, str]]:
        """Returns no tags of what was deleted since it was listed."""
        try:
            with translate_aws_errors("ListTags"):
                pages = self._sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
                return [tag for page in pages for tag in page["Tags"]]
        except NotFound:
            return []

    @property
    def _sagemaker(self) -> Any:
        return self.client("sagemaker")
