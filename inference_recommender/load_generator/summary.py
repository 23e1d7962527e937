"""The summary of a run, of one generator or several: capacity, latencies, and whether it allows a verdict.

Of several generators that ran one plan, only the whole seconds in which all sent count.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_recommender.capacity.closed_loop import MAX_ERROR_SHARE, NeverSettled, SustainedLoad, capacity
from inference_recommender.capacity.statistics import Limit, samples_needed
from inference_recommender.load_generator.load_plan import LoadPlan, StoppingConditions
from inference_recommender.load_generator.load_run import TRAFFIC_ENDED
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.records import TIMED_OUT, Percentiles, SentRequests, percentiles
from inference_recommender.load_generator.self_watch import LAGGED, STALLED, SelfWatch, stalled_between
from workloads import NoVerdict, Unavailable
from workloads.files import replace_text

DEFAULT_PERCENTILE = "P95"
MAX_STALLED_SHARE = 0.5
WATCHED = ("cpu_share", "lag_ms")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    started_at: float
    """Seconds since the epoch."""
    duration_s: float
    unserved_s: float
    """Seconds that connections spent on requests without success."""
    first_error: str | None
    generator: SelfWatch
    ended: str
    """Why the run ended: "traffic ended", a stopping condition's name, "stopped", or "target failed: …"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun(RunFacts):
    """The measurements of a finished run."""

    requests: SentRequests
    sizes: Sequence[int] = ()
    """Bytes of each payload's body; empty if they are not known."""
    open_loop: bool
    """Whether requests arrived at a fixed rate. Latency then counts from the intended send."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadSummary(RunFacts):
    """The content of summary.json. Latencies are by percentile."""

    closed_loop_invocations_per_minute: float | None
    closed_loop_invocations_interval: tuple[float, float] | None
    model_latency_ms: float | None
    percentile: str
    warm_up_s: float | None
    """The whole run if its latency never settled. None if the run does not show it."""
    client_latency_ms: Percentiles
    """From the actual send, in a stretch of time at that rate, or in the whole run."""
    client_latency_from_intended_ms: Percentiles
    """From the intended send. A request without an answer counts with its wait so far."""
    invocations: int
    """Requests that were due: successes and errors."""
    errors: int
    """Failed requests, with those that timed out or were unfinished."""
    timed_out: int
    unfinished: int
    """Requests without an answer at the end of the run."""
    unserved_share: float | None
    """`unserved_s` as a share of the users' time. None in an open loop."""
    stalled_s: float
    latency_by_size: tuple[dict[str, float], ...]
    """Bodies of similar size, the shortest first: bytes_at_most, requests, p50_ms and p99_ms from intended send."""


def write_results(folder: Path, document: Mapping[str, Any], requests: SentRequests) -> None:
    """Writes summary.json, then records.npz, which may be large. Raises `OSError`."""
    replace_text(folder / "summary.json", json.dumps(document, indent=2) + "\n")
    requests.write(folder / "records.npz")


def summarise(measured: MeasuredRun, conditions: StoppingConditions) -> LoadSummary:
    """Returns the summary of a run, with the latency threshold of `conditions` as the limit."""
    limit = conditions.latency
    percentile = limit.percentile if limit else DEFAULT_PERCENTILE
    limit_ms = limit.value_in_milliseconds if limit else None
    best, warm_up_s = _capacity(measured, Limit(percentile=float(percentile[1:]), latency_ms=limit_ms))
    from_send, from_intended = _latencies(measured, best)
    unfinished = len(measured.requests.unfinished_intended_s)
    return LoadSummary(
        **{each.name: getattr(measured, each.name) for each in fields(RunFacts)},
        closed_loop_invocations_per_minute=best.invocations_per_minute if best else None,
        closed_loop_invocations_interval=best.interval if best else None,
        model_latency_ms=best.latency_ms if best else None,
        percentile=percentile,
        warm_up_s=warm_up_s,
        client_latency_ms=from_send,
        client_latency_from_intended_ms=from_intended,
        invocations=len(measured.requests) + unfinished,
        errors=measured.requests.errors + unfinished,
        timed_out=int((measured.requests.status == TIMED_OUT).sum()),
        unfinished=unfinished,
        unserved_share=_unserved_share(measured),
        stalled_s=stalled_between(measured.requests.stalls_s, 0.0, measured.duration_s),
        latency_by_size=tuple(_by_size(measured.requests, np.array(measured.sizes))),
    )


