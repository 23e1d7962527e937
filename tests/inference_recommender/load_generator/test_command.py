"""`python -m inference_recommender.load_generator`: its events, its files, its verdict and its exit code.

In virtual time but for the last three, which start the real program against a real server on loopback and assert only
what does not depend on its speed.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference_recommender.load_generator import __main__ as command
from inference_recommender.load_generator.plan import LoadPlan, StoppingConditions, TrafficPattern
from inference_recommender.load_generator.process import COMMAND, Outcome
from inference_recommender.load_generator.records import SentRequests
from inference_recommender.payloads import payload_archive
from tests.containers.hostile_archives import file, packed
from tests.inference_recommender.load_generator.virtual_run import BODIES, plan_of, records_of, run_command, users
from tests.inference_recommender.server import serving
from tests.virtual_time import EPOCH, Serve, VirtualLoop, answering

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
    assert outcome.summary is not None
    records = records_of(outcome)
    assert len(records["finished_s"]) == len(seen) == outcome.summary["invocations"]
    assert set(records["status"]) == {200}
    assert (records["intended_s"] <= records["sent_s"]).all()
    assert (records["sent_s"] < records["finished_s"]).all()
    assert set(seen) == set(BODIES)
    assert len(SentRequests.read(outcome.records)) == len(seen)


def test_the_summary_knows_capacity_latency_and_the_generator_s_own_limits(run: Run) -> None:
    outcome, _ = run(answering(0.01), users((4, 30)), cpu_share=0.25)
    assert outcome.summary is not None
    assert outcome.summary["max_invocations_per_minute"] == pytest.approx(4 * 100 * 60, rel=0.01)
    assert outcome.summary["client_latency_ms"]["p95"] == pytest.approx(10)
    assert outcome.summary["generator"] == {
        "cpu_share": pytest.approx(0.25, rel=0.001),
        "lag_ms": pytest.approx(0, abs=1e-6),
        "peak_per_second": pytest.approx(400, abs=4),
    }


def test_a_target_that_failed_is_exit_code_3(run: Run) -> None:
    outcome, events = run(answering(0.01, lambda body: (400, b'{"error":"unexpected input TEXTS"}')))
    assert outcome.exit_code == 3
    assert events[-1]["reason"] == 'target failed: HTTP 400: {"error":"unexpected input TEXTS"}'


def test_too_many_errors_make_the_run_invalid(run: Run) -> None:
    outcome, events = run(answering(0.01, lambda body: (500, b"no") if body == b"query 3" else (200, b"{}")))
    assert outcome.exit_code == 4
    assert events[-1]["reason"].startswith("too many errors: ")
    assert events[-1]["reason"].endswith("requests failed; the first: HTTP 500: no")


def test_too_few_samples_make_the_run_invalid(run: Run) -> None:
    outcome, events = run(answering(0.5), users((1, 2)))
    assert outcome.exit_code == 4
    assert events[-1]["reason"].startswith(
        "too few samples: P95 needs at least 59 independent requests at one load; the run"
    )


def test_a_generator_without_a_core_of_its_own_makes_the_run_invalid(run: Run) -> None:
    outcome, _ = run(answering(), cpu_share=0.95)
    assert outcome.exit_code == 4
    assert outcome.reason == "generator lagged: it used 95% of its core, so it was the bottleneck"


def test_a_stall_before_every_window_is_no_lag_of_the_generator(run: Run) -> None:
    events = {tick / 2 - 0.001: lambda loop: loop.block(0.061) for tick in range(1, 7)}
    outcome, _ = run(answering(), users((4, 3)), events=events)
    assert (outcome.exit_code, outcome.reason) == (0, "traffic ended")
    assert outcome.summary is not None
    assert outcome.summary["stalled_s"] == pytest.approx(0.4, abs=0.06)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_in_good_order(run: Run, number: signal.Signals) -> None:
    def interrupt(loop: VirtualLoop) -> None:
        loop.signal_handlers[number]()

    outcome, events = run(answering(), users((4, 60)), events={1.25: interrupt})
    assert (outcome.exit_code, events[-1]) == (0, {"event": "finished", "reason": "stopped"})
    assert outcome.summary is not None
    assert outcome.summary["duration_s"] == pytest.approx(1.25)
    assert outcome.summary["invocations"] == pytest.approx(4 * 126, abs=4)


def test_payloads_that_cannot_be_read_are_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payloads, plan = tmp_path / "payloads.tar.gz", tmp_path / "plan.json"
    plan_of(users((1, 1)), payloads=payloads).write_json(plan)
    payloads.write_bytes(payload_archive([{"text": f"query {number}"} for number in range(20)])[:100])
    assert command.main([str(plan), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith(f"{payloads}: cannot be read: ")
    payloads.write_bytes(packed(file("../payload.json", b"{}")))
    assert command.main([str(plan), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        f"{payloads}: cannot be read: '../payload.json' could lead out of the folder. Give a folder or a tar.gz of "
        "request bodies, one file each.\n"
    )
    with tarfile.open(payloads, "w:gz"):
        pass
    assert command.main([str(plan), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        f"{payloads}: holds no file. Give a folder or a tar.gz of request bodies, one file each.\n"
    )


def _arguments(folder: Path, **members: Any) -> list[str]:
    """Writes a plan and its payloads, and returns the arguments to run it."""
    payloads = folder / "payloads.tar.gz"
    payloads.write_bytes(payload_archive([{"text": "query"}]))
    plan_of(users((1, 1)), payloads=payloads, **members).write_json(folder / "plan.json")
    return [str(folder / "plan.json"), "--out", str(folder / "out")]


def test_a_folder_that_cannot_be_written_is_refused_before_any_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("a file")
    assert command.main(_arguments(tmp_path)) == 2
    assert capsys.readouterr().err == (
        f"--out: {tmp_path / 'out'} cannot be written: File exists. Mend that, or name another folder.\n"
    )


def test_a_full_disk_is_refused_before_any_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = _arguments(tmp_path)
    monkeypatch.setattr("os.fsync", _full_disk)
    assert command.main(arguments) == 3
    assert capsys.readouterr().err == (
        f"--out: {tmp_path / 'out'} cannot be written: No space left on device. Mend that, or name another folder.\n"
    )
    assert list((tmp_path / "out").iterdir()) == []


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


def test_a_header_that_was_not_kept_has_to_be_given_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[LoadPlan] = []
    monkeypatch.setattr(command, "run_plan", lambda plan, outgoing, out: sent.append(plan))
    monkeypatch.setattr("uvloop.run", lambda nothing: 0)
    arguments = _arguments(tmp_path, headers={"Authorization": "Bearer secret", "X-Trace": "1"})
    plan = tmp_path / "plan.json"
    LoadPlan.from_json(plan).without_secrets().write_json(plan)
    assert "secret" not in plan.read_text("utf-8")
    assert '"Authorization": "(not kept)"' in plan.read_text("utf-8")

    assert command.main(arguments) == 2
    assert capsys.readouterr().err == (
        "headers.Authorization: its value was not kept with the plan. Give it with --headers FILE, a JSON object of "
        "names and values; - reads it from standard input.\n"
    )
    given = {"Authorization": "Bearer secret", "X-Trace": "1"}
    (tmp_path / "headers.json").write_text(json.dumps(given), "utf-8")
    assert command.main([*arguments, "--headers", str(tmp_path / "headers.json")]) == 0
    assert sent[0].headers == given

    (tmp_path / "headers.json").write_text('["Bearer secret"]', "utf-8")
    assert command.main([*arguments, "--headers", str(tmp_path / "headers.json")]) == 2
    assert capsys.readouterr().err == (
        f"--headers {tmp_path / 'headers.json'}: is no JSON object of names and values.\n"
    )


def test_the_plan_that_help_shows_is_one(tmp_path: Path) -> None:
    shown = str(command.__doc__)
    (tmp_path / "plan.json").write_text(shown[shown.index("{") : shown.rindex("}") + 1], "utf-8")
    plan = LoadPlan.from_json(tmp_path / "plan.json")
    assert plan.stopping_conditions.latency is not None


def _start(folder: Path, url: str, seconds: int) -> "subprocess.Popen[str]":
    payloads = folder / "payloads.tar.gz"
    payloads.write_bytes(payload_archive([{"text": f"query {number}"} for number in range(20)]))
    plan = plan_of(users((4, seconds)), url=url, payloads=payloads, window_s=0.25)
    plan.write_json(folder / "plan.json")
    return subprocess.Popen(
        [*COMMAND, folder / "plan.json", "--out", folder / "out"], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.integration
def test_the_real_program_sends_each_request_once_and_records_it(tmp_path: Path) -> None:
    with serving() as server:
        process = _start(tmp_path, server.url, 1)
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode in (0, 4), "4: a busy machine may allow no verdict"
    events = [json.loads(line) for line in stdout.splitlines()]
    assert [event["event"] for event in events] == ["started", *["window"] * 4, "finished"]
    with np.load(tmp_path / "out" / "records.npz", allow_pickle=False) as records:
        assert len(records["finished_s"]) + len(records["unfinished_intended_s"]) == len(server.seen) > 0
        assert set(records["status"]) == {200}
        for user in set(records["user"]):
            of_user = records["user"] == user
            assert (records["sent_s"][of_user][1:] >= records["finished_s"][of_user][:-1]).all()
    assert (tmp_path / "out" / "records.npz").exists()
    assert server.connections == 4


@pytest.mark.integration
def test_ctrl_c_ends_the_real_program_in_good_order(tmp_path: Path) -> None:
    with serving() as server:
        process = _start(tmp_path, server.url, 60)
        assert process.stdout is not None
        events = [json.loads(process.stdout.readline())["event"] for _ in range(2)]
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=60)
    assert events == ["started", "window"]
    assert (process.returncode, json.loads(stdout.splitlines()[-1])["reason"]) == (0, "stopped")
    assert (tmp_path / "out" / "records.npz").exists()


def test_only_a_run_that_is_over_imports_scipy() -> None:
    """SciPy takes a few tenths of a second to import, which a generator would start later by."""
    program = "import sys; import inference_recommender.load_generator.__main__; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
