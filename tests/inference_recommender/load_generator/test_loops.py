"""Requests that arrive on their own, at moments fixed beforehand."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_recommender.load_generator import __main__ as generator_main
from inference_recommender.load_generator.arrivals import arrival_times
from inference_recommender.load_generator.plan import Arrivals, LoadPlan
from inference_recommender.load_generator.process import Outcome, generate
from inference_recommender.payloads import payload_archive
from tests.inference_recommender.server import serving
from workloads.errors import InvalidDocument


def _arrivals(per_minute: float, seconds: float, seed: int = 1) -> Arrivals:
    return Arrivals(invocations_per_minute=per_minute, duration_in_seconds=seconds, seed=seed)


@settings(deadline=None, max_examples=30)
@given(st.floats(1, 100_000), st.floats(0.1, 60), st.integers(0, 2**32))
def test_arrivals_ascend_within_the_duration_and_a_seed_gives_them_again(
    rate: float, seconds: float, seed: int
) -> None:
    times = arrival_times(_arrivals(rate, seconds, seed))
    assert (np.diff(times) >= 0).all()
    assert ((times >= 0) & (times < seconds)).all()
    assert (times == arrival_times(_arrivals(rate, seconds, seed))).all()
    assert (arrival_times(_arrivals(rate, seconds, seed), seconds / 2) == times[times < seconds / 2]).all()


def test_arrivals_are_a_poisson_process_of_the_rate() -> None:
    times = arrival_times(_arrivals(60_000, 100))
    assert len(times) == pytest.approx(100_000, abs=5 * 100_000**0.5)
    gaps_ms = np.diff(times) * 1000
    assert gaps_ms.std() == pytest.approx(gaps_ms.mean(), rel=0.02)
    assert np.percentile(gaps_ms, [50, 95]) == pytest.approx([np.log(2), np.log(20)], rel=0.02)
    per_second = np.bincount(times.astype(int))
    assert per_second.var() == pytest.approx(1000, rel=0.6)


@pytest.mark.parametrize("both", [True, False])
def test_a_plan_has_one_kind_of_traffic(tmp_path: Path, both: bool) -> None:
    traffic = {
        "traffic_pattern": {
            "TrafficType": "PHASES",
            "Phases": [{"InitialNumberOfUsers": 1, "DurationInSeconds": 1}],
        },
        "arrivals": {"invocations_per_minute": 60.0, "duration_in_seconds": 1.0},
    }
    plan = {"url": "http://127.0.0.1/", "payloads": "p", **(traffic if both else {})}
    (tmp_path / "plan.json").write_text(json.dumps(plan), "utf-8")
    with pytest.raises(InvalidDocument) as refused:
        LoadPlan.from_json(tmp_path / "plan.json")
    assert str(refused.value) == (
        f"{tmp_path / 'plan.json'}: (document): "
        "give exactly one of traffic_pattern (closed loop) and arrivals (open loop)."
    )


def _run(folder: Path, url: str, arrivals: Arrivals) -> tuple[Outcome, dict[str, np.typing.NDArray[np.float64]]]:
    payloads = folder / "payloads.tar.gz"
    payloads.write_bytes(payload_archive([{"text": f"query {number}"} for number in range(20)]))
    outcome = generate(LoadPlan(url=url, payloads=payloads, arrivals=arrivals), folder / "out")
    with np.load(outcome.records) as archive:
        return outcome, dict(archive)


@pytest.mark.integration
def test_requests_are_sent_at_the_moments_of_the_plan(tmp_path: Path) -> None:
    arrivals = Arrivals(invocations_per_minute=6000, duration_in_seconds=1.5, seed=7, connections=8)
    with serving() as server:
        outcome, records = _run(tmp_path, server.url, arrivals)
    assert outcome.exit_code in (0, 4)  # 4: few requests for a verdict on a machine that does other things too
    intended = np.sort(records["intended_s"])
    assert intended == pytest.approx(arrival_times(arrivals), abs=1e-6)
    assert (records["sent_s"] >= records["intended_s"]).all()
    assert np.median(records["sent_s"] - records["intended_s"]) < 0.001
    assert len(records["unfinished_intended_s"]) == 0


@pytest.mark.integration
def test_a_stall_is_seen_by_all_that_should_have_been_sent_in_it(tmp_path: Path) -> None:
    """One answer takes a second on the only connection: from actual send one request is slow, from intended 15 are."""
    stalled: list[bytes] = []

    def stall_once(body: bytes) -> tuple[int, bytes]:
        if b"query 13" in body and not stalled:
            stalled.append(body)
            threading.Event().wait(1)
        return 200, b"{}"

    arrivals = Arrivals(invocations_per_minute=1800, duration_in_seconds=2, connections=1)
    with serving(stall_once) as server:
        _, records = _run(tmp_path, server.url, arrivals)
    from_sent = records["finished_s"] - records["sent_s"]
    from_intended = records["finished_s"] - records["intended_s"]
    assert (from_sent > 0.5).sum() == 1
    assert (from_intended > 0.5).sum() > 8


@pytest.mark.integration
def test_what_no_connection_was_free_for_is_kept_as_unfinished(tmp_path: Path) -> None:
    arrivals = Arrivals(invocations_per_minute=9000, duration_in_seconds=1, connections=2)
    with serving(delay_s=0.15) as server:
        _, records = _run(tmp_path, server.url, arrivals)
    kept = np.sort(np.concatenate([records["intended_s"], records["unfinished_intended_s"]]))
    assert kept == pytest.approx(arrival_times(arrivals), abs=1e-6)
    assert len(records["unfinished_intended_s"]) > 100


def test_the_plan_that_help_shows_is_one(tmp_path: Path) -> None:
    shown = str(generator_main.__doc__)
    (tmp_path / "plan.json").write_text(shown[shown.index("{") : shown.rindex("}") + 1], "utf-8")
    plan = LoadPlan.from_json(tmp_path / "plan.json")
    assert plan.calibrate
    assert plan.stopping_conditions.latency is not None
