"""Capacity, fleet and latency where the payloads' lengths shift, from closed-loop users of each kind of payloads. Pure.

The payloads of each shift are real requests, and every kind is asked in turns by the same numbers of users. From what
n users complete, X(n), and their latencies follows the rate of open arrivals within the limit
(`capacity.flow_equivalent`), and from that of the measured payloads how many times the capacity of those is:

    capacity, times     the estimate over that of the payloads as measured in the same turn, the median of the turns
    throughput, times   X(N) over that of the payloads as measured, with the most users: what the server bears at most,
                        whatever the limit

The first is what a capacity is multiplied by: both kinds are estimated in the same way, so that an error common to both
goes out. docs/lengths.md has some beside capacities that were searched.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from pydantic import Field

from inference_recommender.capacity.closed_loop import Limit
from inference_recommender.capacity.flow_equivalent import SHARES, WEIGHTS, Records
from inference_recommender.lengths.tokens import PayloadTokenizer, token_counts
from inference_recommender.sizing.fleet import Demand, fleet
from workloads import LatencyObjective, LengthShift, Row, Sizing
from workloads.document import Document

ASKED = "as measured"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The most tokens that a request and an answer may have."""

    inputs: int
    outputs: int
    """0 where the model writes no text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shift:
    """A kind of payloads."""

    name: str
    rows: Sequence[Row]
    output_tokens: int | None = None
    """The tokens that each answer is forced to have where the server takes a length; None: as the model gives them."""


class Level(Document):
    """The throughput and the latencies of so many closed-loop users."""

    users: int
    invocations_per_minute: float
    p50_ms: float
    latency_ms: float = Field(description="The objective's percentile.")


class Kind(Document):
    """One kind of payloads as it was measured."""

    name: str
    mean_input_tokens: float
    mean_output_tokens: float | None = Field(description="None for a model that writes no text.")
    alone_ms: float = Field(description="Mean latency of one user.")
    levels: tuple[Level, ...]
    invocations_per_minute: float = Field(description="Of open arrivals within the limit, estimated; 0: none are.")
    by_turn: tuple[float, ...] = Field(description="The same of each turn by itself.")

    @property
    def most(self) -> float:
        """The throughput of the most users."""
        return self.levels[-1].invocations_per_minute


def shifts(tokenizer: PayloadTokenizer, payloads: Sequence[Row], outputs: Sequence[int], bounds: Bounds) -> list[Shift]:
    """Returns the payloads and those of the shifts that are always measured: no request becomes longer than the model
    takes. `outputs` are the tokens of the payloads' answers.
    """
    counts = tokenizer.count(payloads)

    def resized(tokens: Sequence[float]) -> list[Row]:
        wanted = [min(math.ceil(each), bounds.inputs) for each in tokens]
        return [tokenizer.resized(payloads, place, each) for place, each in enumerate(wanted)]

    def all_of(inputs: int) -> list[Row]:
        return resized([inputs] * len(counts))

    written = bounds.outputs > 0
    return [
        Shift(name=ASKED, rows=payloads),
        Shift(name="+25 %", rows=resized([1.25 * each for each in counts])),
        Shift(name="+50 %", rows=resized([1.5 * each for each in counts])),
        Shift(
            name="all at P90",
            rows=all_of(token_counts(counts).p90),
            output_tokens=min(token_counts(outputs).p90, bounds.outputs) if written else None,
        ),
        Shift(name="all at the limits", rows=all_of(bounds.inputs), output_tokens=bounds.outputs if written else None),
    ]


def kind(name: str, inputs: Sequence[int], outputs: Sequence[int], turns: Sequence[Records], limit: Limit) -> Kind:
    """Returns what the turns of one kind of payloads tell; `outputs` is empty for a model that writes no text."""
    whole = _together(turns)
    server = whole.server()
    users = sorted({int(each) for each in whole.users})
    return Kind(
        name=name,
        mean_input_tokens=float(np.mean(inputs)),
        mean_output_tokens=float(np.mean(outputs)) if len(outputs) else None,
        alone_ms=float(WEIGHTS @ server.latencies_ms[0]),
        levels=tuple(
            Level(
                users=each,
                invocations_per_minute=float(server.completions[each - 1]),
                p50_ms=float(np.interp(0.5, SHARES, server.latencies_ms[each - 1])),
                latency_ms=float(np.interp(limit.percentile / 100, SHARES, server.latencies_ms[each - 1])),
            )
            for each in users
        ),
        invocations_per_minute=server.highest_rate(limit),
        by_turn=tuple(each.server().highest_rate(limit) for each in turns),
    )


def estimated(
    kinds: Sequence[Kind], objective: LatencyObjective, sizing: Sizing, invocations_per_minute: float | None
) -> tuple[LengthShift, ...]:
    """Returns what each kind makes of an instance that bears `invocations_per_minute` of the first of them."""
    before, found = kinds[0], list[LengthShift]()
    for each in kinds:
        by_turn = [_times(*pair) for pair in zip(each.by_turn, before.by_turn, strict=True)]
        scale = median(by_turn)
        rate = None if invocations_per_minute is None else invocations_per_minute * scale
        sized = fleet(rate, Demand.of(objective), sizing) if rate else None
        alone_ms = each.levels[0].latency_ms
        found.append(
            LengthShift(
                name=each.name,
                mean_input_tokens=each.mean_input_tokens,
                mean_output_tokens=each.mean_output_tokens,
                service_ms=each.alone_ms,
                scale_of_throughput=_times(each.most, before.most),
                scale_within_limit=scale,
                scale_by_turn=(min(by_turn), max(by_turn)),
                max_invocations_per_minute=rate,
                instance_count=sized.instance_count if sized else None,
                unloaded_latency_ms=alone_ms,
                misses_unloaded=alone_ms > objective.model_latency_ms,
            )
        )
    return tuple(found)


def _times(after: float, before: float) -> float:
    return after / before if before else 0.0


def _together(turns: Sequence[Records]) -> Records:
    """Returns the parts of several turns of the same steps."""
    return Records(
        users=np.concatenate([each.users for each in turns]),
        completed=np.concatenate([each.completed for each in turns]),
        latencies_ms=np.concatenate([each.latencies_ms for each in turns]),
        period_s=turns[0].period_s,
    )
