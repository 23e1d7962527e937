"""The report of `tune`, from its folder: what each configuration bears, which one to serve, and what was not tried."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inference_recommender.capacity.limit import Limit
from inference_recommender.report.document import Outcome, Plot, Report, Table, Value, table
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.plots import BLUE, GREY, INK, ORANGE, RED, drawn, legend, new_figure
from inference_recommender.report.sections import CHANGING_TRAFFIC, COLD_START, OTHER_PAYLOADS, generator_table
from inference_recommender.tune.evidence import Estimate, Glimpse, estimate
from inference_recommender.tune.folder import PATCH, RESULT, Line, TuneFolder
from inference_recommender.tune.race import Reason
from inference_recommender.tune.result import Placed, TuneResult
from workloads import LatencyObjective, UsageError

CONFIGURATIONS = (
    ("configuration", "configuration", ""),
    ("invocations_per_minute", "bears invocations/min", ",.0f"),
    ("interval_low", "95 % from", ",.0f"),
    ("interval_high", "to", ",.0f"),
    ("probes", "probes", ",d"),
    ("duration_s", "seconds of load", ",.0f"),
    ("requests", "requests", ",d"),
    ("cost_per_million_usd", "USD/million", ",.3f"),
    ("outcome", "what became of it", ""),
)
MOST_DRAWN = 16
"""Configurations in the figure; the table has all of them."""
ROW_IN, LEAST_IN, WIDTH_IN = 0.3, 2.4, 10.6


@dataclass(frozen=True, kw_only=True, slots=True)
class _Raced:
    """A configuration, its probes, and what it seems to bear."""

    label: str
    glimpses: tuple[Glimpse, ...]
    estimate: Estimate | None
    outcome: str
    cost_per_million_usd: float | None

    @property
    def low(self) -> float | None:
        return self.estimate.low or None if self.estimate else None

    @property
    def high(self) -> float | None:
        return self.estimate.high if self.estimate and self.estimate.high < float("inf") else None


def tune_report(name: str, folder: TuneFolder, inputs: FolderInputs) -> Report:
    """Reads a search. Raises `UsageError` where it has come to no result, or `InvalidDocument`."""
    result, workload = _result(folder), folder.workload()
    raced, objective, plan = _raced(folder.lines(), result), result.objective, folder.plan()
    patch = folder.path / PATCH
    generator = generator_table(inputs)
    archives = {f"archive of {target}": sha256 for target, sha256 in plan.archives.items()}
    tables = (
        _configurations(raced, objective),
        _left_out(result),
        generator,
    )
    return Report(
        kind="tune",
        name=name,
        workload=result.workload,
        description=workload.description,
        objective=f"highest rate within {objective.percentile} ≤ {objective.model_latency_ms:g} ms",
        verdict=_verdict(result),
        decision=decision(result),
        cautions=(
            f"Measured on {result.machine}, beside its own load generator: a configuration is best on the machine that "
            "it was searched on.",
        ),
        tables=tuple(each for each in tables if each is not None),
        patch=patch.read_text("utf-8") if patch.exists() else None,
        not_tested=tuple(_untested(result)),
        environment={
            "fingerprint": inputs.fingerprint(result.machine, *archives.values(), *(each.label for each in raced)),
            "measured on": result.machine,
            "measured at": result.measured_at,
            "stands for": result.instance_type or "not known",
            **archives,
            **inputs.facts(),
        },
    )


def decision(result: TuneResult) -> str:
    """Returns what to do, in a sentence."""
    best, limit = result.best, f"{result.objective.percentile} ≤ {result.objective.model_latency_ms:g} ms"
    if result.reason == Reason.NOTHING_KEEPS.value:
        return f"Serve none of them: {result.reason}."
    if best is None or not result.is_known:
        why = result.complaint.removesuffix(".") or result.reason
        return f"Conclude nothing yet: the best is not known to 15 %, and the search ended because {why}."
    beside = ""
    if result.runner_up and result.best_is_better is not None:
        beside = f"; that it bears more than the runner-up is {result.best_is_better:.0%} sure"
    return (
        f"Serve with {best.label}: it bears {best.invocations_per_minute:,.0f} invocations/min within {limit}{beside}."
    )


def _verdict(result: TuneResult) -> Outcome:
    if result.reason == Reason.NOTHING_KEEPS.value:
        return "missed"
    return "met" if result.is_known else "unknown"


def tune_figures(folder: TuneFolder) -> dict[str, Plot]:
    """Returns the figures of a search by title. Raises what `tune_report` raises."""
    result = _result(folder)
    raced = _raced(folder.lines(), result)
    known = [each for each in raced if each.estimate][:MOST_DRAWN]
    if not known:
        return {}
    return {
        "What each configuration bears": _intervals(known),
        "Latency against load": _latencies(known, result.objective),
    }


def _result(folder: TuneFolder) -> TuneResult:
    if not (folder.path / RESULT).exists():
        raise UsageError(
            f"{folder} has no result yet: go on with `python -m inference_recommender tune --resume {folder}`."
        )
    return TuneResult.from_json(folder.path / RESULT)


def _raced(lines: Sequence[Line], result: TuneResult) -> list[_Raced]:
    """Returns the configurations: the best, the runner-up, and the others by what they seem to bear."""
    limit = Limit(percentile=result.objective.percentile_rank, latency_ms=result.objective.model_latency_ms)
    seen: dict[str, list[Glimpse]] = {}
    for line in lines:
        if line.seen is not None:
            seen.setdefault(line.label, []).append(line.seen)
    placed: dict[str, tuple[Placed, str]] = {}
    for place, words in ((result.best, "the best"), (result.runner_up, "the runner-up")):
        if place is not None:
            placed[place.label] = (place, words)
    outcomes = {label: words for label, (_, words) in placed.items()} | {each.label: each.why for each in result.out}
    raced = [
        _Raced(
            label=label,
            glimpses=tuple(seen.get(label, ())),
            estimate=estimate(seen[label], limit) if label in seen else None,
            outcome=outcome,
            cost_per_million_usd=placed[label][0].cost_per_million_usd if label in placed else None,
        )
        for label, outcome in outcomes.items()
    ]
    others = sorted(raced[len(placed) :], key=lambda each: each.estimate.rate if each.estimate else 0.0, reverse=True)
    return [*raced[: len(placed)], *others]


def _configurations(raced: Sequence[_Raced], objective: LatencyObjective) -> Table:
    rows: list[tuple[Value, ...]] = [
        (
            each.label,
            each.estimate.rate if each.estimate else None,
            each.low,
            each.high,
            len(each.glimpses),
            sum(one.duration_s for one in each.glimpses),
            sum(one.sent for one in each.glimpses),
            each.cost_per_million_usd,
            each.outcome,
        )
        for each in raced
    ]
    note = (
        f"Within {objective.percentile} ≤ {objective.model_latency_ms:g} ms. What left the race early was probed for "
        "seconds: its figures are rough, and rather too high."
    )
    return table("configurations", "Configurations", CONFIGURATIONS, rows, note)


def _left_out(result: TuneResult) -> Table | None:
    rows: list[tuple[Value, ...]] = [(each.reason, len(each.configurations)) for each in result.left_out]
    heads = (("reason", "never in the race, since", ""), ("configurations", "configurations", ",d"))
    return table("left-out", "Left out", heads, rows, detail=True) if rows else None


def _untested(result: TuneResult) -> Iterator[str]:
    unprobed = result.configurations - result.probed
    if unprobed:
        yield f"{unprobed} of {result.configurations} configurations were never probed; the table says why."
    yield "No fleet was sized or proven, and nothing was measured behind an endpoint."
    yield OTHER_PAYLOADS
    yield COLD_START
    yield CHANGING_TRAFFIC


def _intervals(raced: Sequence[_Raced]) -> Plot:
    """Draws what each configuration bears, with its interval, the best at the top."""
    figure, axes = new_figure((WIDTH_IN, max(LEAST_IN, ROW_IN * len(raced) + 1.0)))
    highest = max(each.estimate.rate for each in raced if each.estimate)
    for place, each in enumerate(raced):
        assert each.estimate is not None, "those without one are not drawn"
        ends = (each.low or 0.0, min(each.high or highest * 2, highest * 2))
        axes.plot(
            ends, (place, place), color=GREY, linewidth=1.6, marker="|", label="95 % interval" if not place else "_"
        )
    rates = [each.estimate.rate for each in raced if each.estimate]
    colours = [ORANGE if place == 0 else BLUE for place in range(len(raced))]
    axes.scatter(rates, range(len(raced)), s=30, color=colours, zorder=3, label="bears")
    axes.set_yticks(range(len(raced)), [each.label for each in raced])
    axes.set_ylim(len(raced) - 0.5, -0.5)
    axes.set(xlabel="invocations per minute within the objective", xlim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    legend(figure, axes, columns=2)
    return drawn(figure)


def _latencies(raced: Sequence[_Raced], objective: LatencyObjective) -> Plot:
    """Draws the latency of each probe over its rate: the best, the runner-up, and the others."""
    figure, axes = new_figure((WIDTH_IN, 3.4))
    names = ((raced[2:], GREY, "o", "others"), (raced[1:2], INK, "s", "runner-up"), (raced[:1], ORANGE, "D", "best"))
    limit_ms = objective.model_latency_ms
    for some, colour, marker, name in names:
        points = [
            (one.invocations_per_minute, min(one.latency_ms, 3 * limit_ms))
            for each in some
            for one in each.glimpses
            if one.latency_ms is not None
        ]
        if points:
            rates, latencies = zip(*points, strict=True)
            axes.scatter(rates, latencies, s=18, color=colour, marker=marker, alpha=0.8, label=name)
    axes.axhline(limit_ms, color=RED, linewidth=1.2, linestyle="--", label=f"limit {limit_ms:g} ms")
    axes.set(xlabel="invocations per minute", ylabel=f"{objective.percentile} of a probe, ms", xlim=(0, None))
    axes.set_ylim(0, 3.1 * limit_ms)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    legend(figure, axes, columns=4)
    return drawn(figure)
