"""The results of `simulate` on a terminal: the bar, the table, sentences."""

import time
from collections import Counter
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
from inference_recommender.simulate.result import Result, too_few_seeds
from inference_recommender.simulate.seeds import Case
from workloads import LatencyObjective

NO_PRICE = "The price of an instance is not known"
FRONTIER_ROWS = 8
LOG_EVERY_S = 30.0
IDEAL = "ideal (knows the future)"
MOST_SCHEDULED = 2
"""More scheduled minimums than that are summed up; `policy` of the document has them all."""


@contextmanager
def progress(stderr: Console, total: int | None) -> Iterator[Callable[[int], None]]:
    """Draws a bar on a terminal, and prints a line every half minute elsewhere; `total` is None if it is unknown."""
    bar = Progress(
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=stderr,
        disable=not stderr.is_terminal,
        transient=True,
    )
    began = logged = time.monotonic()
    count = 0

    def advance(more: int) -> None:
        nonlocal count, logged
        count += more
        bar.advance(task, more)
        now = time.monotonic()
        if not stderr.is_terminal and now - logged >= LOG_EVERY_S:
            of = f" of {total:,}" if total else ""
            tell(stderr, f"Simulated {count:,}{of} seeds in {now - began:,.0f} s.")
            logged = now

    with bar:
        task = bar.add_task("", total=total)
        yield advance


def caution(stderr: Console, curve: LatencyCurve, service: Service, found: Result) -> None:
    """Warns of what the result rests on that was not measured."""
    if service.caution:
        warn(stderr, service.caution)
    if beyond := found.extrapolated(curve):
        warn(
            stderr,
            f"For {beyond['minutes']:,.1f} minutes an instance gets up to "
            f"{beyond['highest_invocations_per_minute_and_instance']:,.0f} invocations/min. Nothing above "
            f"{beyond['measured_up_to']:,.0f} was measured. There an instance is taken to answer "
            f"{curve.saturation * 60:,.0f}/min.",
        )
    if service.price_per_hour_usd is None:
        warn(stderr, f"{NO_PRICE}: {service.candidate.cost_reason or 'the recommendation has none.'}")


def show(title: str, case: Case, objective: LatencyObjective, named: Sequence[tuple[str, Result]]) -> None:
    """Prints a row for each fleet, the first of which is judged, and the ideal one."""
    (_, found), seeds = named[0], len(named[0][1].outcomes)
    console, few = stdout_console(), too_few_seeds(seeds, found.tolerance.confidence)
    table = Table(
        title=f"{title} on {case.traffic.name}, {_length(found.minutes)}, {_seeds(seeds)}: "
        f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms",
        title_justify="left",
        box=SIMPLE_HEAD,
        collapse_padding=True,
    )
    table.add_column("fleet")
    share = ",\nworst" if few else f", {found.tolerance.confidence:.0%}\nof seeds"
    for head in ("minutes\nover,\nmean", f"minutes\nover{share}", "late", "dropped", "most\ninstances"):
        table.add_column(head, justify="right")
    for head in ("instance\nhours", "USD"):
        table.add_column(head, justify="right")
    for (name, each), words in zip(named, rows_in_words([each.policy for _, each in named]), strict=True):
        table.add_row(f"{name}: {words}", *_cells(each))
    hours = found.lower_bound_hours
    table.add_row(IDEAL, "0", "0", "", "", "", f"{hours:,.1f}", number(found.usd(hours), ",.2f"))
    console.print(table)
    tell(console, " ".join(part for part in (_verdict(found), few) if part))
    worst = found.worst
    if worst.minutes_over_objective or worst.dropped:
        tell(
            console,
            f"The worst seed, {worst.seed}: {worst.minutes_over_objective:,.0f} minutes over, "
            f"{worst.late_share:.3%} late, {worst.dropped:,.0f} dropped.",
        )
    load = case.traffic.load(found.outcomes[0].seed)
    tell(
        console,
        f"Traffic: mean {load.mean_per_minute:,.0f} and peak {load.peak_per_minute:,.0f} invocations/min. The "
        f"objective's peak: {objective.peak_invocations_per_minute:,}.",
    )
    tell(console, f"Model of an instance: {case.curve.basis}.")
    tell(console, _assumed(case.timing))


