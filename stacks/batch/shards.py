"""Chooses a batch's instance type and shards: the recommendation's, else those of workload.toml. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from stacks.fitness import Wanted
from stacks.workload_stack import NotMeasured, SynthWarning, WorkloadStackProps, refuse
from workloads import BatchRecommendation, ProjectError, ScheduledBatchHosting


@dataclass(frozen=True, kw_only=True, slots=True)
class Shards:
    count: int
    wanted: Wanted
    """The instance type of each, and the file and key that name it."""
    warnings: tuple[SynthWarning, ...] = ()


def plan_shards(props: WorkloadStackProps, hosting: ScheduledBatchHosting) -> Shards:
    """Raises the one `ProjectError` or `SeveralProblems` where the recommendation cannot be deployed."""
    workload, file = props.folder.workload, props.folder.file
    key = f"targets.{workload.variant(hosting.target).target}.instance_types"
    own = Wanted(instance_type=workload.instance_types[0], file=file, key=key)
    found = props.folder.batch_recommendation()
    if found is None or props.options.recommendation == "ignore":
        return Shards(count=hosting.shards, wanted=own)
    file = props.folder.recommendation_file
    if props.options.hosting_target is not None and found.target != hosting.target:
        text = (
            f"{file} is of {found.target}, and {hosting.target} is deployed in its place, on {hosting.shards} "
            f"{own.instance_type}."
        )
        return Shards(
            count=hosting.shards, wanted=own, warnings=(SynthWarning(id="recommendation:rehearsal", text=text),)
        )
    refuse(_problems(props, found))
    chosen = found.recommended
    return Shards(
        count=chosen.shards,
        wanted=Wanted(instance_type=chosen.instance_type, file=file, key="recommended.instance_type"),
        warnings=tuple(_warnings(props, found)),
    )


def _problems(props: WorkloadStackProps, found: BatchRecommendation) -> Iterator[ProjectError]:
    file, chosen, built = props.folder.recommendation_file, found.recommended, props.artifact
    if found.archive_sha256 != built.archive_sha256:
        yield NotMeasured(
            f"{file}: archive_sha256: was measured on the artifact {found.archive_sha256[:12]}…, but the one to deploy "
            f"is {built.archive_sha256[:12]}… ({built.variant}). Deploy it with -c recommendation=ignore, and measure "
            f"a run of it: `{_command(props)}`."
        )
    if props.options.in_production and chosen.known_by == "local":
        yield NotMeasured(
            f"{file}: recommended.known_by: is 'local' ({chosen.source}), and production wants the reports of a "
            f"stack's run: `{_command(props)}`."
        )


def _warnings(props: WorkloadStackProps, found: BatchRecommendation) -> Iterator[SynthWarning]:
    file, wanted = props.folder.recommendation_file, props.folder.workload.objective
    if found.recommended.known_by == "local":
        yield SynthWarning(id="recommendation:local", text=f"{file}: was measured locally: {found.recommended.source}.")
    if found.objective != wanted:
        text = (
            f"{file}: objective: was sized for {found.objective.rows_per_second:,g} rows a second, which is not what "
            f"{props.folder.file} says. Size it again with `{_command(props)}`."
        )
        yield SynthWarning(id="recommendation:objective", text=text)


def _command(props: WorkloadStackProps) -> str:
    return f"python -m inference_recommender size --workload {props.folder.workload.name} --from SUMMARIES --recommend"
