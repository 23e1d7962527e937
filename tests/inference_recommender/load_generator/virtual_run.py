"""Runs of the load generator in virtual time, against scripted servers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_recommender.capacity.statistics import Floats
from inference_recommender.load_generator.__main__ import run_plan
from inference_recommender.load_generator.load_plan import Arrivals, LoadPlan, Phase, TrafficPattern
from inference_recommender.load_generator.load_run import Run, Window
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.records import SentRequests
from inference_recommender.load_generator.requests import Outgoing, Target
from tests.virtual_time import Network, Serve, VirtualLoop

URL = "http://server/infer"
BODIES = [f"query {number}".encode() for number in range(20)]
START_S = 1000.0
"""The virtual loop's time at the beginning of every run."""

Events = Mapping[float, Callable[["VirtualRun"], None]]
"""Seconds since the beginning → something that happens then."""


def users(*phases: tuple[int, int], spawn_rate: int = 0) -> TrafficPattern:
    """Returns phases of (users, seconds)."""
    return TrafficPattern(
        traffic_type="PHASES",
        phases=tuple(
            Phase(initial_number_of_users=count, spawn_rate=spawn_rate, duration_in_seconds=seconds)
            for count, seconds in phases
        ),
    )


def plan_of(traffic: TrafficPattern | Arrivals, **members: Any) -> LoadPlan:
    kind = "arrivals" if isinstance(traffic, Arrivals) else "traffic_pattern"
    return LoadPlan(**{"url": URL, "payloads": Path("payloads"), kind: traffic, **members})


def outgoing_of(plan: LoadPlan) -> Outgoing:
    target = Target.of(plan.url or "")
    requests = [target.message({}, body) for body in BODIES]
    return Outgoing(target=target, requests=requests, timeout_s=plan.request_timeout_s)


@dataclass
class VirtualRun:
    """A run and what its server saw."""

    loop: VirtualLoop
    network: Network
    run: Run
    windows: list[Window] = field(default_factory=list)
    ended: str = ""

    @property
    def seen_s(self) -> list[float]:
        """When each request reached the server, in seconds since the run began."""
        return [request.at_s - self.run.log.started for request in self.network.requests]


def drive(
    traffic: TrafficPattern | Arrivals,
    serve: Serve,
    *,
    network: Network | None = None,
    outgoing: Outgoing | None = None,
    events: Events | None = None,
    **members: Any,
) -> VirtualRun:
    """Drives a `Run` to its end; `members` are the plan's."""
    network = network or Network(serve)
    loop = VirtualLoop(network, START_S)
    plan = plan_of(traffic, **members)
    return loop.run(_driven(plan, outgoing or outgoing_of(plan), loop, network, events or {}))


async def _driven(
    plan: LoadPlan, outgoing: Outgoing, loop: VirtualLoop, network: Network, events: Events
) -> VirtualRun:
    windows: list[Window] = []
    virtual = VirtualRun(loop, network, Run(plan, outgoing, windows.append, loop.clock()), windows)
    for second, happens in events.items():
        loop.call_at(START_S + second, happens, virtual)
    virtual.ended = await virtual.run.drive()
    return virtual


def run_command(
    plan: LoadPlan,
    serve: Serve,
    out: Path,
    *,
    cpu_share: float = 0.1,
    events: Mapping[float, Callable[[VirtualLoop], object]] | None = None,
    network: Network | None = None,
) -> Outcome:
    """Runs what `python -m inference_recommender.load_generator` runs, and reads back what it left in `out`."""
    loop = VirtualLoop(network or Network(serve), START_S)
    for second, happens in (events or {}).items():
        loop.call_at(START_S + second, happens, loop)
    out.mkdir(parents=True, exist_ok=True)
    exit_code = loop.run(run_plan(plan, outgoing_of(plan), out, loop.clock(cpu_share)))
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    return Outcome(folder=out, exit_code=exit_code, reason=summary["reason"], summary=summary)


def records_of(outcome: Outcome) -> dict[str, np.typing.NDArray[np.float64]]:
    with np.load(outcome.records, allow_pickle=False) as archive:
        return dict(archive)


def sent_requests(
    finished_s: Floats, latencies_ms: Floats | float, held_ms: Floats | float = 0.0, status: npt.ArrayLike = 200
) -> SentRequests:
    """Returns requests that were held back by `held_ms` before they were sent."""
    sent_s = finished_s - np.asarray(latencies_ms) / 1000
    return SentRequests(
        intended_s=sent_s - np.asarray(held_ms) / 1000,
        sent_s=sent_s,
        finished_s=finished_s,
        status=np.broadcast_to(np.asarray(status, dtype=np.int16), finished_s.shape).copy(),
        payload=np.zeros(len(finished_s), dtype=np.int32),
    )
