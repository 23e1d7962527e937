"""The reports of a simulation and of a fit, and the document of simulation.json. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pydantic_core import to_jsonable_python

from inference_recommender.capacity.arrivals import Fit
from inference_recommender.measurement import local_caution
from inference_recommender.report.candidates import UNKNOWN
from inference_recommender.report.document import Highlight, Report, Table, Value, table
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.sections import OTHER_PAYLOADS
from inference_recommender.simulate.policy_search import PolicySearchResult
from inference_recommender.simulate.seeds import PolicyResult, SimulationCase, seeds_text
from inference_recommender.simulate.simulation import minutes_over
from inference_recommender.simulate.sized_service import SizedService
from inference_recommender.simulate.tracking import DAY_MINUTES
from inference_recommender.simulate.unseen import DAYS_WITHIN, UnseenResult
from workloads import Workload
from workloads.document import Document
from workloads.objective import PROCESS_KEYS

SIMULATION = "simulation.json"
RECOMMENDED, FIXED, ON_FRONTIER, IDEAL = "recommended", "fixed fleet", "frontier", "ideal"
"""Names of policies. Those on the frontier are numbered, the cheapest first."""
DETAILS = (
    ("policy", "policy", ""),
    ("settings", "instances, target, cooldowns", ""),
    ("dropped", "dropped requests", ",.0f"),
    ("seeds_over", "seeds over the tolerance", ",d"),
    ("seeds", "seeds", ",d"),
    ("is_within_tolerance", "within the tolerance", ""),
)
CLOSE_FIT = 0.2
"""A fit with a larger distance is called poor."""
WINDOWS = (("window_s", "window, s", ",.3g"), ("recorded", "recorded", ",.3g"), ("fitted", "fitted", ",.3g"))
WINDOWS_NOTE = (
    "Index of dispersion: the variance of the count of requests in windows of a length over its mean. Poisson has 1."
)
HOSTS = {"sagemaker": "SageMaker endpoint", "ecs": "ECS service with a capacity provider"}
UNSEEN = (
    ("policy", "policy", ""),
    ("settings", "instances, target", ""),
    ("days_within", "days within", ",d"),
    ("days", "of days", ",d"),
    ("instance_hours", "instance hours", ",.1f"),
    ("cost_over_foresight", "× foresight", ",.2f"),
    ("cost_usd", "$", ",.2f"),
)
UNSEEN_DAYS = (
    ("day", "day", ""),
    ("peak", "peak/min", ",.0f"),
    ("minutes_over", "minutes over", ",.0f"),
    ("instance_hours", "instance hours", ",.1f"),
    ("foresight_hours", "foresight hours", ",.1f"),
)
UNSEEN_NOTE = (
    "A day is within the tolerance if no seed has more minutes over the objective. Foresight: the cheapest fleet that "
    "knows the load of every minute ahead, whose instances take as long to start and to go."
)
POLICIES_NOTE = (
    "Means over seeds, for the whole trace; most: the most instances of any seed. The ideal fleet knows the future: in "
    "each minute it has the fewest instances that meet the objective."
)


class WorstDay(Document):
    """The judged policy on the day with the most minutes over the objective, then the most late requests, of the worst
    seed: instances in each minute.
    """

    seed: int
    start: str
    serving: tuple[int, ...]
    desired: tuple[int, ...]
    ideal: tuple[int, ...]


class Simulation(Document):
    """The content of simulation.json."""

    report: Report
    day: WorstDay


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletedSimulation:
    """Results of policies by name. The first one is judged."""

    case: SimulationCase
    service: SizedService
    workload: Workload
    results: Mapping[str, PolicyResult]
    search: PolicySearchResult | None
    unseen: Mapping[str, UnseenResult] = field(default_factory=dict)
    """With --judge-on: results on its days, by the same names."""
    rise: str | None = None
    """A sentence if target tracking cannot follow the traffic."""

    @property
    def name(self) -> str:
        return next(iter(self.results))

    @property
    def judged(self) -> PolicyResult:
        return self.results[self.name]

    @property
    def seeds(self) -> int:
        return len(self.judged.outcomes)

    @property
    def too_few_seeds(self) -> str | None:
        return self.case.tolerance.too_few_seeds(self.seeds)

    @property
    def safe(self) -> bool:
        """Whether the judged policy may be deployed."""
        if self.unseen:
            return self.unseen[self.name].holds and (self.search is None or self.search.safe)
        return self.search.safe if self.search else self.judged.is_within_tolerance

    def usd(self, hours: float) -> float | None:
        price = self.service.price_per_hour_usd
        return None if price is None else hours * price


def simulation_document(name: str, done: CompletedSimulation, inputs: FolderInputs, now: datetime) -> Simulation:
    """Returns the document. `name` is the folder's."""
    case, judged, origin = done.case, done.judged, done.service.recommendation
    first, day = judged.outcomes[0].seed, _worst_day(case, judged)
    load, timing = case.traffic.load(first), to_jsonable_python(case.timing)
    objective = done.workload.latency_objective
    report = Report(
        kind="simulation",
        name=name,
        workload=done.workload.name,
        description=done.workload.description,
        objective=f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms on {_scope(done)}",
        verdict="met" if done.safe else "missed",
        decision=_decision(done),
        highlights=tuple(_highlights(done)),
        cautions=tuple(_cautions(done)),
        tables=tuple(_tables(done)),
        notes=tuple(_notes(done, day)),
        not_tested=(
            "This policy on an endpoint on AWS. The times are assumptions.",
            f"Traffic other than {done.unseen[done.name].trace if done.unseen else case.traffic.name}.",
            "Load that varies within a minute: it is even there, and the service is in its steady state.",
            OTHER_PAYLOADS,
        ),
        environment={
            "fingerprint": inputs.fingerprint(case.traffic.sha256, str(first), str(done.seeds), json.dumps(timing)),
            "trace": case.traffic.name,
            "sha256 of the trace": case.traffic.sha256,
            "trace begins": load.start.isoformat(),
            "hosting": HOSTS[case.timing.hosts],
            "times": ", ".join(f"{name} {value:g}" for name, value in timing.items() if isinstance(value, int | float)),
            "seeds": f"{done.seeds:,}, the first is {first:,}",
            "simulated at": now.isoformat(timespec="seconds"),
            "instance type": done.service.candidate.instance_type,
            "measured on": f"{origin.provenance.measured_on}: {origin.provenance.machine}" if origin else UNKNOWN,
            "measured at": origin.provenance.measured_at if origin else UNKNOWN,
            "model archive": origin.archive_sha256 if origin else UNKNOWN,
            **inputs.facts(),
        },
    )
    return Simulation(report=report, day=day)


