"""The service that is simulated: a configuration, its latency curve, its price and its policy.

They come from the workload's recommendation and the probes of its run, or from a measurement as `size --from` reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inference_recommender.measurement import Measurement
from inference_recommender.run_folder import run_of
from inference_recommender.simulate.curve import LatencyCurve, curve_of_candidate, curve_of_search
from inference_recommender.simulate.policy import Policy, Timing
from inference_recommender.sizing.decision import cheapest
from inference_recommender.sizing.evidence import read_evidence
from inference_recommender.sizing.fleet import Demand
from workloads import (
    ROOT,
    Autoscaling,
    Candidate,
    LatencyObjective,
    Recommendation,
    SageMakerEndpointHosting,
    ScheduledMinimum,
    UsageError,
    Workload,
    WorkloadFolder,
)
from workloads.files import from_here

LEAST_IN_PRODUCTION = 2
"""The minimum of an ECS service in production."""
ECS_PROVISIONING_S = 180.0
"""An EC2 instance, and the pull of an image of some GB. An assumption."""
CONCURRENCY = (
    "The policy of hosting.scaling.concurrent_requests_per_instance is not simulated. The endpoint can add instances "
    "earlier than here."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SizedService:
    """A configuration to simulate."""

    candidate: Candidate
    autoscaling: Autoscaling
    curve: LatencyCurve
    policy: Policy
    """That autoscaling as the stack deploys it in production."""
    timing: Timing
    recommendation: Recommendation | None
    """None if --from names a measurement."""
    run: Path
    """The run or the file with the measurements."""
    cautions: tuple[str, ...] = ()

    @property
    def price_per_hour_usd(self) -> float | None:
        per_hour, count = self.candidate.cost_per_hour_usd, self.candidate.instance_count
        return per_hour / count if per_hour is not None and count else None


def sized_service(folder: WorkloadFolder, file: Path) -> SizedService:
    """Reads a recommendation, or a measurement, which is sized first. Raises `UsageError` if there is no fleet."""
    workload, recommendation, run, missing = folder.workload, None, file, None
    objective = workload.latency_objective
    if file.name == folder.recommendation_file.name:
        recommendation = _recommendation(folder, file)
        chosen, candidates, why = recommendation.recommended, recommendation.candidates, "recommends no fleet"
        found = run_of(recommendation, file.parent, ROOT / recommendation.provenance.run)
        run = from_here(found.path) if found else Path(recommendation.provenance.run)
        measured = found.measurements() if found else ()
        missing = None if found else run
    else:
        evidence = read_evidence(file)
        measured, why = evidence.measured, "has no capacity to size a fleet by"
        candidates = evidence.candidates(Demand.of(objective), workload.sizing, workload.simulation.region)
        chosen = cheapest(candidates) or next((each for each in candidates if each.autoscaling), None)
        for each in () if chosen else measured:
            if each.open_loop is not None and each.open_loop.decides:
                curve_of_search(each.open_loop, objective)  # raises the reason if its lowest rate missed
    if chosen is None or chosen.autoscaling is None:
        reasons = [f"{each.instance_type}: {each.reason}" for each in candidates] or ["There are no results."]
        raise UsageError("\n".join([f"{file} {why}, so there is nothing to simulate. Measure again.", *reasons]))
    curve, unfinished = _curve(chosen, measured, objective)
    if missing:
        unfinished = (
            f"The recommendation's run, {missing}, was not found, so the instance is modelled as {curve.basis}. If the "
            "run is in another folder, name its recommendation.json with --from."
        )
    hosting = workload.hosting
    several = isinstance(hosting, SageMakerEndpointHosting) and hosting.scaling.concurrent_requests_per_instance
    return SizedService(
        candidate=chosen,
        autoscaling=chosen.autoscaling,
        curve=curve,
        policy=recommended_policy(workload, chosen.autoscaling),
        timing=_timing(workload, recommendation),
        recommendation=recommendation,
        run=run,
        cautions=tuple(filter(None, (unfinished, CONCURRENCY if several else None))),
    )


def _recommendation(folder: WorkloadFolder, file: Path) -> Recommendation:
    workload, objective = folder.workload, folder.workload.latency_objective
    if not file.exists():
        raise UsageError(
            f"{file} does not exist, so there is no policy to simulate. Measure one with `python -m "
            f"inference_recommender run {workload.name}`, or name a measurement with --from PATH."
        )
    recommendation = Recommendation.from_json(file)
    if recommendation.workload != workload.name:
        raise UsageError(f"{file}: workload: is '{recommendation.workload}', and '{workload.name}' is simulated.")
    measured = recommendation.objective
    if recommendation.recommended and (measured.percentile, measured.model_latency_ms) != (
        objective.percentile,
        objective.model_latency_ms,
    ):
        raise UsageError(
            f"{file}: objective: was measured for {measured.percentile} ≤ {measured.model_latency_ms:g} ms, and "
            f"{folder.file} now says {objective.percentile} ≤ {objective.model_latency_ms:g} ms. Measure again."
        )
    return recommendation


def _timing(workload: Workload, recommendation: Recommendation | None) -> Timing:
    """Returns the times of the workload's hosting: of [simulation], else measured by the cold start, else assumed."""
    on_sagemaker = isinstance(workload.hosting, SageMakerEndpointHosting)
    assumed = Timing() if on_sagemaker else Timing(hosts="ecs", provisioning_s=ECS_PROVISIONING_S)
    known, sources = dict[str, float](), dict[str, str]()
    if recommendation and (cold_start := recommendation.cold_start):
        times = {"provisioning_s": cold_start.provisioning_s, "model_load_s": cold_start.total_s}
        known = {name: seconds for name, seconds in times.items() if seconds is not None}
        starts = f"{cold_start.starts} start{'s' * (cold_start.starts != 1)}"
        words = f"measured in {starts} on {cold_start.machine}, {cold_start.measured_at[:10]}"
        sources = dict.fromkeys(known, words)
    for name in ("provisioning_s", "model_load_s", "metric_delay_s"):
        if (seconds := getattr(workload.simulation, name)) is not None:
            known[name], sources[name] = seconds, f"[simulation] {name}"
    return replace(assumed, **known, known_by=sources)  # type: ignore[arg-type]  # mypy cannot see the names


