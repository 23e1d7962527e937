"""Plans a fleet or a batch: instance type, count and scaling from the recommendation, errors and warnings. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from stacks.fitness import InstanceChoice, not_offered, outside_zones, unfit, zone_warnings
from stacks.workload_stack import NotMeasured, SynthWarning, WorkloadStackProps, refuse
from workloads import (
    BatchRecommendation,
    Candidate,
    EcsServiceHosting,
    LatencyObjective,
    ProjectError,
    Recommendation,
    ScheduledBatchHosting,
    UsageError,
    WorkloadFolder,
)

NOT_RECOMMENDED = "recommendation: its recommended is null. Measure other instance types, or change the objective."


def sized(
    recommendation: Recommendation | None, instance_type: str | None, min_instances: int, *, autoscaled: bool = True
) -> Candidate:
    """Returns the recommended fleet, of at least `min_instances`, or one `instance_type` without a recommendation."""
    if recommendation is None or (chosen := recommendation.recommended) is None:
        reason = "To be measured."
        return Candidate(instance_type=str(instance_type), instance_count=1, meets_objective=False, reason=reason)
    autoscaling = chosen.autoscaling if autoscaled else None
    if autoscaling is not None:
        bounds = {key: max(getattr(autoscaling, key), min_instances) for key in ("min_capacity", "max_capacity")}
        autoscaling = autoscaling.model_copy(update=bounds)
    count = max(chosen.instance_count or 1, min_instances)
    return chosen.model_copy(update={"instance_count": count, "autoscaling": autoscaling})


def problems_of_size(
    recommendation: Recommendation | None, instance_type: str | None, archive_sha256: str, *, autoscaled: bool
) -> Iterator[str]:
    """Yields why a construct cannot derive the size of its fleet from its arguments."""
    if recommendation is None:
        if instance_type is None:
            yield "recommendation: got None. Pass a recommendation, or the instance_type of one instance to measure."
        return
    if recommendation.archive_sha256 != archive_sha256:
        yield (
            f"recommendation: was measured on the archive {recommendation.archive_sha256[:12]}…, but archive is "
            f"{archive_sha256[:12]}…. Measure this archive, or pass an instance_type and no recommendation."
        )
    if (chosen := recommendation.recommended) is None:
        yield NOT_RECOMMENDED
        return
    if instance_type not in (None, chosen.instance_type):
        yield (
            f"instance_type: got '{instance_type}', but the recommendation is for {chosen.instance_type}. Leave "
            "instance_type out."
        )
    numbers = {"instance_count": chosen.instance_count, **({"autoscaling": chosen.autoscaling} if autoscaled else {})}
    if missing := [f"recommended.{key}" for key, value in numbers.items() if value is None]:
        yield f"recommendation: {' and '.join(missing)}: null. Measure again."


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    """`recommendation`, `instance_type`, `min_instances` and `autoscaled` are arguments of the constructs."""

    recommendation: Recommendation | None
    instance_type: str
    min_instances: int
    autoscaled: bool
    warnings: tuple[SynthWarning, ...]


def plan_deployment(props: WorkloadStackProps, region: str | None, least_in_production: int = 2) -> Deployment:
    """Plans a fleet for `region`, or for any if None. Raises `NotMeasured` or `UsageError`."""
    recommendation, unused = _used_recommendation(props)
    warnings = refuse(_findings(props, recommendation))
    chosen = recommendation.recommended if recommendation is not None else None
    choice = _instance_type(props, chosen)
    refuse(problems_of_hardware(props, choice, region))
    return Deployment(
        recommendation=recommendation,
        instance_type=choice.instance_type,
        min_instances=least_in_production if props.options.in_production else 1,
        autoscaled=props.options.autoscaling == "on",
        warnings=(*unused, *warnings, *_fleet_warnings(props, choice, region)),
    )


def problems_of_hardware(props: WorkloadStackProps, choice: InstanceChoice, region: str | None) -> Iterator[UsageError]:
    """Yields why the instance type cannot run the artifact, or why the region lacks it."""
    hosting = props.folder.workload.hosting
    yield from unfit(choice, props.built.artifact, props.folder.workload.hosted)
    if isinstance(hosting, EcsServiceHosting | ScheduledBatchHosting):
        named, key = hosting.availability_zones, "hosting.availability_zones"
        if hosting.vpc and not named:
            named, key = hosting.vpc.availability_zones, "hosting.vpc.availability_zones"
        yield from outside_zones(props.folder.file, key, choice.instance_type, named)
    if region is not None:
        yield from not_offered(choice, region)


def _used_recommendation(props: WorkloadStackProps) -> tuple[Recommendation | None, list[SynthWarning]]:
    """Returns the recommendation, or None with a warning if the options or a missing file leave it out."""
    file, recommendation, options = props.folder.recommendation_file, props.recommendation, props.options
    measure = measure_command(props.folder)
    single = f"one {props.folder.workload.instance_types[0]} is deployed, without autoscaling"
    if recommendation is None:
        text = f"{file} does not exist: {single}. Measure with `{measure}`, review the file and deploy again."
        return None, [SynthWarning("recommendation:missing", text)]
    if options.recommendation == "ignore":
        text = f"{file} is ignored, as -c recommendation=ignore says: {single}. Measure with `{measure}`."
        return None, [SynthWarning("recommendation:ignored", text)]
    if options.hosting_target is not None and recommendation.target != props.folder.workload.hosting.target:
        text = f"{file} is of {recommendation.target}, and {options.hosting_target} is deployed in its place: {single}."
        return None, [SynthWarning("recommendation:rehearsal", text)]
    return recommendation, []


def _findings(
    props: WorkloadStackProps, recommendation: Recommendation | None
) -> Iterator[ProjectError | SynthWarning]:
    """Yields why the recommendation cannot be deployed, and warnings. `recommendation` is None if it is not used."""
    file, workload, measure = props.folder.recommendation_file, props.folder.workload, measure_command(props.folder)
    if recommendation is None:
        if props.options.in_production:
            yield NotMeasured(
                f"{file}: does not exist, and production is sized by nothing else. Deploy without -c stage=production, "
                f"measure on SageMaker with `{measure}` and review the file."
            )
        return
    advice = (
        f"Deploy it on one instance with `cdk deploy {workload.stack_name} -c recommendation=ignore`, measure it with "
        f"`{measure}`, review the file and deploy again."
    )
    yield from _of_another_archive(props, recommendation.archive_sha256, advice)
    if recommendation.provenance.measured_on == "local":
        text = (
            f"{file}: provenance.measured_on: is 'local' ({recommendation.provenance.machine}), and production "
            f"requires 'sagemaker'. Run `{measure}` against an AWS account."
        )
        yield NotMeasured(text) if props.options.in_production else SynthWarning("recommendation:local", text)
    yield from _problems_of_candidate(props, recommendation.recommended)
    measured, present = recommendation.objective, workload.latency_objective
    if _sizing_objective(measured) != _sizing_objective(present):
        text = (
            f"{file}: objective: was sized for {_sizing_objective(measured)}, and {props.folder.file} now says "
            f"{_sizing_objective(present)}. Measure again with `{measure}`."
        )
        yield SynthWarning("recommendation:objective", text)


def _of_another_archive(props: WorkloadStackProps, sha256: str, advice: str) -> Iterator[NotMeasured]:
    built = props.built.artifact
    if sha256 != built.archive_sha256:
        yield NotMeasured(
            f"{props.folder.recommendation_file}: archive_sha256: was measured on the artifact {sha256[:12]}…, but the "
            f"one to deploy is {built.archive_sha256[:12]}… ({built.variant}). {advice}"
        )


def _problems_of_candidate(props: WorkloadStackProps, chosen: Candidate | None) -> Iterator[UsageError]:
    file, workload = props.folder.recommendation_file, props.folder.workload
    if chosen is None:
        yield UsageError(
            f"{file}: recommended is null: no candidate met the objective, so there is nothing to deploy. "
            "Change its target, the target's instance_types or the objective and run the recommender again, "
            "or delete the file to deploy one instance without autoscaling."
        )
        return
    if chosen.variant not in (None, workload.hosting.target):
        hosted = workload.hosting.target
        yield UsageError(
            f"{file}: recommended.variant: is '{chosen.variant}', but {props.folder.file} hosts '{hosted}'. "
            f"Set hosting.target = \"{chosen.variant}\", or measure '{hosted}'."
        )
    numbers = {"instance_count": chosen.instance_count, "autoscaling": chosen.autoscaling}
    if missing := [f"recommended.{key}" for key, value in numbers.items() if value is None]:
        yield UsageError(
            f"{file}: {' and '.join(missing)}: null, but the fleet is sized by nothing else. "
            f"Run `{measure_command(props.folder)}` again."
        )


def _instance_type(props: WorkloadStackProps, chosen: Candidate | None) -> InstanceChoice:
    folder = props.folder
    if chosen is not None:
        key, file, instance_type = "recommended.instance_type", folder.recommendation_file, chosen.instance_type
    else:
        target = folder.workload.variant(folder.workload.hosting.target).target
        key, file, instance_type = f"targets.{target}.instance_types", folder.file, folder.workload.instance_types[0]
    return InstanceChoice(instance_type=instance_type, file=file, key=key)


def _sizing_objective(objective: LatencyObjective) -> str:
    """Returns the part of the objective that decides a fleet's size."""
    return f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms at {objective.peak}"