def _by_size(rows: SentRequests, sizes: npt.NDArray[np.int64]) -> Iterator[dict[str, float]]:
    """Yields quarters of the bodies by size; nothing if all have one size."""
    bounds = np.unique(np.percentile(sizes, [25, 50, 75, 100], method="higher")) if len(sizes) else sizes
    if len(bounds) > 1:
        group = np.searchsorted(bounds, sizes[rows.payload])
        for number, bound in enumerate(bounds.tolist()):
            latencies_ms = rows.from_intended_ms[(group == number) & rows.succeeded]
            if len(latencies_ms):
                p50_ms, p99_ms = np.percentile(latencies_ms, [50, 99]).tolist()
                yield {"bytes_at_most": bound, "requests": len(latencies_ms), "p50_ms": p50_ms, "p99_ms": p99_ms}


def why_invalid(summary: LoadSummary) -> str | None:
    """Returns why no verdict may be drawn from the run, or None. `Measurement.refused` reads its first words."""
    if complaint := summary.generator.complaint():
        return complaint
    if summary.stalled_s > summary.duration_s * MAX_STALLED_SHARE:
        return f"{STALLED} for {summary.stalled_s / summary.duration_s * 100:.0f} % of the run"
    failed, share = f"{summary.errors} of {summary.invocations} requests", summary.unserved_share
    if summary.errors > summary.invocations * MAX_ERROR_SHARE:
        return f"too many errors: {failed} failed{_details(summary)}"
    if share is not None and share > MAX_ERROR_SHARE:
        return f"too many errors: {share:.0%} of the users' time went to what failed, {failed}{_details(summary)}"
    if summary.closed_loop_invocations_per_minute is not None:
        return None
    if summary.warm_up_s is not None:
        return (
            "too few samples: none after the warm-up, since the latency was still falling midway through the run's "
            f"{summary.duration_s:.0f} s; give it longer, or a machine with no other work"
        )
    return (
        f"too few samples: {summary.percentile} needs at least {samples_needed(float(summary.percentile[1:]))} "
        f"independent requests at one load; the run had {summary.invocations} in all"
    )


def _details(summary: LoadSummary) -> str:
    counts = {"timed out": summary.timed_out, "had no answer when the run was over": summary.unfinished}
    without_answer = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    lost = summary.errors > summary.unfinished or not summary.unfinished
    first = summary.first_error or ("the connection was lost" if lost else "no answer")
    return f"{f' ({without_answer})' if without_answer else ''}; the first: {first}"


def _unserved_share(measured: MeasuredRun) -> float | None:
    """Returns the share of the users' time that went to what failed. A user always has a request, or sends one."""
    if measured.open_loop:
        return None
    served_s = float(measured.requests.from_intended_ms[measured.requests.succeeded].sum()) / 1000
    total_s = served_s + measured.unserved_s
    return measured.unserved_s / total_s if total_s else 0.0


def _capacity(measured: MeasuredRun, limit: Limit) -> tuple[SustainedLoad | None, float | None]:
    rows, end_s = measured.requests, measured.duration_s
    latencies_ms = rows.from_intended_ms if measured.open_loop else rows.latencies_ms
    try:
        best = capacity(rows.finished_s, latencies_ms, rows.succeeded, limit, end_s, one_load=measured.open_loop)
    except NeverSettled:
        return None, end_s
    return best, best.warm_up_s if best else None