def measured_target(file: Path) -> str | None:
    """Returns the target of a recommendation or a measurement; None if the file has none."""
    if not file.exists():
        return None
    if file.name == "recommendation.json":
        return Recommendation.from_json(file).target
    measured = read_evidence(file).workload
    return measured.hosting.target if measured else None


def recommended_policy(workload: Workload, scaling: Autoscaling) -> Policy:
    """Returns the policy that the workload's stack deploys in production for a recommendation's autoscaling.

    An ECS service on CPUs tracks the CPU, which is assumed to grow with the invocations.
    """
    hosting, least = workload.hosting, least_instances(workload)
    policy = Policy(
        target_invocations_per_instance=scaling.target_invocations_per_instance,
        min_capacity=max(scaling.min_capacity, least),
        max_capacity=max(scaling.max_capacity, least),
        scheduled_minimums=(*given_minimums(workload), *scaling.scheduled_minimums),
    )
    rules = hosting.scaling if isinstance(hosting, SageMakerEndpointHosting) else policy  # a policy has those of ECS
    out_s, in_s = scaling.scale_out_cooldown_s, scaling.scale_in_cooldown_s
    return replace(
        policy,
        scale_out_cooldown_s=rules.scale_out_cooldown_s if out_s is None else out_s,
        scale_in_cooldown_s=rules.scale_in_cooldown_s if in_s is None else in_s,
        scale_in=rules.scale_in,
    )


def least_instances(workload: Workload) -> int:
    """Returns the minimum of instances in production, whatever the policy."""
    hosting = workload.hosting
    return hosting.min_instances_in_production if isinstance(hosting, SageMakerEndpointHosting) else LEAST_IN_PRODUCTION


def given_minimums(workload: Workload) -> tuple[ScheduledMinimum, ...]:
    """Returns the scheduled minimums of workload.toml."""
    hosting = workload.hosting
    return hosting.scaling.scheduled_minimums if isinstance(hosting, SageMakerEndpointHosting) else ()


def _curve(
    chosen: Candidate, measured: Sequence[Measurement], objective: LatencyObjective
) -> tuple[LatencyCurve, str | None]:
    """Returns the curve through the configuration's probes, else an M/M/1 queue's and, after a search, the reason."""
    modelled = curve_of_candidate(chosen, objective)
    for each in measured:
        same = (each.instance_type, each.variant, each.environment)
        found = each.open_loop
        if same != (chosen.instance_type, chosen.variant, chosen.environment) or found is None:
            continue
        if found.decides:
            return curve_of_search(found, objective), None
        why = f"The open-loop search did not finish ({found.reason})"
        return modelled, f"{why}, so the instance is modelled as {modelled.basis}."
    return modelled, None
