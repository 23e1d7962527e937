"""`python -m inference_recommender.load_generator`: its events, its files, its verdict and its exit code.

In virtual time. test_process.py starts the real program.
"""

import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.load_generator import __main__ as command
from inference_recommender.load_generator.load_plan import LoadPlan, StoppingConditions, TrafficPattern
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.records import SentRequests
from inference_recommender.payloads import payload_archive
from tests.builders import known
from tests.containers.hostile_archives import file, packed
from tests.inference_recommender.load_generator.virtual_run import BODIES, plan_of, records_of, run_command, users
from tests.virtual_time import EPOCH, Serve, answering
from workloads.program import exit_code

P95 = StoppingConditions.model_validate(
    {"ModelLatencyThresholds": [{"Percentile": "P95", "ValueInMilliseconds": 500}]}, strict=False
)
Events = list[dict[str, Any]]
Run = Callable[..., tuple[Outcome, Events]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in virtual time; returns its outcome and the events on stdout."""

    def run(
        serve: Serve, traffic: TrafficPattern | None = None, **options: Any
    ) -> tuple[Outcome, list[dict[str, Any]]]:
        traffic = traffic or users((4, 3), spawn_rate=60)
        plan = plan_of(traffic, stopping_conditions=P95, job_duration_s=100.0, window_s=0.5)
        outcome = run_command(plan, serve, tmp_path / "out", **options)
        return outcome, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_a_run_prints_its_windows_and_keeps_every_request(run: Run) -> None:
    seen: list[bytes] = []

    def answer(body: bytes) -> tuple[int, bytes]:
        seen.append(body)
        return 200, b"{}"

    outcome, events = run(answering(0.01, answer))
    assert (outcome.exit_code, outcome.reason) == (0, "traffic ended")
    assert [event["event"] for event in events] == ["started", *["window"] * 6, "finished"]
    assert events[0] == {"event": "started", "started_at": EPOCH + 1000, "payloads": len(BODIES)}
    assert [window["users"] for window in events[1:-1]] == [4, 4, 5, 5, 6, 6]
    assert events[-1]["reason"] == "traffic ended"
    records = records_of(outcome)
    assert len(records["finished_s"]) == len(seen) == known(outcome.summary)["invocations"]
    assert set(records["status"]) == {200}
    assert (records["intended_s"] <= records["sent_s"]).all()
    assert (records["sent_s"] < records["finished_s"]).all()
    assert set(seen) == set(BODIES)
    assert len(SentRequests.read(outcome.records)) == len(seen)


def test_the_summary_knows_capacity_latency_and_the_generator_s_own_limits(run: Run) -> None:
    outcome, _ = run(answering(0.01), users((4, 30)), cpu_share=0.25)
    assert outcome.summary is not None
    assert outcome.summary["closed_loop_invocations_per_minute"] == pytest.approx(4 * 100 * 60, rel=0.01)
    assert outcome.summary["client_latency_ms"]["p95"] == pytest.approx(10)
    assert outcome.summary["generator"] == {
        "cpu_share": pytest.approx(0.25, rel=0.001),
        "lag_ms": pytest.approx(0, abs=1e-6),
    }


def test_the_summary_has_the_latency_by_size_of_the_request(run: Run) -> None:
    """Half of the bodies have seven bytes, and the others, of eight, take four times as long."""
    outcome, _ = run(answering(lambda request: 0.01 if len(request.body) == 7 else 0.04), users((2, 4)))
    short, long = known(outcome.summary)["latency_by_size"]
    assert (short["bytes_at_most"], short["p99_ms"]) == (7, pytest.approx(10))
    assert (long["bytes_at_most"], long["p50_ms"]) == (8, pytest.approx(40))
    assert short["requests"] + long["requests"] == known(outcome.summary)["invocations"]


def test_too_many_errors_make_the_run_invalid(run: Run) -> None:
    outcome, events = run(answering(0.01, lambda body: (500, b"no") if body == b"query 3" else (200, b"{}")))
    assert outcome.exit_code == 4
    assert events[-1]["reason"].startswith("too many errors: ")
    assert events[-1]["reason"].endswith("requests failed; the first: HTTP 500: no")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_in_good_order(run: Run, number: signal.Signals) -> None:
    outcome, events = run(answering(), users((4, 60)), events={1.25: lambda loop: loop.signal_handlers[number]()})
    assert (outcome.exit_code, events[-1]) == (0, {"event": "finished", "reason": "stopped"})
    assert known(outcome.summary)["duration_s"] == pytest.approx(1.25)
    assert known(outcome.summary)["invocations"] == pytest.approx(4 * 126, abs=4)


def _main(arguments: list[str]) -> int:
    return exit_code(lambda: command.main(arguments))


def _arguments(folder: Path) -> list[str]:
    """Writes a plan and its payloads, and returns the arguments to run it."""
    payloads = folder / "payloads.tar.gz"
    payloads.write_bytes(payload_archive([{"text": "query"}]))
    plan_of(users((1, 1)), payloads=payloads).write_json(folder / "plan.json")
    return [str(folder / "plan.json"), "--out", str(folder / "out")]


def test_a_disk_that_fills_during_the_run_costs_the_largest_file_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SentRequests, "write", _full_disk)
    outcome, events = run(answering(0.01))
    assert outcome.exit_code == 3
    assert events[-1]["reason"] == "records.npz cannot be written: No space left on device"
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["summary.json"]


def _full_disk(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "records.npz")


def test_the_plan_that_help_shows_is_one(tmp_path: Path) -> None:
    shown = str(command.__doc__)
    (tmp_path / "plan.json").write_text(shown[shown.index("{") : shown.rindex("}") + 1], "utf-8")
    plan = LoadPlan.from_json(tmp_path / "plan.json")
    assert plan.stopping_conditions.latency is not None


WITHOUT_FILES = packed()


@pytest.mark.parametrize(
    ("payloads", "why"),
    [
        (payload_archive([{"text": "query"}])[:100], "cannot be read: "),
        (packed(file("../payload.json", b"{}")), "cannot be read: '../payload.json' could lead out of the folder. "),
        (WITHOUT_FILES, "holds no file. Give a tar.gz of request bodies, one file each.\n"),
    ],
)
def test_payloads_that_cannot_be_read_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], payloads: bytes, why: str
) -> None:
    arguments = _arguments(tmp_path)
    (tmp_path / "payloads.tar.gz").write_bytes(payloads)
    assert _main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'payloads.tar.gz'}: {why}")


@pytest.mark.parametrize(("full", "code", "why"), [(False, 2, "File exists"), (True, 3, "No space left on device")])
def test_a_folder_that_cannot_be_written_is_refused_before_any_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, full: bool, code: int, why: str
) -> None:
    arguments = _arguments(tmp_path)
    if full:
        monkeypatch.setattr("os.fsync", _full_disk)
    else:
        (tmp_path / "out").write_text("a file")
    assert _main(arguments) == code
    assert capsys.readouterr().err == (
        f"--out: {tmp_path / 'out'} cannot be written: {why}. Mend that, or name another folder.\n"
    )
