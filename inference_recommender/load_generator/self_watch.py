"""Whether the generator itself was in the way of what it measured.

A calibration drives a null server, which has a process of its own, with the run's own requests: against a server that
costs nothing, all that is measured is the generator, this machine's loopback and its scheduler. It takes
`ONE_CONNECTION_S` + `MANY_CONNECTIONS_S` and the start of a Python.

A `SelfWatch` compares what a run did with these limits, and with the lateness of its own clock. It is pure.
"""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.limit import MAX_CPU_SHARE, MAX_LAG_MS, MAX_RATE_SHARE
from inference_recommender.capacity.statistics import Floats
from inference_recommender.load_generator import null_server
from inference_recommender.load_generator.loops import ClosedLoop
from inference_recommender.load_generator.plan import ModelLatencyThreshold, Share
from inference_recommender.load_generator.records import Records, Rows
from inference_recommender.load_generator.requests import Outgoing, Target
from inference_recommender.load_generator.traffic import Change, Schedule

MAX_FLOOR_SHARE = 0.5
"""The highest share of the latency limit that the generator's own latency may make up."""
ONE_CONNECTION_S = 0.5
MANY_CONNECTIONS_S = 0.7
CALIBRATION_DRAIN_S = 5.0
MOST_CONNECTIONS = 64
LAGGED = "generator lagged"
"""The beginning of every complaint."""
STALLED = "machine stalled"
"""The beginning of the reason where stalls left too little of a run."""
MAX_STALLED_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    highest_per_second: float
    """Requests per second for which one core of CPU is enough."""
    latency_floor_ms: dict[str, float]
    """The generator's own part of any latency, by percentile, on one connection."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfWatch:
    cpu_share: float
    """CPU time over the run's duration: 1 is a whole core."""
    lag_ms: float
    """90th percentile of the delay of the run's ticks and of an open loop's requests, outside stalls."""
    peak_per_second: int
    """The most answers in a second."""
    calibration: Calibration | None

    @classmethod
    def of(
        cls, cpu_s: float, wall_s: float, lags_s: Floats, rows: Rows, calibration: Calibration | None
    ) -> "SelfWatch":
        """Returns the watch of a run of `wall_s` seconds that used `cpu_s` seconds of CPU."""
        return cls(
            cpu_share=cpu_s / wall_s if wall_s else 0.0,
            lag_ms=float(np.percentile(lags_s, 90)) * 1000 if len(lags_s) else 0.0,
            peak_per_second=int(np.bincount(rows.finished_s.astype(int)).max()) if len(rows.finished_s) else 0,
            calibration=calibration,
        )

    def complaint(self, limit: ModelLatencyThreshold | None) -> str | None:
        """Returns why no verdict may be drawn, or None. `limit` is what latencies are to be compared with."""
        if self.cpu_share > MAX_CPU_SHARE:
            return f"{LAGGED}: it used {self.cpu_share:.0%} of its core, so it was the bottleneck"
        if self.lag_ms > MAX_LAG_MS:
            return f"{LAGGED}: its own clock came {self.lag_ms:.0f} ms late"
        if self.calibration is None:
            return None
        if self.peak_per_second > self.calibration.highest_per_second * MAX_RATE_SHARE:
            return (
                f"{LAGGED}: it had {self.peak_per_second:,} answers in a second, and against a server that "
                f"costs nothing it can have {self.calibration.highest_per_second:,.0f}; use more generators"
            )
        floor_ms = self.calibration.latency_floor_ms.get(limit.percentile.lower()) if limit else None
        if limit and floor_ms and floor_ms > limit.value_in_milliseconds * MAX_FLOOR_SHARE:
            return (
                f"{LAGGED}: {floor_ms:.1f} ms of {limit.percentile} is its own latency, measured against a "
                f"server that costs nothing; the limit is {limit.value_in_milliseconds} ms"
            )
        return None

    def worst_with(self, other: "SelfWatch") -> "SelfWatch":
        """Returns the watch of two generators that ran together.

        Each has judged itself by its own calibration; together they have none.
        """
        return SelfWatch(
            cpu_share=max(self.cpu_share, other.cpu_share),
            lag_ms=max(self.lag_ms, other.lag_ms),
            peak_per_second=max(self.peak_per_second, other.peak_per_second),
            calibration=None,
        )


async def calibrate(requests: Sequence[bytes], connections: int) -> Calibration:
    """Measures the generator with the run's own `requests` and at most `MOST_CONNECTIONS` of its `connections`."""
    async with _null_server() as target:
        alone = await _drive(target, requests, 1, ONE_CONNECTION_S)
        cpu_before = time.process_time()
        together = await _drive(target, requests, min(connections, MOST_CONNECTIONS), MANY_CONNECTIONS_S)
        cpu_s = time.process_time() - cpu_before
    latencies_ms = alone.rows().successful_ms
    return Calibration(
        highest_per_second=len(together) / cpu_s,
        latency_floor_ms={f"p{rank}": float(np.percentile(latencies_ms, rank)) for rank in (50, 90, 95, 99)},
    )


async def _drive(target: Target, requests: Sequence[bytes], connections: int, seconds: float) -> Records:
    records = Records()
    outgoing = Outgoing(target=target, requests=list(requests))
    steady = Schedule(changes=(Change(at_s=0.0, users=connections),), boundaries_s=(0.0, seconds))
    users = ClosedLoop(steady, outgoing, records, Share(index=0, of=1))
    users.change(0.0)
    await asyncio.sleep(seconds)
    await users.end(lambda: CALIBRATION_DRAIN_S)
    return records


@asynccontextmanager
async def _null_server() -> AsyncIterator[Target]:
    process = await asyncio.create_subprocess_exec(
        *null_server.COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is this process's to answer
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield Target.of(f"http://127.0.0.1:{port}/")
    finally:
        process.stdin.close()
        await process.wait()
