"""What an endpoint has besides a fleet: types to fall back on, a way to be updated, a shadow, a network. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from stacks.cautions import Caution, image_cautions, inf1_cautions
from stacks.deployment import Deployment, plan_deployment, refuse
from stacks.errors import MinimumOutOfRange, ShadowOnInf1
from stacks.fitness import Wanted, not_offered, outside_zones, unfit
from stacks.workload_stack import WorkloadStackProps
from workloads import EndpointUpdate, ModelArtifact, NewVpc, ProjectError, SageMakerEndpointHosting, Target
from workloads.instances import hardware


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointPlan:
    deployment: Deployment
    instance_types: tuple[str, ...]
    """The deployment's own first, then those to fall back on."""
    update: EndpointUpdate | None
    """None: SageMaker's own way, all at once and without alarms."""
    cautions: tuple[Caution, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Placed:
    """An artifact that shall run on an instance type."""

    wanted: Wanted
    artifact: ModelArtifact
    target: Target


def plan_endpoint(
    props: WorkloadStackProps, hosting: SageMakerEndpointHosting, region: str | None, shadow: ModelArtifact | None
) -> EndpointPlan:
    """Raises the one `ProjectError` that stands in the way, or `SeveralProblems`."""
    deployment = plan_deployment(props, region, hosting.min_instances_in_production)
    instance_type = deployment.instance_type
    refuse(
        [
            *_about_others(_others(props, hosting, shadow), region),
            *_about_zones(props, hosting, instance_type),
            *_about_shadow(props, hosting, instance_type),
            *_about_minimums(props, hosting, deployment),
        ]
    )
    guarded = props.options.in_production and hardware(instance_type) != "Inferentia 1"
    return EndpointPlan(
        deployment=deployment,
        instance_types=tuple(dict.fromkeys((instance_type, *hosting.fallback_instance_types))),
        # Beta has no traffic to shift, and its load test turns the alarms on that would hold an update up.
        update=hosting.update if guarded else None,
        cautions=(
            *image_cautions(props.folder.file, hosting, props.artifact),
            *deployment.cautions,
            *inf1_cautions(props.folder.file, instance_type),
        ),
    )


def _others(
    props: WorkloadStackProps, hosting: SageMakerEndpointHosting, shadow: ModelArtifact | None
) -> Iterator[_Placed]:
    """Besides the deployment's own."""
    file, workload = props.folder.file, props.folder.workload
    for each in hosting.fallback_instance_types:
        wanted = Wanted(instance_type=each, file=file, key="hosting.fallback_instance_types")
        yield _Placed(wanted=wanted, artifact=props.artifact, target=workload.hosted)
    if hosting.shadow is not None and shadow is not None:
        wanted = Wanted(instance_type=hosting.shadow.instance_type, file=file, key="hosting.shadow.instance_type")
        target = workload.targets[workload.variant(hosting.shadow.target).target]
        yield _Placed(wanted=wanted, artifact=shadow, target=target)


def _about_others(others: Iterator[_Placed], region: str | None) -> Iterator[ProjectError]:
    for other in others:
        yield from unfit(other.wanted, other.artifact, other.target)
        if region is not None:
            yield from not_offered(other.wanted, region)


def _about_zones(
    props: WorkloadStackProps, hosting: SageMakerEndpointHosting, instance_type: str
) -> Iterator[ProjectError]:
    if isinstance(hosting.network, NewVpc):
        yield from outside_zones(props.folder.file, instance_type, hosting.network)


def _about_shadow(
    props: WorkloadStackProps, hosting: SageMakerEndpointHosting, instance_type: str
) -> Iterator[ProjectError]:
    if hosting.shadow is None:
        return
    for each in (instance_type, hosting.shadow.instance_type):
        if hardware(each) == "Inferentia 1":
            yield ShadowOnInf1(props.folder.file, each)
            return


def _about_minimums(
    props: WorkloadStackProps, hosting: SageMakerEndpointHosting, deployment: Deployment
) -> Iterator[ProjectError]:
    if deployment.autoscaling is None:
        return
    low = hosting.min_instances_in_production if props.options.in_production else 1
    high = deployment.autoscaling.max_capacity
    for number, minimum in enumerate(hosting.scaling.scheduled_minimums):
        if not low <= minimum.min_capacity <= high:
            yield MinimumOutOfRange(props.folder.file, number, minimum.min_capacity, low, high)
