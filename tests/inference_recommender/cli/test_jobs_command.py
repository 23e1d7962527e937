"""`jobs cleanup` deletes expired resources with the tag, reports each, and can be interrupted.

tests/local_aws/sagemaker/test_job_commands.py has the other actions.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from aws_api.errors import AwsRefused, AwsUnreachable, NotFound
from aws_api.expiry import TAG, expiry_of, expiry_tag
from aws_api.sagemaker import ExpiringResource, SageMakerAccount
from inference_recommender.cli import jobs
from tests.inference_recommender.conftest import Cli

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
PAST, FUTURE = datetime(2020, 1, 2, 3, 4, tzinfo=UTC), NOW + timedelta(days=99999)
REJECTED = AwsRefused("DeleteEndpoint", "ValidationException", "Cannot delete it now.")


def resource(
    name: str, expires_at: datetime = PAST, kind: str = "endpoint", status: str | None = None
) -> ExpiringResource:
    return ExpiringResource(kind=kind, name=name, expires_at=expires_at, status=status)


class Leftovers(SageMakerAccount):
    """Has the given resources; `troubles` are raised when a resource of that name is deleted."""

    def __init__(self, *resources: ExpiringResource, **troubles: BaseException) -> None:
        self.resources = resources
        self.troubles = troubles
        self.deleted: list[str] = []

    def expiring_resources(self) -> list[ExpiringResource]:
        return [*self.resources]

    def delete_resource(self, resource: ExpiringResource) -> None:
        if resource.name in self.troubles:
            raise self.troubles[resource.name]
        self.deleted.append(resource.name)

    def list_jobs(self, name_contains: str | None, limit: int) -> list[dict[str, object]]:
        return []


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Command:
    def run(account: Leftovers, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(jobs, "SageMakerAccount", lambda: account)
        return cli("jobs", *arguments)

    return run


@pytest.mark.parametrize(
    ("account", "arguments", "outcomes"),
    [
        (Leftovers(resource("old"), resource("new", FUTURE)), (), {"old": "deleted", "new": "kept"}),
        (
            Leftovers(resource("old"), resource("new", FUTURE)),
            ("--dry-run",),
            {"old": "would be deleted", "new": "kept"},
        ),
        (
            Leftovers(resource("half", status="Deleting"), resource("gone"), gone=NotFound("Delete", "404", "no")),
            (),
            {"half": "already deleted", "gone": "already deleted"},
        ),
        (Leftovers(), (), {}),
    ],
)
def test_only_expired_resources_are_deleted(
    run: Command, account: Leftovers, arguments: tuple[str, ...], outcomes: dict[str, str]
) -> None:
    code, out, err = run(account, "cleanup", "--json", *arguments)
    assert (code, err) == (0, "")
    assert {one["name"]: one["outcome"] for one in json.loads(out)["resources"]} == outcomes
    assert account.deleted == [name for name, outcome in outcomes.items() if outcome == "deleted"]


@pytest.mark.parametrize("value", [None, "soon", "", "2026-11-22T12:00:00"])
def test_without_a_time_with_a_zone_a_resource_does_not_expire(value: str | None) -> None:
    assert expiry_of([] if value is None else [{"Key": TAG, "Value": value}]) is None
    assert expiry_of([expiry_tag(NOW)]) == NOW


def test_the_command_shows_the_outcome_of_each(run: Command) -> None:
    leftovers = Leftovers(resource("old"), resource("m", kind="model"), resource("new", FUTURE))
    code, out, err = run(leftovers, "cleanup")
    assert (code, err) == (0, "")
    assert ["endpoint", "old", "2020-01-02", "03:04", "deleted"] in [line.split() for line in out.splitlines()]
    assert out.endswith("2 deleted, 1 kept.\n")
    assert run(Leftovers(), "cleanup")[1].endswith("No resource has the tag inference-recommender:expires-at.\n")
    assert run(Leftovers(), "list") == (0, "", "No jobs.\n")


@pytest.mark.parametrize(
    ("trouble", "code", "outcomes", "error"),
    [
        (
            REJECTED,
            3,
            ["deleted", "rejected", "deleted"],
            "endpoint b: AWS refused DeleteEndpoint: ValidationException: Cannot delete it now.\n"
            "All others are deleted. Run it again for these.\n",
        ),
        (KeyboardInterrupt(), 130, ["deleted"], "Interrupted. Run it again for the resources that are left.\n"),
        (AwsUnreachable("the line is dead"), 3, ["deleted"], f"{AwsUnreachable('the line is dead')}\n"),
    ],
)
def test_a_cleanup_that_ends_early_says_what_is_left(
    run: Command, trouble: BaseException, code: int, outcomes: list[str], error: str
) -> None:
    ended, out, err = run(Leftovers(resource("a"), resource("b"), resource("c"), b=trouble), "cleanup", "--json")
    assert [one["outcome"] for one in json.loads(out)["resources"]] == outcomes
    assert (ended, err) == (code, error)
