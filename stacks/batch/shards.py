"""Chooses a batch's instance type and shards: the recommendation's, else those of workload.toml. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from stacks.fitness import InstanceChoice
from stacks.workload_stack import NotMeasured, SynthWarning, WorkloadStackProps, refuse
from workloads import BatchRecommendation, ProjectError, ScheduledBatchHosting


@dataclass(frozen=True, kw_only=True, slots=True)
class Shards:
    count: int
    choice: InstanceChoice
    """The instance type of every shard, and the file and key that name it."""
    warnings: tuple[SynthWarning, ...] = ()


def plan_shards(props: WorkloadStackProps, hosting: ScheduledBatchHosting) -> Shards:
    """Raises `NotMeasured` or `UsageError` if the recommendation cannot be deployed."""
    workload, file = props.folder.workload, props.folder.file
    key = f"targets.{workload.variant(hosting.target).target}.instance_types"
    own = InstanceChoice(instance_type=workload.instance_types[0], file=file, key=key)
    recommendation = props.folder.batch_recommendation()
    if recommendation is None or props.options.recommendation == "ignore":
        return Shards(count=hosting.shards, choice=own)
    file = props.folder.recommendation_file
    if props.options.hosting_target is not None and recommendation.target != hosting.target:
        text = (
            f"{file} is of {recommendation.target}, and {hosting.target} is deployed in its place, on {hosting.shards} "
            f"{own.instance_type}."
        )
        return Shards(count=hosting.shards, choice=own, warnings=(SynthWarning("recommendation:rehearsal", text),))
    warnings = refuse(_findings(props, recommendation))
    chosen = recommendation.recommended
    return Shards(
        count=chosen.shards,
        choice=InstanceChoice(instance_type=chosen.instance_type, file=file, key="recommended.instance_type"),
        warnings=warnings,
    )


def _findings(props: WorkloadStackProps, recommendation: BatchRecommendation) -> Iterator[ProjectError | SynthWarning]:
    file, chosen, built = props.folder.recommendation_file, recommendation.recommended, props.artifact
    if recommendation.archive_sha256 != built.archive_sha256:
        yield NotMeasured(
            f"{file}: archive_sha256: was measured on the artifact {recommendation.archive_sha256[:12]}…, but the one "
            f"to deploy is {built.archive_sha256[:12]}… ({built.variant}). Deploy it with -c recommendation=ignore "
            f"and measure a run of it: `{_command(props)}`."
        )
    if chosen.known_by == "local":
        refused = (
            f"{file}: recommended.known_by: is 'local' ({chosen.source}), and production wants the reports of a "
            f"stack's run: `{_command(props)}`."
        )
        warning = SynthWarning("recommendation:local", f"{file}: was measured locally: {chosen.source}.")
        yield NotMeasured(refused) if props.options.in_production else warning
    if recommendation.objective != props.folder.workload.objective:
        text = (
            f"{file}: objective: was sized for {recommendation.objective.rows_per_second:,g} rows a second, which is "
            f"not what {props.folder.file} says. Size it again with `{_command(props)}`."
        )
        yield SynthWarning("recommendation:objective", text)


def _command(props: WorkloadStackProps) -> str:
    return f"python -m inference_recommender size --workload {props.folder.workload.name} --from SUMMARIES --recommend"
