"""What to deploy, whatever hosts it: instance type, count and scaling, copied from the recommendation; what is refused.

It decides between numbers and computes none, but for the least that production has of instances. What only an
endpoint has is in endpoint_plan.py.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stacks.cautions import Caution, local_caution, objective_caution, size_caution, zone_cautions
from stacks.errors import (
    IncompleteRecommendation,
    LocalRecommendation,
    NoRecommendation,
    NoRecommendedCandidate,
    OtherArtifact,
    OtherVariant,
    SeveralProblems,
)
from stacks.fitness import Wanted, not_offered, unfit
from stacks.workload_stack import WorkloadStackProps
from workloads import Autoscaling, Candidate, EcsServiceHosting, ProjectError, Recommendation


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    instance_type: str
    instance_count: int
    environment: dict[str, str]
    autoscaling: Autoscaling | None
    recommended: Candidate | None
    cautions: tuple[Caution, ...]


def plan_deployment(props: WorkloadStackProps, region: str | None, least_in_production: int = 2) -> Deployment:
    """`region` None: any. Raises the one `ProjectError` that stands in the way, or `SeveralProblems`."""
    used, about_it = _used_recommendation(props)
    refuse(_about_recommendation(props, used))
    chosen = used.recommended if used is not None else None
    wanted = _instance_type(props, chosen)
    refuse(about_hardware(props, wanted, region))
    least = least_in_production if props.options.in_production else 1
    return Deployment(
        instance_type=wanted.instance_type,
        instance_count=max(chosen.instance_count or 1, least) if chosen else 1,
        environment=chosen.environment if chosen else {},
        autoscaling=_autoscaling(chosen, least) if props.options.autoscaling == "on" else None,
        recommended=chosen,
        cautions=(*about_it, *_about_size(props, wanted), *_about_zones(props, wanted, region)),
    )


def refuse(problems: Iterable[ProjectError]) -> None:
    """Raise all of them, as one."""
    match list(problems):
        case []:
            return
        case [only]:
            raise only
        case several:
            raise SeveralProblems(several)


def _used_recommendation(props: WorkloadStackProps) -> tuple[Recommendation | None, list[Caution]]:
    """The recommendation, unless there is none, it is to be ignored, or a rehearsal deploys something else."""
    file, given, options = props.folder.recommendation_file, props.recommendation, props.options
    measure = _measure(props)
    single = f"one {props.folder.workload.instance_types[0]} is deployed, without autoscaling"
    if given is None:
        text = f"{file} does not exist: {single}. Measure with `{measure}`, review the file and deploy again."
        return None, [Caution(id="recommendation:missing", text=text)]
    if options.recommendation == "ignore":
        text = f"{file} is ignored, as -c recommendation=ignore says: {single}. Measure with `{measure}`."
        return None, [Caution(id="recommendation:ignored", text=text)]
    if options.hosting_target is not None and given.target != props.folder.workload.hosting.target:
        text = f"{file} is of {given.target}, and -c hosting-target={options.hosting_target} deploys another: {single}."
        return None, [Caution(id="recommendation:rehearsal", text=text)]
    about_it = [*local_caution(file, given, measure), *objective_caution(file, given, props.folder, measure)]
    return given, about_it


def _about_recommendation(props: WorkloadStackProps, used: Recommendation | None) -> Iterator[ProjectError]:
    file, workload, measure = props.folder.recommendation_file, props.folder.workload, _measure(props)
    if used is None:
        if props.options.in_production:
            yield NoRecommendation(file, measure)
        return
    if used.archive_sha256 != props.artifact.archive_sha256:
        yield OtherArtifact(file, used.archive_sha256, props.artifact, workload.stack_name, measure)
    if props.options.in_production and used.provenance.measured_on == "local":
        yield LocalRecommendation(file, used.provenance.machine, measure)
    if (chosen := used.recommended) is None:
        yield NoRecommendedCandidate(file)
        return
    if chosen.variant not in (None, workload.hosting.target):
        yield OtherVariant(file, props.folder.file, str(chosen.variant), workload.hosting.target)
    if missing := [key for key in ("instance_count", "autoscaling") if getattr(chosen, key) is None]:
        yield IncompleteRecommendation(file, [f"recommended.{key}" for key in missing], workload.name)


def _instance_type(props: WorkloadStackProps, chosen: Candidate | None) -> Wanted:
    folder = props.folder
    if chosen is not None:
        key, file, instance_type = "recommended.instance_type", folder.recommendation_file, chosen.instance_type
    else:
        target = folder.workload.variant(folder.workload.hosting.target).target
        key, file, instance_type = f"targets.{target}.instance_types", folder.file, folder.workload.instance_types[0]
    return Wanted(instance_type=instance_type, file=file, key=key)


def about_hardware(props: WorkloadStackProps, wanted: Wanted, region: str | None) -> Iterator[ProjectError]:
    """Why the instance type cannot run the artifact, or cannot be had in the region."""
    yield from unfit(wanted, props.artifact, props.folder.workload.hosted)
    if region is not None:
        yield from not_offered(wanted, region)


def _autoscaling(chosen: Candidate | None, least: int) -> Autoscaling | None:
    if chosen is None or chosen.autoscaling is None:
        return None
    return Autoscaling(
        min_capacity=max(chosen.autoscaling.min_capacity, least),
        max_capacity=max(chosen.autoscaling.max_capacity, least),
        target_invocations_per_instance=chosen.autoscaling.target_invocations_per_instance,
    )


def _about_size(props: WorkloadStackProps, wanted: Wanted) -> Iterator[Caution]:
    if props.options.autoscaling == "off":
        yield size_caution(wanted.instance_type)


def _about_zones(props: WorkloadStackProps, wanted: Wanted, region: str | None) -> Iterator[Caution]:
    if props.options.in_production and region is not None:
        yield from zone_cautions(wanted, region)


def _measure(props: WorkloadStackProps) -> str:
    """The command that writes a recommendation."""
    run = f"python -m inference_recommender run {props.folder.workload.name}"
    if isinstance(props.folder.workload.hosting, EcsServiceHosting):
        return f"{run} --with load-test --url URL"  # Inference Recommender measures models on SageMaker alone
    return f"{run} --job advanced"