def _worst_day(case: SimulationCase, judged: PolicyResult) -> WorstDay:
    seed = judged.worst.seed
    course, start = case.run(judged.policy, seed).course(), case.traffic.load(seed).start
    over, late = minutes_over(course, case.curve.allowed), course["late_share"] * course["arrivals"]
    days = range(0, case.minutes, DAY_MINUTES)
    first = max(days, key=lambda day: (over[day : day + DAY_MINUTES].sum(), late[day : day + DAY_MINUTES].sum()))
    columns = {name: course[name][first : first + DAY_MINUTES] for name in ("serving", "desired", "ideal")}
    return WorstDay(
        seed=seed,
        start=(start + timedelta(minutes=first)).isoformat(),
        **{name: tuple(map(int, values)) for name, values in columns.items()},
    )


def _scope(done: CompletedSimulation) -> str:
    """Returns the traffic that judges, and the tolerance on it."""
    if done.unseen:
        unseen = done.unseen[done.name]
        return (
            f"each day of {unseen.trace} (after {done.case.traffic.name}), at most {unseen.allowed_minutes:g} minutes "
            f"over it on {DAYS_WITHIN:.0%} of the days"
        )
    return (
        f"{done.case.traffic.name} ({_length(done.case.minutes)}, {seeds_text(done.seeds)}), at most "
        f"{done.judged.allowed_minutes:g} minutes over it {_share(done)}"
    )


def _share(done: CompletedSimulation) -> str:
    """Returns the share of seeds, or their number if they are too few for a share."""
    return f"in {seeds_text(done.seeds)}" if done.too_few_seeds else f"in {done.case.tolerance.confidence:.0%} of seeds"


