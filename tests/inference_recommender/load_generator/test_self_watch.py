"""The generator's own limits: where it was its own bottleneck, it says so and no verdict is drawn."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference_recommender.load_generator import self_watch
from inference_recommender.load_generator.plan import Arrivals, LoadPlan, ModelLatencyThreshold
from inference_recommender.load_generator.process import generate
from inference_recommender.load_generator.records import Rows
from inference_recommender.load_generator.self_watch import Calibration, SelfWatch, calibrate
from inference_recommender.payloads import payload_archive
from tests.inference_recommender.server import serving

LIMIT = ModelLatencyThreshold(percentile="P99", value_in_milliseconds=10)
CALIBRATION = Calibration(highest_per_second=1000.0, latency_floor_ms={"p50": 0.1, "p90": 0.2, "p95": 0.3, "p99": 0.5})


def _watch(**members: Any) -> SelfWatch:
    return SelfWatch(**{"cpu_share": 0.5, "lag_ms": 1.0, "peak_per_second": 800, "calibration": CALIBRATION, **members})


def _floor(p99: float) -> Calibration:
    return Calibration(highest_per_second=1e9, latency_floor_ms={**CALIBRATION.latency_floor_ms, "p99": p99})


@pytest.mark.parametrize(
    ("watch", "complaint"),
    [
        (_watch(), None),
        (_watch(calibration=None, peak_per_second=10**6), None),
        (_watch(cpu_share=0.91), "generator lagged: it used 91% of its core, so it was the bottleneck"),
        (_watch(lag_ms=51.0), "generator lagged: its own clock came 51 ms late"),
        (
            _watch(peak_per_second=801),
            "generator lagged: it had 801 answers in a second, and against a server that costs nothing it can have "
            "1,000; use more generators",
        ),
        (_watch(calibration=_floor(5.0)), None),
        (
            _watch(calibration=_floor(5.2)),
            "generator lagged: 5.2 ms of P99 is its own latency, measured against a server that costs nothing; "
            "the limit is 10 ms",
        ),
    ],
)
def test_a_generator_near_its_limits_complains(watch: SelfWatch, complaint: str | None) -> None:
    assert watch.complaint(LIMIT) == complaint


def test_without_a_limit_no_latency_is_too_high() -> None:
    assert _watch(calibration=_floor(1000.0)).complaint(None) is None


def test_the_peak_is_the_busiest_second_and_the_lag_the_90th_percentile() -> None:
    finished = np.array([0.1, 0.2, 1.1, 1.2, 1.9, 2.5])
    rows = Rows(
        finished_s=finished,
        latencies_ms=finished,
        from_intended_ms=finished,
        succeeded=finished > 0,
        timed_out=finished < 0,
    )
    watch = SelfWatch.of(1.0, 4.0, np.array([0.001] * 80 + [0.02] * 20), rows, None)
    assert (watch.cpu_share, watch.peak_per_second) == (0.25, 3)
    assert watch.lag_ms == pytest.approx(20)


def _check(calibration: dict[str, Any]) -> None:
    floor = calibration["latency_floor_ms"]
    assert 0 < floor["p50"] <= floor["p90"] <= floor["p95"] <= floor["p99"]


@pytest.mark.integration
def test_a_calibration_knows_a_rate_and_a_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_watch, "ONE_CONNECTION_S", 0.2)
    monkeypatch.setattr(self_watch, "MANY_CONNECTIONS_S", 0.2)
    calibration = asyncio.run(calibrate([b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"], 4))
    assert calibration.highest_per_second > 0
    _check({"latency_floor_ms": calibration.latency_floor_ms})


@pytest.mark.slow
@pytest.mark.integration
def test_a_calibrated_run_knows_its_own_rate_and_floor(tmp_path: Path) -> None:
    payloads = tmp_path / "payloads.tar.gz"
    payloads.write_bytes(payload_archive([{"text": f"query {number}"} for number in range(20)]))
    arrivals = Arrivals(invocations_per_minute=3000, duration_in_seconds=1, connections=4)
    with serving() as server:
        plan = LoadPlan(url=server.url, payloads=payloads, arrivals=arrivals, calibrate=True)
        for attempt in range(3):
            server.seen.clear()
            outcome = generate(plan, tmp_path / f"out-{attempt}")
            if not outcome.reason.startswith("generator lagged"):
                break
        else:
            pytest.skip(f"The machine is too busy: {outcome.reason}.")
    assert outcome.summary is not None
    assert outcome.summary["invocations"] == len(server.seen)  # the calibration goes elsewhere
    calibration = outcome.summary["generator"]["calibration"]
    assert 3_000 < calibration["highest_per_second"] < 1_000_000
    _check(calibration)
    assert calibration["latency_floor_ms"]["p50"] < outcome.summary["client_latency_ms"]["p50"]
