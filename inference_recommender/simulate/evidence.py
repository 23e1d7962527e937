"""The service that is simulated: a configuration, its latency curve, its price and today's policy.

They come from the workload's recommendation, and from the probes of its run where that is on this machine; or from what
`size --from` reads: `capacity.json`, a run's folder, a job's description.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inference_recommender.measurement import Measurement
from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate.curve import LatencyCurve, curve_of_candidate, curve_of_search
from inference_recommender.simulate.policy import Policy, Timing
from inference_recommender.sizing.decision import cheapest
from inference_recommender.sizing.evidence import read_evidence
from inference_recommender.sizing.fleet import Demand
from inference_recommender.sizing.sized import sized
from workloads import (
    Autoscaling,
    Candidate,
    ColdStart,
    EcsServiceHosting,
    LatencyObjective,
    Recommendation,
    SageMakerEndpointHosting,
    ScheduledMinimum,
    UsageError,
    Workload,
    WorkloadFolder,
)

ECS_COOLDOWNS_S = (300, 600)
"""Out and in, those of `stacks/ecs/scaling.py`."""
LEAST_IN_PRODUCTION = 2
"""The minimum that a service of ECS has in production, whatever the recommendation's."""
ECS_PROVISIONING_S = 180.0
"""An EC2 instance, and the pull of an image of some GB. An assumption."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A configuration to simulate."""

    candidate: Candidate
    curve: LatencyCurve
    policy: Policy
    """Today's: what the stack deploys in production."""
    recommendation: Recommendation | None
    """None where a measurement was named in its place."""

    @property
    def cold_start(self) -> ColdStart | None:
        return self.recommendation.cold_start if self.recommendation else None

    @property
    def price_per_hour_usd(self) -> float | None:
        per_hour, count = self.candidate.cost_per_hour_usd, self.candidate.instance_count
        return per_hour / count if per_hour is not None and count else None


def timing_of(workload: Workload, cold_start: ColdStart | None = None) -> Timing:
    """Returns the assumptions for the workload's hosting, with a measured cold start in their place as far as it goes:
    one of this machine knows nothing of an instance's provisioning.
    """
    on_ecs = isinstance(workload.hosting, EcsServiceHosting)
    assumed = Timing(hosts="ecs", provisioning_s=ECS_PROVISIONING_S) if on_ecs else Timing()
    if cold_start is None:
        return assumed
    times = {"provisioning_s": cold_start.provisioning_s, "model_load_s": cold_start.total_s}
    known = {name: seconds for name, seconds in times.items() if seconds is not None}
    starts = f"{cold_start.starts} start{'s' * (cold_start.starts != 1)}"
    words = f"measured in {starts} on {cold_start.machine}, {cold_start.measured_at[:10]}"
    return replace(
        assumed,
        provisioning_s=known.get("provisioning_s", assumed.provisioning_s),
        model_load_s=known.get("model_load_s", assumed.model_load_s),
        known_by=dict.fromkeys(known, words),
    )


def measured_target(file: Path) -> str | None:
    """Returns the target that a recommendation or a measurement is of, or None if the file does not say."""
    if not file.exists():
        return None
    if file.name == "recommendation.json":
        return Recommendation.from_json(file).target
    measured = read_evidence(file).workload
    return measured.hosting.target if measured else None


def recommended_service(folder: WorkloadFolder, file: Path, runs: Path) -> Service:
    """Reads a recommendation. Raises `UsageError` where it has nothing to simulate."""
    workload = folder.workload
    objective = workload.latency_objective
    if not file.exists():
        raise UsageError(
            f"{file} does not exist: there is no policy to simulate. Measure one with `python -m "
            f"inference_recommender run {workload.name}`, or name a measurement with --from PATH."
        )
    recommendation = Recommendation.from_json(file)
    if recommendation.workload != workload.name:
        raise UsageError(f"{file}: workload: is '{recommendation.workload}', and '{workload.name}' is simulated.")
    chosen = recommendation.recommended
    if chosen is None or chosen.autoscaling is None:
        raise UsageError(
            f"{file}: recommended: no candidate keeps {objective.percentile} ≤ {objective.model_latency_ms:g} ms, so "
            "there is no fleet to simulate. Measure another configuration, or raise the objective."
        )
    measured = recommendation.objective
    if (measured.percentile, measured.model_latency_ms) != (objective.percentile, objective.model_latency_ms):
        raise UsageError(
            f"{file}: objective: was measured for {measured.percentile} ≤ {measured.model_latency_ms:g} ms, and "
            f"{folder.file} now says {objective.percentile} ≤ {objective.model_latency_ms:g} ms: measure again."
        )
    probed = _measurements(runs / Path(recommendation.provenance.run).name, recommendation)
    return Service(
        candidate=chosen,
        curve=_curve(chosen, probed, objective),
        policy=todays_policy(workload, chosen.autoscaling),
        recommendation=recommendation,
    )


