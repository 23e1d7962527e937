"""`jobs cleanup` deletes expired resources with the tag, reports each, and can be interrupted."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import pytest

from aws_api.errors import AwsRefused, AwsUnreachable, NotFound
from aws_api.expiry import TAG, expiry_of, expiry_tag
from aws_api.sagemaker import ExpiringResource
from inference_recommender.__main__ import main
from inference_recommender.cli import jobs as command
from inference_recommender.measure.cleanup import cleanup

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
PAST, FUTURE = datetime(2020, 1, 2, 3, 4, tzinfo=UTC), NOW + timedelta(days=99999)
REJECTED = AwsRefused("DeleteEndpoint", "ValidationException", "Cannot delete it now.")


def resource(
    name: str, expires_at: datetime = PAST, kind: str = "endpoint", status: str | None = None
) -> ExpiringResource:
    return ExpiringResource(kind=kind, name=name, expires_at=expires_at, status=status)


class Account:
    """Has the given resources; `troubles` are raised when a resource of that name is deleted."""

    def __init__(self, *resources: ExpiringResource, **troubles: BaseException) -> None:
        self.resources = resources
        self.troubles = troubles
        self.deleted: list[str] = []

    def expiring_resources(self) -> Iterable[ExpiringResource]:
        return self.resources

    def delete_resource(self, resource: ExpiringResource) -> None:
        if resource.name in self.troubles:
            raise self.troubles[resource.name]
        self.deleted.append(resource.name)


@pytest.mark.parametrize(
    ("account", "dry_run", "outcomes"),
    [
        (
            Account(resource("old"), resource("now", NOW), resource("new", FUTURE)),
            False,
            {"old": "deleted", "now": "deleted", "new": "kept"},
        ),
        (Account(resource("old"), resource("new", FUTURE)), True, {"old": "would be deleted", "new": "kept"}),
        (
            Account(
                resource("half", status="Deleting"), resource("gone"), gone=NotFound("DeleteEndpoint", "404", "no")
            ),
            False,
            {"half": "already deleted", "gone": "already deleted"},
        ),
        (
            Account(resource("creating"), resource("old", kind="model"), creating=REJECTED),
            False,
            {"creating": "rejected", "old": "deleted"},
        ),
    ],
)
def test_only_expired_resources_are_deleted(account: Account, dry_run: bool, outcomes: dict[str, str]) -> None:
    assert {one.name: one.outcome for one in cleanup(account, NOW, dry_run=dry_run)} == outcomes
    assert account.deleted == [name for name, outcome in outcomes.items() if outcome == "deleted"]


@pytest.mark.parametrize("value", [None, "soon", "", "2026-11-22T12:00:00"])
def test_without_a_time_with_a_zone_a_resource_does_not_expire(value: str | None) -> None:
    assert expiry_of([] if value is None else [{"Key": TAG, "Value": value}]) is None
    assert expiry_of([expiry_tag(NOW)]) == NOW
    assert expiry_tag(NOW) == {"Key": "inference-recommender:expires-at", "Value": "2026-11-22T12:00:00+00:00"}


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(account: Account, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(command, "SageMakerAccount", lambda: account)
        code = main(["jobs", "cleanup", *arguments])
        return code, *capsys.readouterr()

    return run


def test_the_command_shows_the_outcome_of_each(run: Command) -> None:
    code, out, err = run(Account(resource("old"), resource("m", kind="model"), resource("new", FUTURE)))
    assert (code, err) == (0, "")
    assert ["endpoint", "old", "2020-01-02", "03:04", "deleted"] in [line.split() for line in out.splitlines()]
    assert out.endswith("2 deleted, 1 kept.\n")


def test_without_resources_the_command_says_so(run: Command) -> None:
    assert run(Account())[1].endswith("No resource has the tag inference-recommender:expires-at.\n")
    assert run(Account(), "--json") == (0, '{\n  "resources": []\n}\n', "")


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
        (
            AwsUnreachable("the line is dead"),
            3,
            ["deleted"],
            "AWS cannot be reached: the line is dead. If AWS_ENDPOINT_URL points at an account on this machine, start "
            "it with `python -m local_aws`.\n",
        ),
    ],
)
def test_a_cleanup_that_ends_early_says_what_is_left(
    run: Command, trouble: BaseException, code: int, outcomes: list[str], error: str
) -> None:
    ended, out, err = run(Account(resource("a"), resource("b"), resource("c"), b=trouble), "--json")
    assert [one["outcome"] for one in json.loads(out)["resources"]] == outcomes
    assert (ended, err) == (code, error)
