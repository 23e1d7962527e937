"""`sweep` deletes what expired and carries the tag, tells what became of each, and can be interrupted."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aws_api.errors import AwsRefused, AwsUnreachable, NotFound
from aws_api.expiry import TAG, expiry_of, expiry_tag
from inference_recommender.__main__ import main
from inference_recommender.cli import sweep as command
from inference_recommender.measure.cleanup import Expiring, Kind, sweep

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
PAST, FUTURE = NOW - timedelta(hours=1), NOW + timedelta(hours=1)


def thing(name: str, expires_at: datetime = PAST, kind: Kind = "endpoint", status: str | None = None) -> Expiring:
    return Expiring(kind=kind, name=name, expires_at=expires_at, status=status)


class Account:
    """Has what it is given; `troubles` are raised when a thing of that name is deleted."""

    def __init__(self, *things: Expiring, **troubles: BaseException) -> None:
        self.things = things
        self.troubles = troubles
        self.deleted: list[str] = []

    def expiring(self) -> Iterable[Expiring]:
        return self.things

    def delete(self, thing: Expiring) -> None:
        if thing.name in self.troubles:
            raise self.troubles[thing.name]
        self.deleted.append(thing.name)


def outcomes(account: Account, *, dry_run: bool = False) -> dict[str, str]:
    return {one.name: one.outcome for one in sweep(account, NOW, dry_run=dry_run)}


def test_only_what_has_expired_is_deleted() -> None:
    account = Account(thing("old"), thing("now", NOW), thing("new", FUTURE))
    assert outcomes(account) == {"old": "deleted", "now": "deleted", "new": "kept"}
    assert account.deleted == ["old", "now"]


def test_a_dry_run_deletes_nothing() -> None:
    account = Account(thing("old"), thing("new", FUTURE))
    assert outcomes(account, dry_run=True) == {"old": "would be deleted", "new": "kept"}
    assert account.deleted == []


def test_what_is_being_deleted_or_gone_by_then_is_no_failure() -> None:
    account = Account(thing("half", status="Deleting"), thing("gone"), gone=NotFound("DeleteEndpoint", "404", "no"))
    assert outcomes(account) == {"half": "deleted before", "gone": "deleted before"}


def test_what_cannot_be_deleted_does_not_keep_the_others_from_it() -> None:
    refused = AwsRefused("DeleteEndpoint", "ValidationException", "Cannot delete it while it is being created.")
    account = Account(thing("creating"), thing("old", kind="model"), creating=refused)
    assert outcomes(account) == {"creating": "refused", "old": "deleted"}


@pytest.mark.parametrize(
    "tags",
    [
        [],
        [{"Key": "workload", "Value": "spellcheck"}],
        [{"Key": TAG, "Value": "soon"}],
        [{"Key": TAG, "Value": ""}],
        [{"Key": TAG, "Value": "2026-11-22T12:00:00"}],
    ],
)
def test_without_a_time_with_a_zone_nothing_expires(tags: list[dict[str, str]]) -> None:
    assert expiry_of(tags) is None


def test_a_tag_holds_its_time_to_the_second() -> None:
    assert expiry_tag(NOW) == {"Key": "inference-recommender:expires-at", "Value": "2026-11-22T12:00:00+00:00"}
    assert expiry_of([expiry_tag(NOW)]) == NOW


class Shown:
    def __init__(self, account: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(command, "SweepAws", lambda notify: account)
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = main(["sweep", *arguments])
        return code, *self._capsys.readouterr()


OLD = thing("spellcheck-experiment-1-cpu-1", datetime(2020, 1, 2, 3, 4, tzinfo=UTC))
MODEL = thing("spellcheck-experiment-1-cpu", OLD.expires_at, "model")


def test_the_command_shows_what_became_of_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = Shown(Account(OLD, MODEL, thing("new", datetime.max.replace(tzinfo=UTC))), monkeypatch, capsys)()
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines() if OLD.name in line] == [
        ["endpoint", OLD.name, "2020-01-02", "03:04", "deleted"]
    ]
    assert out.endswith("2 deleted, 1 kept.\n")


def test_where_nothing_has_the_tag_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Shown(Account(), monkeypatch, capsys)
    assert shown() == (0, "Nothing has the tag inference-recommender:expires-at.\n", "")
    assert shown("--json") == (0, '{\n  "swept": []\n}\n', "")


def test_a_refusal_ends_with_3_after_the_others_are_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    account = Account(OLD, MODEL, **{OLD.name: AwsRefused("DeleteEndpoint", "AccessDeniedException", "no policy")})
    code, out, err = Shown(account, monkeypatch, capsys)("--json")
    assert [one["outcome"] for one in json.loads(out)["swept"]] == ["refused", "deleted"]
    assert (code, err) == (
        3,
        f"endpoint {OLD.name}: AWS refused DeleteEndpoint: AccessDeniedException: no policy\n"
        "The others are done. Run it again for these, or delete them by hand.\n",
    )


def test_ctrl_c_tells_what_was_deleted_and_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = thing("other")
    account = Account(OLD, other, MODEL, other=KeyboardInterrupt())
    code, out, err = Shown(account, monkeypatch, capsys)("--json")
    found: list[Any] = json.loads(out)["swept"]
    assert [one["outcome"] for one in found] == ["deleted", "not tried", "not tried"]
    assert (code, err) == (130, "Interrupted: 2 that expired are left. Run it again for them.\n")


def test_an_aws_that_goes_away_leaves_the_rest_untried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    account = Account(OLD, MODEL, **{MODEL.name: AwsUnreachable("the line is dead")})
    code, out, err = Shown(account, monkeypatch, capsys)()
    assert (code, out.splitlines()[-1]) == (3, "1 deleted, 1 not tried.")
    assert err == (
        "AWS cannot be reached: the line is dead. If AWS_ENDPOINT_URL points at an account on this machine, start it "
        "with `python -m local_aws`.\n1 that expired are left. Run it again for them.\n"
    )