def measured_service(workload: Workload, path: Path, region: str | None) -> Service:
    """Reads a measurement and sizes a fleet from it. Raises `UsageError`."""
    evidence = read_evidence(path)
    objective = workload.latency_objective
    candidates = sized(evidence, Demand.of(objective), workload.sizing, region)
    chosen = cheapest(candidates) or next((each for each in candidates if each.autoscaling is not None), None)
    if chosen is None or chosen.autoscaling is None:
        for measured in evidence.measured:
            if measured.open_loop is not None and measured.open_loop.decides:
                curve_of_search(measured.open_loop, objective)  # says what the search has found
        raise UsageError(f"{path}: has no rate that an instance bears: measure again.")
    return Service(
        candidate=chosen,
        curve=_curve(chosen, evidence.measured, objective),
        policy=todays_policy(workload, chosen.autoscaling),
        recommendation=None,
    )


def todays_policy(workload: Workload, scaling: Autoscaling) -> Policy:
    """Returns what the workload's stack deploys in production of a recommendation's autoscaling.

    A service of ECS on CPUs tracks the CPU, which is taken to grow with the invocations.
    """
    hosting, least = workload.hosting, least_instances(workload)
    out_s, in_s = scaling.scale_out_cooldown_s, scaling.scale_in_cooldown_s
    if not isinstance(hosting, SageMakerEndpointHosting):
        default_out_s, default_in_s = ECS_COOLDOWNS_S
        return Policy(
            target_invocations_per_instance=scaling.target_invocations_per_instance,
            min_capacity=max(scaling.min_capacity, least),
            max_capacity=max(scaling.max_capacity, least),
            scale_out_cooldown_s=default_out_s if out_s is None else out_s,
            scale_in_cooldown_s=default_in_s if in_s is None else in_s,
            scheduled_minimums=scaling.scheduled_minimums,
        )
    rules = hosting.scaling
    return Policy(
        target_invocations_per_instance=scaling.target_invocations_per_instance,
        min_capacity=max(scaling.min_capacity, least),
        max_capacity=max(scaling.max_capacity, least),
        scale_out_cooldown_s=rules.scale_out_cooldown_s if out_s is None else out_s,
        scale_in_cooldown_s=rules.scale_in_cooldown_s if in_s is None else in_s,
        scale_in=rules.scale_in,
        concurrent_requests_per_instance=rules.concurrent_requests_per_instance,
        scheduled_minimums=(*rules.scheduled_minimums, *scaling.scheduled_minimums),
    )


def least_instances(workload: Workload) -> int:
    """Returns the instances that a fleet has in production at least, whatever its policy."""
    hosting = workload.hosting
    return hosting.min_instances_in_production if isinstance(hosting, SageMakerEndpointHosting) else LEAST_IN_PRODUCTION


def given_minimums(workload: Workload) -> tuple[ScheduledMinimum, ...]:
    """Returns the scheduled minimums that people wrote into workload.toml."""
    hosting = workload.hosting
    return hosting.scaling.scheduled_minimums if isinstance(hosting, SageMakerEndpointHosting) else ()


def _measurements(folder: Path, recommendation: Recommendation) -> Sequence[Measurement]:
    """Returns the measurements of the recommendation's run, or none where that is not on this machine."""
    if not (folder / "measurements.json").exists() or not (folder / "recommendation.json").exists():
        return ()
    run = RunFolder(folder)
    return run.measurements() if run.recommendation().provenance == recommendation.provenance else ()


def _curve(chosen: Candidate, measured: Sequence[Measurement], objective: LatencyObjective) -> LatencyCurve:
    """Returns the curve through the configuration's probes, or else the one that its rate makes."""
    for each in measured:
        same = (each.instance_type, each.variant, each.environment)
        if same == (chosen.instance_type, chosen.variant, chosen.environment) and each.open_loop is not None:
            return curve_of_search(each.open_loop, objective)
    return curve_of_candidate(chosen, objective)