def _latencies(measured: MeasuredRun, best: SustainedLoad | None) -> tuple[Percentiles, Percentiles]:
    """Returns the percentiles from actual and from intended send, of the stretch at the best rate or of all."""
    rows = measured.requests
    start_s, end_s = (best.start_s, best.end_s) if best else (0.0, np.inf)
    chosen = rows.succeeded & (rows.finished_s >= start_s) & (rows.finished_s < end_s)
    waiting = rows.unfinished_intended_s
    waited_ms = (measured.duration_s - waiting[(waiting >= start_s) & (waiting < end_s)]) * 1000
    from_intended_ms = np.concatenate([rows.from_intended_ms[chosen], np.maximum(waited_ms, 0.0)])
    return percentiles(rows.latencies_ms[chosen]), percentiles(from_intended_ms)


class NothingToMerge(NoVerdict):
    """There is no second in which all of several generators sent."""


def merge(outcomes: Sequence[Outcome], plan: LoadPlan, folder: Path) -> Outcome:
    """Returns one outcome for `outcomes`, which ran the shares of `plan`, and writes its files to `folder`.

    Raises `NothingToMerge` if one has no summary, or if they never all ran at once.
    """
    measured = _together(outcomes, plan)
    summary = summarise(measured, plan.stopping_conditions)
    exit_code, reason = _verdict(outcomes, why_invalid(summary), summary.ended)
    document = {**asdict(summary), "generators": len(outcomes), "reason": reason}
    write_results(folder, document, measured.requests)
    return Outcome(folder=folder, exit_code=exit_code, reason=reason, summary=document)


def _together(outcomes: Sequence[Outcome], plan: LoadPlan) -> MeasuredRun:
    summaries: list[Mapping[str, Any]] = []
    for outcome in outcomes:
        if outcome.summary is None:
            raise NothingToMerge(f"{outcome.folder} has no summary: {outcome.reason}")
        summaries.append(outcome.summary)
    last_start = max(summary["started_at"] for summary in summaries)
    first_end = min(summary["started_at"] + summary["duration_s"] for summary in summaries)
    start, end = math.ceil(last_start), math.floor(first_end)
    if start >= end:
        raise NothingToMerge(
            f"The {len(outcomes)} generators did not send at the same time for one second: the last started at "
            f"{last_start:.1f} s and the first ended at {first_end:.1f} s since the epoch. Give their plans one "
            "start_at, and check the clocks."
        )
    parts = [
        SentRequests.read(outcome.records).shifted(summary["started_at"] - start)
        for outcome, summary in zip(outcomes, summaries, strict=True)
    ]
    return MeasuredRun(
        requests=SentRequests.merge(parts).between(0.0, float(end - start)),
        unserved_s=sum(summary["unserved_s"] for summary in summaries),
        open_loop=plan.arrivals is not None,
        started_at=float(start),
        duration_s=float(end - start),
        first_error=next((summary["first_error"] for summary in summaries if summary["first_error"]), None),
        ended=next((summary["ended"] for summary in summaries if summary["ended"] != TRAFFIC_ENDED), TRAFFIC_ENDED),
        generator=SelfWatch(**{key: max(each["generator"][key] for each in summaries) for key in WATCHED}),
    )


def _verdict(outcomes: Sequence[Outcome], invalid: str | None, ended: str) -> tuple[int, str]:
    """Returns exit code and reason. A failure of one generator decides for all, but not too few samples of one."""
    invalid_code = NoVerdict.exit_code
    for exit_code, beginning in ((Unavailable.exit_code, ""), (invalid_code, LAGGED), (invalid_code, STALLED)):
        for outcome in outcomes:
            if outcome.exit_code == exit_code and outcome.reason.startswith(beginning):
                return exit_code, outcome.reason
    return (invalid_code, invalid) if invalid and ended != "stopped" else (0, ended)