def _decision(done: CompletedSimulation) -> str:
    judged, allowed = done.judged, f"{done.judged.allowed_minutes:g} minutes over the objective"
    is_recommended = done.name == RECOMMENDED
    if done.unseen and (done.search is None or done.search.safe):
        days = done.unseen[done.name]
        return (
            f"{'Keep' if is_recommended and done.safe else 'Deploy' if done.safe else 'Do not deploy'} "
            f"{judged.policy.text}: {days.days_within} of {len(days.days)} unseen days have at most "
            f"{days.allowed_minutes:g} minutes over the objective ({DAYS_WITHIN:.0%} must), at "
            f"{days.cost_over_foresight:.2f} × the cost of perfect foresight."
        )
    if done.search:
        if not done.safe:
            nearest = "" if is_recommended else f" The nearest one is {judged.policy.text}."
            return f"Nothing to deploy: no policy was confirmed within {allowed} {_share(done)}.{nearest}"
        if is_recommended:
            return f"Keep the recommended policy, {judged.policy.text}. No confirmed policy is better."
        today = done.search.today
        saving = 1 - judged.instance_hours / today.instance_hours
        words = f"{saving:.1%} cheaper" if saving >= 0 else f"{-saving:.1%} more expensive"
        within = "is within the tolerance too" if today.is_within_tolerance else "exceeds the tolerance"
        return f"Deploy {judged.policy.text}. It is {words} than the recommended policy, which {within}."
    have = (
        f"{judged.exceeding()} of {seeds_text(done.seeds)} {'has' if done.seeds == 1 else 'have'} more than {allowed}"
    )
    verbs = ("Keep", "Change") if is_recommended else ("Deploy", "Do not deploy")
    return (
        f"{verbs[not done.safe]} the {'recommended' if is_recommended else 'requested'} policy, {judged.policy.text}: "
        f"{have}; {judged.tolerance.seeds_that_may_exceed(done.seeds)} may."
    )


def _highlights(done: CompletedSimulation) -> Iterator[Highlight]:
    judged, cost_usd = done.judged, done.usd(done.judged.instance_hours)
    yield Highlight(
        label=f"minutes over, mean (tolerance {judged.allowed_minutes:g})", value=f"{judged.minutes_over:,.1f}"
    )
    yield Highlight(label="late requests", value=f"{judged.late_share:.3%}")
    yield Highlight(label="most instances", value=f"{judged.most_instances:,}")
    if cost_usd is not None:
        yield Highlight(label="cost of the trace", value=f"${cost_usd:,.2f}")
    yield Highlight(label="instance hours", value=f"{judged.instance_hours:,.1f}")


def _cautions(done: CompletedSimulation) -> Iterator[str]:
    curve, judged, service = done.case.curve, done.judged, done.service
    if done.rise:
        yield done.rise
    if done.too_few_seeds and not done.unseen:
        yield done.too_few_seeds
    yield from service.cautions
    if minutes := judged.mean("minutes_extrapolated"):
        highest = max(each.highest_rate for each in judged.outcomes) * 60
        yield (
            f"Extrapolated: for {minutes:,.1f} minutes an instance gets up to {highest:,.0f} invocations/min. Nothing "
            f"above {curve.measured_up_to * 60:,.0f} was measured. The model answers at most "
            f"{curve.saturation * 60:,.0f}/min there."
        )
    if service.recommendation:
        origin = service.recommendation.provenance
        yield from local_caution(origin.measured_on, origin.machine)
    if service.price_per_hour_usd is None:
        yield f"The price of an instance is unknown: {service.candidate.cost_reason or 'the recommendation has none.'}"


def _columns(share: str) -> tuple[tuple[str, str, str], ...]:
    return (
        ("policy", "policy", ""),
        ("settings", "instances, target", ""),
        ("minutes_over", "minutes over, mean", ",.1f"),
        ("minutes_over_at_confidence", share, ",.0f"),
        ("late_share", "late", ".3%"),
        ("most_instances", "most", ",d"),
        ("instance_hours", "instance hours", ",.1f"),
        ("cost_usd", "$", ",.2f"),
    )


