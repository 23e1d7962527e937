"""The report of a simulation, and its page. Pure."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from pydantic_core import to_jsonable_python

from inference_recommender.measurement import local_caution
from inference_recommender.report.document import Highlight, Report, Table, Value, table
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.sections import OTHER_PAYLOADS
from inference_recommender.simulate.seeds import seeds_text
from inference_recommender.simulate.simulation_file import RECOMMENDED, SimulatedPolicy, Simulation
from workloads import Workload

IDEAL = "ideal"
DETAILS = (
    ("policy", "policy", ""),
    ("settings", "instances, target, cooldowns", ""),
    ("dropped", "dropped requests", ",.0f"),
    ("seeds_over", "seeds over the tolerance", ",d"),
    ("seeds", "seeds", ",d"),
    ("is_within_tolerance", "within the tolerance", ""),
)
HOSTS = {"sagemaker": "SageMaker endpoint", "ecs": "ECS service with a capacity provider"}
UNKNOWN = "unknown"
POLICIES_NOTE = (
    "Means over seeds, for the whole trace; most: the most instances of any seed. The ideal fleet knows the future: in "
    "each step it has the fewest instances that meet the objective."
)


def simulation_report(name: str, simulation: Simulation, workload: Workload, inputs: FolderInputs) -> Report:
    trace, judged, origin = simulation.trace, simulation.judged, simulation.provenance
    objective, timing = workload.latency_objective, to_jsonable_python(simulation.timing)
    facts = (trace.sha256, str(simulation.first_seed), str(simulation.seeds), json.dumps(timing))
    return Report(
        kind="simulation",
        name=name,
        workload=simulation.workload,
        description=workload.description,
        objective=f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms on {trace.name} "
        f"({_length(trace.minutes)}, {seeds_text(simulation.seeds)}), at most {simulation.allowed_minutes:g} minutes "
        f"over it {_share(simulation)}",
        verdict="met" if simulation.safe else "missed",
        decision=simulation_decision(simulation),
        highlights=tuple(_highlights(simulation, judged)),
        cautions=tuple(_cautions(simulation)),
        tables=tuple(_tables(simulation)),
        notes=tuple(_notes(simulation, workload)),
        not_tested=tuple(_untested(simulation)),
        environment={
            "fingerprint": inputs.fingerprint(*facts),
            "trace": trace.name,
            "sha256 of the trace": trace.sha256,
            "trace begins": trace.start,
            "hosting": HOSTS[simulation.timing.hosts],
            "times": ", ".join(f"{name} {value:g}" for name, value in timing.items() if isinstance(value, int | float)),
            "length": f"{trace.minutes:,.0f} minutes",
            "seeds": f"{simulation.seeds:,}, the first is {simulation.first_seed:,}",
            "simulated at": simulation.made_at,
            "instance type": simulation.instance_type,
            "measured on": f"{origin.measured_on}: {origin.machine}" if origin else UNKNOWN,
            "measured at": origin.measured_at if origin else UNKNOWN,
            "model archive": simulation.archive_sha256 or UNKNOWN,
            **inputs.facts(),
        },
    )


def _share(simulation: Simulation) -> str:
    """Returns the share of seeds, or their number if they are too few for a share."""
    if simulation.tolerance.too_few_seeds(simulation.seeds):
        return f"in {seeds_text(simulation.seeds)}"
    return f"in {simulation.tolerance.confidence:.0%} of seeds"


def simulation_decision(simulation: Simulation) -> str:
    """Returns what to do, in a sentence or two."""
    judged, allowed = simulation.judged, f"{simulation.allowed_minutes:g} minutes over the objective"
    is_recommended = judged.name == RECOMMENDED
    which = "the recommended policy" if is_recommended else "the requested policy"
    if simulation.search:
        if not simulation.safe:
            nearest = "" if is_recommended else f" The nearest one is {judged.policy.text}."
            return f"Nothing to deploy: no policy was confirmed within {allowed} {_share(simulation)}.{nearest}"
        if is_recommended:
            return f"Keep the recommended policy, {judged.policy.text}. No confirmed policy is better."
        return f"Deploy {judged.policy.text}. It is {_saving(simulation)}."
    seeds = f"{judged.seeds_over_tolerance} of {seeds_text(judged.seeds)}"
    have = f"{seeds} {'has' if judged.seeds == 1 else 'have'} more than {allowed}"
    may = f"{simulation.tolerance.seeds_that_may_exceed(judged.seeds)} may"
    if simulation.safe:
        return f"{'Keep' if is_recommended else 'Deploy'} {which}, {judged.policy.text}: {have}; {may}."
    return f"{'Change' if is_recommended else 'Do not deploy'} {which}, {judged.policy.text}: {have}; {may}."


def _saving(simulation: Simulation) -> str:
    recommended = simulation.recommended
    saving = 1 - simulation.judged.instance_hours / recommended.instance_hours
    words = f"{saving:.1%} cheaper" if saving >= 0 else f"{-saving:.1%} more expensive"
    within = "is within the tolerance too" if recommended.is_within_tolerance else "exceeds the tolerance"
    return f"{words} than the recommended policy, which {within}"


def _highlights(simulation: Simulation, judged: SimulatedPolicy) -> Iterator[Highlight]:
    limit = f"(tolerance {simulation.allowed_minutes:g})"
    yield Highlight(label=f"minutes over, mean {limit}", value=f"{judged.minutes_over_objective:,.1f}")
    yield Highlight(label="late requests", value=f"{judged.late_share:.3%}")
    yield Highlight(label="most instances", value=f"{judged.most_instances:,}")
    if judged.cost_usd is not None:
        yield Highlight(label="cost of the trace", value=f"${judged.cost_usd:,.2f}")
    yield Highlight(label="instance hours", value=f"{judged.instance_hours:,.1f}")


def _cautions(simulation: Simulation) -> Iterator[str]:
    if few := simulation.tolerance.too_few_seeds(simulation.seeds):
        yield few
    yield from simulation.cautions
    if simulation.minutes_extrapolated:
        yield (
            f"Extrapolated: for {simulation.minutes_extrapolated:,.1f} minutes an instance gets up to "
            f"{simulation.highest_invocations_per_minute:,.0f} invocations/min. Nothing above "
            f"{simulation.curve.measured_up_to * 60:,.0f} was measured. The model answers at most "
            f"{simulation.curve.saturation * 60:,.0f}/min there."
        )
    if (origin := simulation.provenance) is not None:
        yield from local_caution(origin.measured_on, origin.machine)
    if simulation.price_per_hour_usd is None:
        yield f"The price of an instance is unknown: {simulation.cost_reason or 'the recommendation has none.'}"


def _tables(simulation: Simulation) -> Iterator[Table]:
    judged, few = simulation.judged, simulation.tolerance.too_few_seeds(simulation.seeds)
    share = "worst" if few else f"{simulation.tolerance.confidence:.0%} of seeds"
    columns = (
        ("policy", "policy", ""),
        ("settings", "instances, target", ""),
        ("minutes_over", "minutes over, mean", ",.1f"),
        ("minutes_over_at_confidence", share, ",.0f"),
        ("late_share", "late", ".3%"),
        ("most_instances", "most", ",d"),
        ("instance_hours", "instance hours", ",.1f"),
        ("cost_usd", "$", ",.2f"),
    )
    hours, price = judged.lower_bound_instance_hours, simulation.price_per_hour_usd
    cost = None if price is None else hours * price
    ideal = (IDEAL, None, 0.0, 0.0, None, None, hours, cost)
    rows = [_figures(each) for each in simulation.policies if not each.on_frontier]
    yield table("policies", "Policies", columns, [*rows, ideal], POLICIES_NOTE)
    details = [
        (each.name, each.policy.text, each.dropped, each.seeds_over_tolerance, each.seeds, each.is_within_tolerance)
        for each in simulation.by_cost()
    ]
    yield table("details", "Policies in detail", DETAILS, details, detail=True)
    frontier = [each for each in simulation.by_cost() if each.on_frontier]
    if frontier:
        note = (
            "No policy that was tried has both fewer hours and fewer minutes over. Figures are of the search's "
            f"{frontier[0].seeds} seeds; other seeds decide."
        )
        yield table("frontier", "Cost against risk", columns, [_figures(each) for each in frontier], note)


def _figures(each: SimulatedPolicy) -> tuple[Value, ...]:
    return (
        each.name,
        each.policy.bounds_text,
        each.minutes_over_objective,
        each.minutes_over_at_confidence,
        each.late_share,
        each.most_instances,
        each.instance_hours,
        each.cost_usd,
    )


def _notes(simulation: Simulation, workload: Workload) -> Iterator[str]:
    trace, timing, search = simulation.trace, simulation.timing, simulation.search
    yield (
        f"Traffic: mean {trace.mean_invocations_per_minute:,.0f} and peak {trace.peak_invocations_per_minute:,.0f} "
        f"invocations/min. The objective's peak: {workload.latency_objective.peak_invocations_per_minute:,}."
    )
    yield f"Model of an instance: {simulation.curve.basis}."
    source = timing.known_by.get("model_load_s", "assumed")
    yield (
        f"A new instance serves after {timing.provisioning_s + timing.model_load_s:,.0f} s "
        f"({timing.provisioning_s:.3g} s provisioning, {timing.known_by.get('provisioning_s', 'assumed')}; "
        f"{timing.model_load_s:.3g} s model load, {source}). An alarm sees a minute {timing.metric_delay_s} s late. "
        "[simulation] in workload.toml changes this."
    )
    day = simulation.day
    start = datetime.fromisoformat(day.start).astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    yield f"The plot shows the worst day: {_length(len(day.serving))} of seed {day.seed} from {start} UTC."
    if search and search.confirmed_on_seeds:
        yield (
            f"Chosen from {search.tried} policies. Confirmed on {search.confirmed_on_seeds:,} held-out seeds: "
            f"{search.failed_seeds} had more than half of the tolerated minutes."
        )


def _length(minutes: float) -> str:
    days = minutes / (24 * 60)
    return f"{days:g} day{'s' * (days != 1)}" if days >= 1 and days == int(days) else f"{minutes:,.0f} minutes"


def _untested(simulation: Simulation) -> Iterator[str]:
    yield "This policy on an endpoint on AWS. The times are assumptions."
    yield f"Traffic other than {simulation.trace.name}."
    if "M/M/1" in simulation.curve.basis:
        yield "Latency below and above the capacity: the instance is modelled as an M/M/1 queue."
    yield "Load that varies within a minute: it is even there, and the service is in its steady state."
    yield OTHER_PAYLOADS
