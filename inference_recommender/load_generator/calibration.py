"""How fast the generator itself is: it drives a null server with the run's own requests, and that is its limit.

Against a server that costs nothing, all that is measured is the generator, this machine's loopback and its scheduler.
The null server has a process of its own. Costs `ONE_CONNECTION_S` + `MANY_CONNECTIONS_S` and the start of a Python.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from inference_recommender.load_generator.closed_loop import ClosedLoop
from inference_recommender.load_generator.outgoing import Outgoing
from inference_recommender.load_generator.plan import Share
from inference_recommender.load_generator.records import Records
from inference_recommender.load_generator.requests import Target
from inference_recommender.load_generator.traffic import Change, Schedule

ONE_CONNECTION_S = 0.5
MANY_CONNECTIONS_S = 0.7
MOST_CONNECTIONS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    highest_per_second: float
    """Requests that one core of CPU is enough for."""
    latency_floor_ms: dict[str, float]
    """By percentile, of one connection: what of any latency is the generator's own."""


async def calibrate(requests: Sequence[bytes], connections: int) -> Calibration:
    """`requests`: the run's own. `connections`: as many as the run will have; `MOST_CONNECTIONS` are enough to tell."""
    async with _null_server() as target:
        alone = await _drive(target, requests, 1, ONE_CONNECTION_S)
        cpu_before = time.process_time()
        together = await _drive(target, requests, min(connections, MOST_CONNECTIONS), MANY_CONNECTIONS_S)
        cpu_s = time.process_time() - cpu_before
    latencies_ms = alone.rows().successful_ms
    return Calibration(
        highest_per_second=len(together) / cpu_s,
        latency_floor_ms={f"p{p}": float(np.percentile(latencies_ms, p)) for p in (50, 90, 95, 99)},
    )


async def _drive(target: Target, requests: Sequence[bytes], connections: int, seconds: float) -> Records:
    records = Records()
    outgoing = Outgoing(target=target, requests=list(requests))
    whole = Schedule(changes=(Change(at_s=0.0, users=connections),), boundaries_s=(0.0, seconds))
    load = ClosedLoop(whole, outgoing, records, Share(index=0, of=1))
    load.change(0.0)
    await asyncio.sleep(seconds)
    await load.end()
    return records


@asynccontextmanager
async def _null_server() -> AsyncIterator[Target]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "inference_recommender.load_generator.null_server",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield Target.of(f"http://127.0.0.1:{port}/")
    finally:
        process.stdin.close()
        await process.wait()