def _tables(done: CompletedSimulation) -> Iterator[Table]:
    columns = _columns("worst" if done.too_few_seeds else f"{done.case.tolerance.confidence:.0%} of seeds")

    def figures(name: str, each: PolicyResult) -> tuple[Value, ...]:
        hours = each.instance_hours
        share, most = each.late_share, each.most_instances
        over = (each.minutes_over, each.minutes_over_at_confidence)
        return (name, each.policy.bounds_text, *over, share, most, hours, done.usd(hours))

    hours = done.judged.mean("lower_bound_hours")
    ideal = (IDEAL, None, 0.0, 0.0, None, None, hours, done.usd(hours))
    if done.unseen:
        unseen: list[tuple[Value, ...]] = []
        for name, each in done.unseen.items():
            costs = (each.instance_hours, each.cost_over_foresight, done.usd(each.instance_hours))
            unseen.append((name, each.policy.bounds_text, each.days_within, len(each.days), *costs))
        yield table("unseen", "Unseen days", UNSEEN, unseen, UNSEEN_NOTE)
        days = [
            (each.day.isoformat(), each.peak_per_minute, each.minutes_over, each.instance_hours, each.foresight_hours)
            for each in done.unseen[done.name].days
        ]
        yield table("unseen_days", "Each unseen day", UNSEEN_DAYS, days, detail=True)
    rows = [figures(name, each) for name, each in done.results.items()]
    yield table("policies", "Policies", columns, [*rows, ideal], POLICIES_NOTE)
    tried = done.search.frontier(tuple(done.results.values())) if done.search else ()
    frontier = {f"{ON_FRONTIER} {number}": each for number, each in enumerate(tried, start=1)}
    details = [
        (name, each.policy.text, each.mean("dropped"), each.exceeding(), len(each.outcomes), each.is_within_tolerance)
        for name, each in {**done.results, **frontier}.items()
    ]
    yield table("details", "Policies in detail", DETAILS, details, detail=True)
    if frontier:
        note = (
            "No policy that was tried has both fewer hours and fewer minutes over. Figures are of the search's seeds; "
            "other seeds decide."
        )
        rows = [figures(name, each) for name, each in frontier.items()]
        yield table("frontier", "Cost against risk", columns, rows, note)


def _notes(done: CompletedSimulation, day: WorstDay) -> Iterator[str]:
    case, timing, known_by = done.case, done.case.timing, done.case.timing.known_by
    load = case.traffic.load(done.judged.outcomes[0].seed)
    yield (
        f"Traffic: mean {load.mean_per_minute:,.0f} and peak {load.peak_per_minute:,.0f} invocations/min. The "
        f"objective's peak: {done.workload.latency_objective.peak_invocations_per_minute:,}."
    )
    yield f"Model of an instance: {case.curve.basis}."
    yield (
        f"A new instance serves after {timing.provisioning_s + timing.model_load_s:,.0f} s "
        f"({timing.provisioning_s:.3g} s provisioning, {known_by.get('provisioning_s', 'assumed')}; "
        f"{timing.model_load_s:.3g} s model load, {known_by.get('model_load_s', 'assumed')}). An alarm sees a minute "
        f"{timing.metric_delay_s} s late. [simulation] in workload.toml changes this."
    )
    start = datetime.fromisoformat(day.start).astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    yield f"The plot shows the worst day: {_length(len(day.serving))} of seed {day.seed} from {start} UTC."
    if (search := done.search) and search.held_out:
        yield (
            f"Chosen from {len(search.tried)} policies. Confirmed on {len(search.held_out):,} held-out seeds: "
            f"{search.failed} had more than half of the tolerated minutes."
        )


def _length(minutes: int) -> str:
    days, rest = divmod(minutes, DAY_MINUTES)
    return f"{minutes:,} minutes" if rest else f"{days} day{'s' * (days != 1)}"


def arrivals_report(name: str, workload: str, found: Fit) -> Report:
    """Returns the report; `patch` has the lines for workload.toml."""
    process = found.process
    keys = {"process": f'"{process.process}"'}
    keys |= {key: f"{getattr(process, key):.3g}" for key in PROCESS_KEYS[process.process]}
    poor = found.distance > CLOSE_FIT
    windows = list(zip(found.windows_s, found.dispersion, found.fitted, strict=True))
    return Report(
        kind="arrivals",
        name=name,
        workload=workload,
        objective=f"arrivals of {name}",
        verdict="missed" if poor else "met",
        decision=f"{process.text}: the dispersions differ by {found.distance:.0%} on average."
        + (' That is a poor fit. Replay the file instead: process = "replay".' if poor else ""),
        highlights=(
            Highlight(label="requests/s", value=f"{found.rate_per_s:,.4g}"),
            Highlight(label="CV of the gaps", value=f"{found.cv:.3g}"),
        ),
        tables=(table("dispersion", "Dispersion by window", WINDOWS, windows, WINDOWS_NOTE),),
        patch="\n".join(["[objective.arrivals]", *(f"{key} = {value}" for key, value in keys.items())]) + "\n",
    )
