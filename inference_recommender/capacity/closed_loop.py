"""The highest rate that a run sustained within a latency limit, with its interval. Pure.

The warm-up is left out (`levels.warm_up_s`). The rest is cut into blocks of time and sorted into levels of equal load.
The late share cannot fall with the load, so neighbours that say otherwise are pooled (`statistics.isotonic`). A level
keeps the limit if its late share does, and if a percentile `MARGIN` over the limit can be excluded with 95 %
confidence. The capacity is the rate at the highest such load, or at a lower one that carried clearly more. Its interval
is a bootstrap of the blocks in each level (Künsch, Annals of Statistics 17, 1989; Efron and Tibshirani, 1993, 13.3)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.levels import Blocks, blocks, first_load_s, load_levels, per_block, warm_up_s
from inference_recommender.capacity.statistics import (
    CONFIDENCE,
    MARGIN,
    Bools,
    Floats,
    Indices,
    Limit,
    effective_share,
    isotonic,
    samples_needed,
)

INTERVAL_S = 10.0
"""Seconds that a rate must be held to count as sustained."""
MAX_ERROR_SHARE = 0.01
"""A level with a larger share of failures is no evidence."""
RESAMPLES, CLEARLY = 400, 3.0
"""Bootstrap samples, and standard errors by which the rate at a lower load must be higher to be the capacity."""


class NeverSettled(Exception):
    """The whole run was warm-up: its latency was still falling midway, so no rate of it holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SustainedLoad:
    """The rate that a run sustained at its best load."""

    start_s: float
    end_s: float
    """The longest stretch of time at that load without a change, in seconds of the run."""
    invocations_per_minute: float
    latency_ms: float
    """The limit's percentile at that load."""
    within_limit: bool
    """Whether that load keeps the limit; otherwise no load does, and this is the one of lowest latency."""
    interval: tuple[float, float] | None = None
    """95 % confidence interval of the rate; None where the run allows none."""
    warm_up_s: float | None = None
    """Seconds of warm-up, excluded from all of the above; None if the load changed too soon to show it."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Level:
    members: Indices
    latency_ms: float
    late: Floats
    """Requests over the limit in each block of the level."""
    invocations: Floats
    far_over_excluded: bool
    """Whether a percentile over the limit by `MARGIN` can be excluded."""


def capacity(
    finished_s: Floats, latencies_ms: Floats, succeeded: Bools, limit: Limit, end_s: float, *, one_load: bool = False
) -> SustainedLoad | None:
    """Returns the highest rate sustained within the limit, or else the load of lowest latency; None without evidence.

    The arrays have an entry per request of closed-loop users, in order of finish, up to `end_s`. `one_load`: the load
    did not change, such as arrivals at a fixed rate. Raises `NeverSettled`.
    """
    if end_s <= 0 or not len(finished_s):
        return None
    run = blocks(finished_s, latencies_ms, succeeded, 0.0, end_s)
    warm_up = warm_up_s(finished_s, latencies_ms, end_s if one_load else first_load_s(run))
    if end_s - (warm_up or 0.0) < run.block_s:
        raise NeverSettled
    if warm_up:
        run = blocks(finished_s, latencies_ms, succeeded, warm_up, end_s)
    enough_s, needed = min(INTERVAL_S, end_s - float(run.start_s[0])), samples_needed(limit.percentile)
    members = load_levels(run.load, run.invocations, run.block_s, enough_s, needed)
    if one_load:
        members = [np.arange(len(run.load))]
    return _best(run, [_level(run, each, latencies_ms, succeeded, limit) for each in members], limit, warm_up)


def _level(run: Blocks, members: Indices, latencies_ms: Floats, succeeded: Bools, limit: Limit) -> _Level | None:
    """Returns None for a level with too many failures or too few requests to be evidence."""
    invocations, errors = run.invocations[members], float(run.errors[members].sum())
    total = float(invocations.sum())
    if errors > (total + errors) * MAX_ERROR_SHARE or total < samples_needed(limit.percentile):
        return None
    inside = np.isin(run.block_of_request, members) & succeeded
    latencies, block_of = latencies_ms[inside], run.block_of_request[inside]

    def over(latency_ms: float) -> Floats:
        return per_block(block_of, latencies > latency_ms, len(run.load))[members]

    return _Level(
        members=members,
        # "lower": at or below the limit exactly where no more than the allowed share is above it.
        latency_ms=float(np.percentile(latencies, limit.percentile, method="lower")),
        late=over(limit.bound_ms),
        invocations=invocations,
        far_over_excluded=effective_share(over(limit.bound_ms * (1 + MARGIN)), invocations).shown_below(limit.allowed),
    )


def _best(run: Blocks, levels: Sequence[_Level | None], limit: Limit, warm_up: float | None) -> SustainedLoad | None:
    evidence = [level for level in levels if level is not None]
    keeping = _keeping(evidence, limit)
    best = _carries_most(keeping) if keeping else min(evidence, key=lambda level: level.latency_ms, default=None)
    if best is None or (not keeping and best.latency_ms <= limit.bound_ms):
        return None  # too few samples leave open whether a level keeps the limit
    stretches = np.split(best.members, np.flatnonzero(np.diff(best.members) > 1) + 1)
    longest = max(reversed(stretches), key=len)
    return SustainedLoad(
        start_s=float(run.start_s[longest[0]]),
        end_s=float(run.start_s[longest[-1]]) + run.block_s,
        invocations_per_minute=float(best.invocations.mean()) * 60 / run.block_s,
        latency_ms=best.latency_ms,
        within_limit=bool(keeping),
        interval=_interval(evidence, best, best is not keeping[-1], run.block_s, limit) if keeping else None,
        warm_up_s=warm_up,
    )


def _keeping(evidence: Sequence[_Level], limit: Limit) -> list[_Level]:
    shares = [float(level.late.sum() / level.invocations.sum()) for level in evidence]
    pooled = isotonic(shares, [float(level.invocations.sum()) for level in evidence])
    return [
        level
        for level, share in zip(evidence, pooled, strict=True)
        if share <= limit.allowed + 1e-12 and level.far_over_excluded
    ]


def _carries_most(keeping: Sequence[_Level]) -> _Level:
    """Returns the highest load, or the lower one that carries clearly more."""
    last = keeping[-1]
    best = max(keeping, key=lambda level: float(level.invocations.mean()))
    gain = float(best.invocations.mean() - last.invocations.mean())
    error = np.hypot(*(level.invocations.std(ddof=1) / np.sqrt(len(level.members)) for level in (best, last)))
    return best if gain > CLEARLY * float(error) else last


def _interval(
    evidence: Sequence[_Level], best: _Level, past_peak: bool, block_s: float, limit: Limit
) -> tuple[float, float]:
    """Returns the bootstrap interval of the rate at the highest load that keeps the limit; 0 where no load keeps it.
    `past_peak`: loads above that of `best` keep the limit too, but carry less.
    """
    random = np.random.default_rng(0)
    drawn = [random.integers(len(level.members), size=(RESAMPLES, len(level.members))) for level in evidence]
    invocations = [level.invocations[chosen] for level, chosen in zip(evidence, drawn, strict=True)]
    late = [level.late[chosen].sum(axis=1) for level, chosen in zip(evidence, drawn, strict=True)]
    requests = np.stack([counts.sum(axis=1) for counts in invocations], axis=1)
    rates = np.stack([counts.mean(axis=1) for counts in invocations], axis=1) * 60 / block_s
    shares = np.stack(late, axis=1) / np.maximum(requests, 1)
    if past_peak:
        peak = evidence.index(best)
        rates[:, peak:] = rates[:, [peak]]
    keeping = [int((isotonic(*sample) <= limit.allowed + 1e-12).sum()) for sample in zip(shares, requests, strict=True)]
    highest = [rates[sample, count - 1] if count else 0.0 for sample, count in enumerate(keeping)]
    low, high = np.percentile(highest, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)
