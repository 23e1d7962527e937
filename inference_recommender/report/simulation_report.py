"""The report of a simulation, from what `simulate` has left in its folder. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from inference_recommender.report.configuration import text_of
from inference_recommender.report.document import Outcome, Report, Table, Value, table
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.page import page
from inference_recommender.report.sections import OTHER_PAYLOADS, local_caution
from inference_recommender.report.simulation_plots import cost_against_risk, day_plots
from inference_recommender.simulate.kept import RECOMMENDED, Simulated, Simulation, TheDay
from inference_recommender.simulate.result import too_few_seeds
from inference_recommender.simulate.terminal import IDEAL
from workloads import Workload

POLICIES = (
    ("policy", "policy", ""),
    ("in_words", "instances, target, cooldowns", ""),
    ("minutes_over", "minutes over, mean", ",.1f"),
    ("minutes_over_at_confidence", "minutes over, at most in the share of seeds", ",.0f"),
    ("late_share", "late", ".3%"),
    ("dropped", "dropped", ",.0f"),
    ("most_instances", "most instances", ",d"),
    ("instance_hours", "instance hours", ",.1f"),
    ("cost_usd", "USD", ",.2f"),
    ("over_lower_bound", "hours over the ideal fleet's", ".2f"),
    ("kept", "within the tolerance", ""),
    ("seeds", "seeds", ",d"),
)
DAY = (
    ("policy", "policy", ""),
    ("in_words", "instances, target, cooldowns", ""),
    ("minutes_over", "minutes over", ",.0f"),
    ("late_share", "late", ".3%"),
    ("most_instances", "most instances", ",d"),
    ("instance_hours", "instance hours", ",.1f"),
    ("cost_usd", "USD", ",.2f"),
)
DIFFERENCES = (("key", "key", ""), ("todays", RECOMMENDED, ""), ("chosen", "here", ""))
ASSUMPTIONS = (("what", "what", ""), ("value", "value", ",.6g"), ("known_by", "source", ""))
TIMES = {
    "provisioning_s": "from the request for an instance to its container, s, the median",
    "provisioning_spread": "the standard deviation of that time's logarithm",
    "model_load_s": "from there to answers within the objective, s",
    "removal_s": "until a removed instance is no longer paid for, s",
    "replacement_s": "until a failed instance is noticed, s",
    "metric_delay_s": "until an alarm sees a datapoint of a minute, s",
    "high_resolution_delay_s": "until an alarm sees a datapoint of 10 s, s",
    "instance_warm_up_s": "the capacity provider's warm-up of an instance, s",
    "idle_s": "how long an idle instance of a capacity provider stays, s",
}
OF_ECS = frozenset({"instance_warm_up_s", "idle_s"})
KNOWN_BY = {
    "metric_delay_s": "assumed; AWS measured 363 s from a load to the scaling of an ECS service",
    "high_resolution_delay_s": "assumed; AWS measured 86 s from a load to the scaling with datapoints of 20 s",
    "instance_warm_up_s": "the stack sets it",
    "idle_s": "the alarm that AWS makes has 15 datapoints of a minute",
}


def simulation_report(name: str, simulation: Simulation, workload: Workload, inputs: FolderInputs) -> Report:
    objective, tolerance, service = workload.latency_objective, simulation.tolerance, simulation.service
    trace = simulation.trace
    facts = (trace.sha256, str(simulation.first_seed), str(simulation.seeds), json.dumps(simulation.timing))
    return Report(
        kind="simulation",
        name=name,
        workload=simulation.workload,
        description=workload.description,
        objective=f"{objective.percentile} model latency ≤ {objective.model_latency_ms:g} ms on {trace.name}, at most "
        f"{tolerance.minutes_a_month:g} minutes a month over it, {_share(simulation)}",
        verdict=_verdict(simulation),
        decision=decision(simulation),
        cautions=tuple(_cautions(simulation)),
        tables=tuple(_tables(simulation)),
        not_tested=tuple(_untested(simulation)),
        environment={
            "fingerprint": inputs.fingerprint(*facts),
            "trace": trace.name,
            "sha256 of the trace": trace.sha256,
            "trace begins": trace.start,
            "length": f"{trace.minutes:,.0f} minutes",
            "seeds": f"{simulation.seeds:,} from {simulation.first_seed:,} on",
            "simulated at": simulation.made_at,
            "instance type": service.instance_type,
            "measured on": f"{service.measured_on}: {service.machine}" if service.measured_on else "not known",
            "measured at": service.measured_at or "not known",
            "model archive": service.archive_sha256 or "not known",
            **inputs.facts(),
        },
    )


def simulation_page(report: Report, simulation: Simulation, workload: Workload) -> str:
    """Returns the page of a simulation: the report, and the worst day under each policy with a slider between them."""
    day, policies, today = simulation.day, simulation.by_cost(), simulation.today

    def changed(policy: Simulated) -> str:
        rows = differences(today, policy) if today and policy is simulation.chosen else ()
        return "; ".join(f"{key} {there or 'none'} → {here or 'none'}" for key, there, here in rows)

    return page(
        report,
        {
            **day_plots(simulation, workload.latency_objective),
            "Cost against risk": cost_against_risk(simulation),
        },
        template="simulation.html",
        simulation=simulation,
        policies=policies,
        selected=policies.index(simulation.chosen),
        changed=changed,
        day_text=(
            f"{day_in_words(day)}. All policies have the same arrivals and the same service. A point covers "
            f"{day.minutes_per_entry:g} minutes: mean load, instances and cost; worst latency and share of late "
            "requests. Latency is estimated from that share as if it were exponential, which is rough far below the "
            "objective."
        ),
    )


def _verdict(simulation: Simulation) -> Outcome:
    if not simulation.complete:
        return "unknown"
    return "met" if simulation.safe else "missed"


def _share(simulation: Simulation) -> str:
    """Returns the share of seeds, or their number if they are too few for one."""
    seeds, confidence = simulation.seeds, simulation.tolerance.confidence
    if too_few_seeds(seeds, confidence):
        return f"in {seeds} seed{'s' * (seeds != 1)}"
    return f"in {confidence:.0%} of seeds"


def decision(simulation: Simulation) -> str:
    """Returns what to do, in a sentence."""
    chosen, tolerance = simulation.chosen, simulation.tolerance
    within = f"{tolerance.allowed_minutes:g} minutes over the objective {_share(simulation)}"
    over = (
        f"{chosen.seeds_over_tolerance} of {chosen.seeds} seed{'s' * (chosen.seeds != 1)} had more than "
        f"{tolerance.allowed_minutes:g} minutes over the objective"
    )
    is_recommended = chosen.name == RECOMMENDED
    if not simulation.complete:
        return "No conclusion: the simulation was interrupted."
    if simulation.optimised:
        if not simulation.safe:
            nearest = "" if is_recommended else f" The nearest is {chosen.in_words}."
            return f"Do not deploy: no policy that was tried was confirmed to stay within {within}.{nearest}"
        if is_recommended:
            return f"Keep the recommended policy, {chosen.in_words}: it stays within {within}, and no other is better."
        return f"Deploy {chosen.in_words}: it stays within {within}, and is {_beside_recommended(simulation)}."
    which = "the recommended policy" if is_recommended else "the policy that was asked for"
    if simulation.safe:
        return f"{'Keep' if is_recommended else 'Deploy'} {which}, {chosen.in_words}: it stays within {within}."
    return f"Do not rely on {which}, {chosen.in_words}: {over}."


def _beside_recommended(simulation: Simulation) -> str:
    today = simulation.today
    assert today is not None, "it was simulated beside the choice"
    saved = 1 - simulation.chosen.instance_hours / today.instance_hours
    words = f"{saved:.1%} cheaper" if saved >= 0 else f"{-saved:.1%} more expensive"
    return f"{words} than the recommended policy, which {'stays within that, too' if today.kept else 'exceeds that'}"


def _cautions(simulation: Simulation) -> Iterator[str]:
    if few := too_few_seeds(simulation.seeds, simulation.tolerance.confidence):
        yield few
    if simulation.caution:
        yield simulation.caution
    if beyond := simulation.extrapolated:
        yield (
            f"Extrapolated: for {beyond.minutes:,.1f} minutes an instance gets up to "
            f"{beyond.highest_invocations_per_minute_and_instance:,.0f} invocations/min, and nothing above "
            f"{beyond.measured_up_to:,.0f} was measured. There an instance is taken to answer "
            f"{simulation.curve.saturation_invocations_per_minute:,.0f}/min."
        )
    service = simulation.service
    yield from local_caution(service.measured_on, service.machine or "")
    if simulation.price_per_hour_usd is None:
        yield f"The price of an instance is not known: {service.cost_reason or 'the recommendation has none.'}"


def _tables(simulation: Simulation) -> Iterator[Table]:
    compared = [each for each in simulation.policies if not each.on_frontier]
    chosen, figures = simulation.chosen, partial(_figures, simulation.tolerance.confidence)
    bound: tuple[Value, ...] = (
        IDEAL,
        "the fewest instances that meet the objective in each step",
        0.0,
        0.0,
        None,
        None,
        None,
        chosen.lower_bound_instance_hours,
        chosen.lower_bound_cost_usd,
        1.0,
        None,
        chosen.seeds,
    )
    yield table(
        "policies",
        "Policies",
        POLICIES,
        [*map(figures, compared), bound],
        f"Means over seeds, for the whole trace. The share of seeds is {simulation.tolerance.confidence:.0%}. "
        f"The tolerance is {simulation.tolerance.allowed_minutes:g} minutes over the objective.",
    )
    yield _difference(simulation)
    frontier = [each for each in simulation.by_cost() if each.on_frontier]
    if frontier:
        seeds = frontier[0].seeds
        yield table(
            "frontier",
            "Frontier of cost against risk",
            POLICIES,
            list(map(figures, frontier)),
            f"None of the {simulation.policies_tried or ''} policies that were tried has both fewer hours and fewer "
            f"minutes over. On the {seeds} seeds of the search; other seeds decide.",
        )
    day = simulation.day
    yield table(
        "worst-day",
        "The worst day under each policy",
        DAY,
        [_day(each) for each in simulation.by_cost()],
        f"{day_in_words(day)}, with the same arrivals and the same service for every policy.",
    )
    yield _assumptions(simulation)


def _figures(confidence: float, each: Simulated) -> tuple[Value, ...]:
    return (
        each.name,
        each.in_words,
        each.minutes_over_objective,
        None if too_few_seeds(each.seeds, confidence) else each.minutes_over_at_confidence,
        each.late_share,
        each.dropped,
        each.most_instances,
        each.instance_hours,
        each.cost_usd,
        each.instance_hours / each.lower_bound_instance_hours if each.lower_bound_instance_hours else None,
        each.kept,
        each.seeds,
    )


def _day(each: Simulated) -> tuple[Value, ...]:
    day = each.day
    return (
        each.name,
        each.in_words,
        day.minutes_over_objective,
        day.late_share,
        day.most_instances,
        day.instance_hours,
        day.cost_usd,
    )


def day_in_words(day: TheDay) -> str:
    """Returns which day it is."""
    hours = f"{day.minutes / 60:g} hours" if day.minutes >= 120 else f"{day.minutes:g} minutes"
    start = datetime.fromisoformat(day.start).astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    return f"Seed {day.seed}, the worst of the policy that is judged: {hours} from {start} UTC on"


def _difference(simulation: Simulation) -> Table:
    """Returns the judged policy as a diff from the recommended one."""
    chosen, today = simulation.chosen, simulation.today
    rows = differences(today, chosen) if today else []
    same = "It is the recommended policy." if today else "The recommended policy was not simulated."
    return table("policy", "The policy, as a diff from the recommended one", DIFFERENCES, rows, "" if rows else same)


def differences(today: Simulated, other: Simulated) -> Sequence[tuple[str, str | None, str | None]]:
    """Returns a row for each key of the policy whose values differ."""
    return [
        (key, _setting(today.policy, key), _setting(other.policy, key))
        for key in dict.fromkeys([*today.policy, *other.policy])
        if today.policy.get(key) != other.policy.get(key)
    ]


def _setting(policy: Mapping[str, Any], key: str) -> str | None:
    match policy.get(key):
        case [{"schedule": _}, *_] as minimums:
            return "; ".join(f"{each['min_capacity']} at {each['schedule']}" for each in minimums)
        case []:
            return None
        case float(value):
            return f"{value:,.10g}"
        case value:
            return text_of(value)


def _assumptions(simulation: Simulation) -> Table:
    timing, curve = simulation.timing, simulation.curve
    of_ecs = timing.get("hosts") == "ecs"
    rows: list[tuple[Value, ...]] = [
        (words, timing[name], simulation.assumed.get(name) or KNOWN_BY.get(name, "assumed"))
        for name, words in TIMES.items()
        if name in timing and (of_ecs or name not in OF_ECS)
    ]
    rows += [
        ("capacity of an instance, invocations/min", curve.max_invocations_per_minute, curve.basis),
        ("most answers of an instance, invocations/min", curve.saturation_invocations_per_minute, curve.basis),
        ("USD an hour of an instance", simulation.price_per_hour_usd, simulation.service.cost_reason or "the list"),
    ]
    hosts = "a service of ECS with its capacity provider" if of_ecs else "an endpoint of SageMaker"
    note = f"The trace begins at {simulation.trace.start}; schedules use its hours. Simulated as {hosts}."
    return table("assumptions", "Assumed", ASSUMPTIONS, rows, note)


def _untested(simulation: Simulation) -> Iterator[str]:
    yield "No endpoint of AWS has scaled with this policy. Its times are assumptions."
    yield f"Only {simulation.trace.name} was simulated. Other traffic may be over the objective for longer."
    if "M/M/1" in simulation.curve.basis:
        yield "There are no probes below and above the capacity: the instance is modelled as an M/M/1 queue."
    yield "Within a minute the load is even and the service in its steady state."
    if confirmed := simulation.confirmed_on:
        yield (
            f"The choice was confirmed on {confirmed.seeds:,} held-out seeds, {confirmed.failed} of which had more "
            "than half of the tolerated minutes. No further seeds were tried."
        )
    yield OTHER_PAYLOADS
