"""The generator as a child process: listened to, stopped in good order, and never left behind.

Real processes against a real server. Nothing here depends on how fast they are.
"""

import signal
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest

from inference_recommender.load_generator import process
from inference_recommender.load_generator.load_plan import LoadPlan, Phase, Share, TrafficPattern
from inference_recommender.load_generator.process import GeneratorProcess, generate
from inference_recommender.load_generator.records import SentRequests
from inference_recommender.load_generator.summary import merge
from inference_recommender.payloads import payload_archive
from tests.builders import known
from tests.inference_recommender.server import serving

pytestmark = pytest.mark.integration


def _plan(folder: Path, url: str, seconds: int = 60) -> LoadPlan:
    payloads = folder / "payloads.tar.gz"
    payloads.write_bytes(payload_archive([{"text": f"query {number}"} for number in range(20)]))
    phases = (Phase(initial_number_of_users=4, duration_in_seconds=seconds),)
    pattern = TrafficPattern(traffic_type="PHASES", phases=phases)
    return LoadPlan(url=url, payloads=payloads, traffic_pattern=pattern, window_s=0.25)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_exception_ends_the_child_and_keeps_what_was_measured(tmp_path: Path, error: type[BaseException]) -> None:
    def listen(generator: GeneratorProcess) -> None:
        with generator:
            for event in generator.events():
                if event.get("start_s") == 0.25:
                    raise error

    before = psutil.Process().children()  # other tests' servers, where they share this process
    with serving() as server:
        generator = GeneratorProcess(_plan(tmp_path, server.url), tmp_path / "out")
        with pytest.raises(error):
            listen(generator)
        outcome = generator.outcome()
    assert (outcome.exit_code, outcome.reason) == (0, "stopped")
    assert known(outcome.summary)["invocations"] > 0
    assert set(psutil.Process().children()) <= set(before)


def test_a_stop_before_the_load_began_is_told_as_one(tmp_path: Path) -> None:
    with serving() as server, GeneratorProcess(_plan(tmp_path, server.url), tmp_path / "out") as generator:
        generator.request_stop()
        outcome = generator.outcome()
    assert (outcome.reason, outcome.summary) == ("stopped before the load began", None)


def test_a_generator_whose_parent_was_killed_ends(tmp_path: Path) -> None:
    with serving() as server:
        (tmp_path / "plan.json").write_text(_plan(tmp_path, server.url).model_dump_json(), "utf-8")
        program = f"""
            from pathlib import Path
            from inference_recommender.load_generator.load_plan import LoadPlan
            from inference_recommender.load_generator.process import generate
            generate(LoadPlan.from_json(Path({str(tmp_path / "plan.json")!r})), Path({str(tmp_path / "out")!r}),
                     lambda event: print(event["event"], flush=True))
        """
        parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
        assert [known(parent.stdout).readline() for _ in range(2)] == ["started\n", "window\n"]
        [child] = psutil.Process(parent.pid).children()
        parent.kill()
        parent.wait()
        assert psutil.wait_procs([child], timeout=60)[1] == []
    assert (tmp_path / "out" / "summary.json").exists()


def test_a_generator_that_refuses_its_payloads_says_why(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "http://127.0.0.1:9/").model_copy(update={"payloads": tmp_path / "nowhere"})
    outcome = generate(plan, tmp_path / "out")
    assert outcome.exit_code == 2
    assert outcome.reason.startswith(f"{tmp_path / 'nowhere'}: cannot be read: ")
    assert outcome.summary is None


DEAF = 'import signal; signal.signal(15, signal.SIG_IGN); print(\'{"event": "started"}\', flush=True); signal.pause()'


def test_a_generator_that_ignores_a_stop_is_killed_and_reported_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    plan = _plan(tmp_path, "http://127.0.0.1:9/")
    with GeneratorProcess(plan, tmp_path / "out", (sys.executable, "-c", DEAF)) as generator:
        assert next(generator.events())["event"] == "started"
        generator.request_stop()
        outcome = generator.outcome()
    assert outcome.exit_code == -signal.SIGKILL
    assert outcome.reason == "The load generator ended with exit status -9: its log is empty"
    assert outcome.summary is None


def test_a_real_run_sends_each_request_once_and_its_outcome_is_read_back(tmp_path: Path) -> None:
    """Exit code 4: a busy machine may allow no verdict."""
    events: list[str] = []
    with serving() as server:
        plan = _plan(tmp_path, server.url, 1)
        outcome = generate(plan, tmp_path / "out", lambda event: events.append(event["event"]))
    assert events == ["started", *["window"] * 4, "finished"]
    assert outcome.summary is not None
    assert outcome.reason == outcome.summary["reason"]
    assert outcome.exit_code == (0 if outcome.reason == "traffic ended" else 4)
    requests = SentRequests.read(outcome.records)
    assert outcome.summary["invocations"] == len(requests) + len(requests.unfinished_intended_s) == len(server.seen)
    assert (requests.errors, server.connections) == (0, 4)
    assert (np.sort(requests.sent_s)[4:] >= requests.finished_s[:-4]).all(), "four users, one open request each"


def test_two_real_generators_share_the_users_and_merge_to_one_result(tmp_path: Path) -> None:
    """Takes the time of two Python starts, and of the full second in which both must have sent."""

    def run_until(generator: GeneratorProcess, start_s: float) -> None:
        for event in generator.events():
            if event.get("start_s", 0) >= start_s:
                return

    with serving() as server, ExitStack() as running:
        plan = _plan(tmp_path, server.url)
        shares = [plan.model_copy(update={"share": Share(index=index, of=2)}) for index in range(2)]
        generators = [
            running.enter_context(GeneratorProcess(share, tmp_path / str(index))) for index, share in enumerate(shares)
        ]
        for generator in generators:
            run_until(generator, 2.0)
        for generator in generators:
            generator.request_stop()
        outcomes = [generator.outcome() for generator in generators]
    merged = merge(outcomes, plan, tmp_path / "merged")
    assert server.connections == 4, "two of four users each"
    assert sum(outcome.summary["invocations"] for outcome in outcomes if outcome.summary) == len(server.seen)
    assert merged.summary is not None
    assert (merged.summary["generators"], merged.summary["ended"]) == (2, "stopped")
    start, end = merged.summary["started_at"], merged.summary["started_at"] + merged.summary["duration_s"]
    shared = 0
    for outcome in outcomes:
        finished_at = SentRequests.read(outcome.records).finished_s + known(outcome.summary)["started_at"]
        shared += int(((finished_at >= start) & (finished_at < end)).sum())
    assert merged.summary["invocations"] == shared == len(SentRequests.read(merged.records)) > 0