def _fleet_warnings(props: WorkloadStackProps, choice: InstanceChoice, region: str | None) -> Iterator[SynthWarning]:
    if props.options.autoscaling == "off":
        text = (
            "-c autoscaling=off: the fleet keeps its present size, whatever the load. "
            f"Deploy without it as soon as the endpoint is on {choice.instance_type}."
        )
        yield SynthWarning("autoscaling:off", text)
    if props.options.in_production and region is not None:
        yield from zone_warnings(choice, region)


def measure_command(folder: WorkloadFolder) -> str:
    """Returns the command that writes a recommendation."""
    workload = folder.workload
    run = f"python -m inference_recommender run {workload.name}"
    if isinstance(workload.hosting, EcsServiceHosting):
        return f"{run} --url URL --instances TYPE"  # Inference Recommender measures models on SageMaker only
    if workload.failing_hosts():
        return run  # on this stack's endpoint: the image does not start on a job's hosts
    return f"{run} --job advanced"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shards:
    count: int
    choice: InstanceChoice
    """The instance type of every shard, and the file and key that name it."""
    warnings: tuple[SynthWarning, ...] = ()


def plan_shards(props: WorkloadStackProps, hosting: ScheduledBatchHosting) -> Shards:
    """Raises `NotMeasured` or `UsageError` if the recommendation cannot be deployed."""
    own, recommendation = _instance_type(props, None), props.folder.batch_recommendation()
    if recommendation is None or props.options.recommendation == "ignore":
        return Shards(count=hosting.shards, choice=own)
    file = props.folder.recommendation_file
    if props.options.hosting_target is not None and recommendation.target != hosting.target:
        text = (
            f"{file} is of {recommendation.target}, and {hosting.target} is deployed in its place, on {hosting.shards} "
            f"{own.instance_type}."
        )
        return Shards(count=hosting.shards, choice=own, warnings=(SynthWarning("recommendation:rehearsal", text),))
    warnings, chosen = refuse(_findings_of_batch(props, recommendation)), recommendation.recommended
    choice = InstanceChoice(instance_type=chosen.instance_type, file=file, key="recommended.instance_type")
    return Shards(count=chosen.shards, choice=choice, warnings=warnings)


def _findings_of_batch(
    props: WorkloadStackProps, recommendation: BatchRecommendation
) -> Iterator[ProjectError | SynthWarning]:
    file, chosen, workload = props.folder.recommendation_file, recommendation.recommended, props.folder.workload
    measure = f"`python -m inference_recommender size --workload {workload.name} --from SUMMARIES --recommend`"
    advice = f"Deploy it with -c recommendation=ignore and measure a run of it: {measure}."
    yield from _of_another_archive(props, recommendation.archive_sha256, advice)
    if chosen.known_by == "local":
        text = (
            f"{file}: recommended.known_by: is 'local' ({chosen.source}), and production requires the reports of a "
            f"stack's run: {measure}."
        )
        yield NotMeasured(text) if props.options.in_production else SynthWarning("recommendation:local", text)
    if recommendation.objective != workload.objective:
        text = (
            f"{file}: objective: was sized for {recommendation.objective.rows_per_second:,g} rows a second, which is "
            f"not what {props.folder.file} says. Size it again with {measure}."
        )
        yield SynthWarning("recommendation:objective", text)
