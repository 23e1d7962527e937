"""The results of `simulate` on a terminal: the bar, the table, sentences."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from inference_recommender.output import number, stdout_console, tell, warn
from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.evidence import Service
from inference_recommender.simulate.optimise import HELD_OUT_MINUTES, Found
from inference_recommender.simulate.policy import Policy, Timing
from inference_recommender.simulate.result import Result
from inference_recommender.simulate.seeds import Case
from workloads import LatencyObjective

NO_PRICE = "The price of an instance is not known"
FRONTIER_ROWS = 8


@contextmanager
def progress(stderr: Console, total: int | None) -> Iterator[Callable[[int], None]]:
    """Draws a bar on a terminal; `total` is None where it is not known beforehand."""
    bar = Progress(
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=stderr,
        disable=not stderr.is_terminal,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)


def caution(stderr: Console, curve: LatencyCurve, service: Service, found: Result) -> None:
    """Warns of what the result stands on that nobody has measured."""
    if beyond := found.extrapolated(curve):
        warn(
            stderr,
            f"The load goes beyond anything measured, to {beyond['highest_invocations_per_minute_and_instance']:,.0f} "
            f"invocations/min on an instance, {beyond['times']:.2f} times the highest rate measured, "
            f"{beyond['measured_up_to']:,.0f}: {beyond['minutes']:,.1f} minutes of the trace are extrapolated, as if "
            f"an instance answered {curve.saturation * 60:,.0f} and no more.",
        )
    if service.price_per_hour_usd is None:
        warn(stderr, f"{NO_PRICE}: {service.candidate.cost_reason or 'the recommendation has none.'}")


def show(title: str, case: Case, objective: LatencyObjective, named: Sequence[tuple[str, Result]]) -> None:
    """Prints a row for each fleet, the first of which is judged, and the lower bound."""
    (_, found), seeds = named[0], len(named[0][1].outcomes)
    console = stdout_console()
    table = Table(
        title=f"{title} on {case.traffic.name}, {_length(found.minutes)}, {seeds} seed{'s' * (seeds != 1)}: "
        f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("fleet")
    for head in ("minutes over\nmean", f"minutes over\n{found.tolerance.confidence:.0%}", "late", "dropped", "most"):
        table.add_column(head, justify="right")
    for head in ("instance\nhours", "USD"):
        table.add_column(head, justify="right")
    for name, each in named:
        table.add_row(f"{name}: {_in_words(each.policy)}", *_cells(each))
    hours = found.lower_bound_hours
    bound = ["0", "0", "", "", "", f"{hours:,.1f}", number(found.usd(hours), ",.2f")]
    table.add_row("lower bound: the future known", *bound)
    console.print(table)
    tell(console, _verdict(found))
    worst = found.worst
    tell(
        console,
        f"The worst seed is {worst.seed}: {worst.minutes_over_objective:,.0f} minutes over, "
        f"{worst.late_share:.3%} late, {worst.dropped:,.0f} dropped.",
    )
    tell(console, f"The curve: {case.curve.basis}. {_assumed(case.timing)}")


def show_found(found: Found) -> None:
    """Prints the frontier of the search, then what is chosen and saved."""
    console = stdout_console()
    table = Table(title="Cost against risk, on the search's seeds", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("policy")
    for head in ("minutes over\nmean", "instance\nhours", "USD"):
        table.add_column(head, justify="right")
    for each in found.frontier()[-FRONTIER_ROWS:]:
        cost = number(each.usd(each.instance_hours), ",.2f")
        table.add_row(_in_words(each.policy), f"{each.minutes_over:,.2f}", f"{each.instance_hours:,.1f}", cost)
    console.print(table)
    tell(console, f"Chosen, of {len(found.tried)} policies: {policy_in_words(found.chosen.policy)}.")
    tell(console, _confirmed_in_words(found))
    tell(console, saving_in_words(found))


def _confirmed_in_words(found: Found) -> str:
    decided = f"Decided on {len(found.chosen.outcomes):,} seeds"
    if found.held_out is None:
        return f"{decided}; no other policy {'that is cheaper ' if found.today.kept else ''}was confirmed on others."
    minutes = HELD_OUT_MINUTES * found.chosen.tolerance.allowed(found.chosen.minutes)
    failed = f"{found.failed or 'none'} of them {'have' if found.failed > 1 else 'has'} more than {minutes:g}"
    return f"{decided}, and confirmed on {len(found.held_out):,} others: {failed} minutes over."


def policy_in_words(policy: Policy) -> str:
    schedule = "; ".join(f"{each.min_capacity} at {each.schedule}" for each in policy.scheduled_minimums)
    return (
        f"{_in_words(policy)}, cooldowns of {policy.scale_out_cooldown_s} s out and {policy.scale_in_cooldown_s} s in"
        + (f", at least {schedule}" if schedule else "")
    )


def saving_in_words(found: Found) -> str:
    """Names what the chosen policy saves or costs beside today's."""
    if found.choice is None:
        return "No policy that was tried is better than today's."
    saved = 1 - found.chosen.instance_hours / found.today.instance_hours
    words = f"{saved:.1%} cheaper" if saved >= 0 else f"{-saved:.1%} dearer"
    kept = "which keeps the tolerance, too" if found.today.kept else "which exceeds the tolerance"
    return f"It is {words} than today's policy, {kept}."


def _cells(result: Result) -> list[str]:
    summary = result.summary()
    return [
        f"{result.minutes_over:,.1f}",
        f"{result.minutes_over_at_confidence:,.0f}",
        f"{summary['late_share']:.3%}",
        f"{summary['dropped']:,.0f}",
        f"{summary['most_instances']:,}",
        f"{result.instance_hours:,.1f}",
        number(result.usd(result.instance_hours), ",.2f"),
    ]


def _in_words(policy: Policy) -> str:
    if policy.min_capacity == policy.max_capacity:
        return f"{policy.min_capacity}"
    return f"{policy.min_capacity} to {policy.max_capacity}, {policy.target_invocations_per_instance:,.0f}/min each"


def _verdict(result: Result) -> str:
    tolerance = result.tolerance
    allowed = f"{tolerance.allowed(result.minutes):g} minutes over the objective in {tolerance.confidence:.0%} of seeds"
    if result.kept:
        return f"Within the tolerance: at most {allowed}; {result.exceeding} of {len(result.outcomes)} have more."
    return f"Beyond the tolerance of {allowed}: {result.exceeding} of {len(result.outcomes)} have more."


def _assumed(timing: Timing) -> str:
    ready = timing.provisioning_s + timing.model_load_s
    return (
        f"An instance is taken to serve {ready:g} s after it is asked for, and an alarm to see a minute "
        f"{timing.metric_delay_s} s late: assumptions, which options change.{_measured(timing)}"
    )


def _measured(timing: Timing) -> str:
    """Returns which part of an instance's time is measured, and which is not; empty where nothing is."""
    parts = {"provisioning_s": "AWS's provisioning", "model_load_s": "the server's own start"}
    said = [
        f"{getattr(timing, name):.3g} s of {words} are {timing.known_by.get(name, 'assumed')}"
        for name, words in parts.items()
    ]
    return f" But {' and '.join(said)}." if timing.known_by else ""


def _length(minutes: float) -> str:
    days = minutes / (24 * 60)
    return f"{days:g} day{'s' * (days != 1)}" if days >= 1 and days == int(days) else f"{minutes:,.0f} minutes"