def show_found(found: Found) -> None:
    """Prints the frontier of the search, then the choice and what it saves."""
    console = stdout_console()
    table = Table(title="Cost against risk, on the search's seeds", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("policy")
    for head in ("minutes over,\nmean", "instance\nhours", "USD"):
        table.add_column(head, justify="right")
    shown = found.frontier()[-FRONTIER_ROWS:]
    for each, words in zip(shown, rows_in_words([each.policy for each in shown]), strict=True):
        cost = number(each.usd(each.instance_hours), ",.2f")
        table.add_row(words, f"{each.minutes_over:,.2f}", f"{each.instance_hours:,.1f}", cost)
    console.print(table)
    tell(console, f"Chosen from {len(found.tried)} policies: {policy_in_words(found.chosen.policy)}.")
    tell(console, _confirmed_in_words(found))
    tell(console, saving_in_words(found))


def _confirmed_in_words(found: Found) -> str:
    decided = f"Decided on {_seeds(len(found.chosen.outcomes))}"
    if found.held_out is None:
        return f"{decided}. No {'cheaper' if found.today.kept else 'other'} policy was confirmed on held-out seeds."
    minutes = HELD_OUT_MINUTES * found.chosen.tolerance.allowed(found.chosen.minutes)
    return (
        f"{decided} and confirmed on {len(found.held_out):,} held-out seeds: {found.failed} of them exceeded "
        f"{minutes:g} minutes over the objective."
    )


def rows_in_words(policies: Sequence[Policy]) -> list[str]:
    """Returns each policy in few words, with cooldowns and scheduled minimums where the few words are not unique."""
    counts = Counter(_in_words(policy) for policy in dict.fromkeys(policies))
    return [
        words if counts[words := _in_words(policy)] == 1 else _with_settings(policy, policies, words)
        for policy in policies
    ]


def _with_settings(policy: Policy, policies: Sequence[Policy], words: str) -> str:
    alike = [_settings(each) for each in policies if _in_words(each) == words]
    differ = [name for name in alike[0] if len({settings[name] for settings in alike}) > 1]
    return ", ".join([words, *(_settings(policy)[name] or f"no {name}" for name in differ)])


def policy_in_words(policy: Policy) -> str:
    return ", ".join([_in_words(policy), *(words for words in _settings(policy).values() if words)])


def _settings(policy: Policy) -> dict[str, str]:
    """Returns what the few words leave out, by its name; "" for none."""
    scheduled = policy.scheduled_minimums
    least = [each.min_capacity for each in scheduled]
    if len(scheduled) > MOST_SCHEDULED:
        schedule = f"{len(least)} scheduled minimums of {min(least)} to {max(least)}"
    else:
        schedule = "; ".join(f"{each.min_capacity} at {each.schedule}" for each in scheduled)
        schedule = schedule and f"at least {schedule}"
    cooldowns = f"cooldowns of {policy.scale_out_cooldown_s} s out and {policy.scale_in_cooldown_s} s in"
    return {"cooldowns": cooldowns, "scheduled minimums": schedule}


def saving_in_words(found: Found) -> str:
    """Compares the cost of the chosen policy with the recommended one's."""
    if found.choice is None:
        return "No policy that was tried is better than the recommended one."
    saved = 1 - found.chosen.instance_hours / found.today.instance_hours
    words = f"{saved:.1%} less" if saved >= 0 else f"{-saved:.1%} more"
    today = "is within the tolerance, too" if found.today.kept else "exceeds the tolerance"
    return f"It costs {words} than the recommended policy, which {today}."


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
        return f"{policy.min_capacity} instance{'s' * (policy.min_capacity != 1)}"
    return f"{policy.min_capacity} to {policy.max_capacity}, {policy.target_invocations_per_instance:,.0f}/min each"


def _verdict(result: Result) -> str:
    tolerance, seeds = result.tolerance, len(result.outcomes)
    return (
        f"{'Within' if result.kept else 'Beyond'} the tolerance: {result.exceeding} of {_seeds(seeds)} "
        f"{'has' if seeds == 1 else 'have'} more than {tolerance.allowed(result.minutes):g} minutes over the "
        f"objective; {tolerance.seeds_that_may_exceed(seeds)} may."
    )


def _assumed(timing: Timing) -> str:
    parts = {"provisioning_s": "to provision it", "model_load_s": "to load the model"}
    shown = [
        ", ".join([f"{getattr(timing, name):.3g} s {words}", *filter(None, [timing.known_by.get(name)])])
        for name, words in parts.items()
    ]
    return (
        f"Assumed: a new instance serves after {timing.provisioning_s + timing.model_load_s:,.0f} s "
        f"({'; '.join(shown)}). An alarm sees a minute {timing.metric_delay_s} s late. Change this with "
        "--provisioning-s, --model-load-s and --metric-delay-s."
    )


def _seeds(count: int) -> str:
    return f"{count:,} seed{'s' * (count != 1)}"


def _length(minutes: float) -> str:
    days = minutes / (24 * 60)
    return f"{days:g} day{'s' * (days != 1)}" if days >= 1 and days == int(days) else f"{minutes:,.0f} minutes"
