"""Plans what an endpoint has besides a fleet: fallback types, an update strategy, a shadow, a network. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stacks.deployment import Deployment, plan_deployment, sized
from stacks.endpoint.scaling import problems_of_minimums
from stacks.fitness import InstanceChoice, not_offered, outside_zones, unfit
from stacks.workload_stack import SynthWarning, WorkloadStackProps, refuse
from workloads import EndpointUpdate, ModelArtifact, NewVpc, ProjectError, SageMakerEndpointHosting, UsageError
from workloads.instances import hardware


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointPlan:
    deployment: Deployment
    instance_types: tuple[str, ...]
    """The deployment's own type, then the types to fall back on."""
    update: EndpointUpdate | None
    """None stands for SageMaker's default: all at once and without alarms."""
    warnings: tuple[SynthWarning, ...]


def plan_endpoint(
    props: WorkloadStackProps, hosting: SageMakerEndpointHosting, region: str | None, shadow: ModelArtifact | None
) -> EndpointPlan:
    """Raises `NotMeasured` or `UsageError` with a line for each problem."""
    deployment = plan_deployment(props, region, hosting.min_instances_in_production)
    instance_type = deployment.instance_type
    refuse(
        [
            *_problems_of_placements(props, hosting, region, shadow),
            *_problems_of_type(props.folder.file, hosting, instance_type),
            *_problems_of_minimums(props, hosting, deployment),
        ]
    )
    guarded = props.options.in_production and hardware(instance_type) != "Inferentia 1"
    return EndpointPlan(
        deployment=deployment,
        instance_types=tuple(dict.fromkeys((instance_type, *hosting.fallback_instance_types))),
        # Beta has no traffic to shift, and its load test sets off the alarms that would hold an update up.
        update=hosting.update if guarded else None,
        warnings=(*deployment.warnings, *_inf1_warnings(props, instance_type)),
    )


def _problems_of_placements(
    props: WorkloadStackProps, hosting: SageMakerEndpointHosting, region: str | None, shadow: ModelArtifact | None
) -> Iterator[ProjectError]:
    """Yields why what runs besides the deployment's own type cannot: fallback types and the shadow."""
    file, workload = props.folder.file, props.folder.workload
    key = "hosting.fallback_instance_types"
    others = [(key, each, props.built.artifact, workload.hosted) for each in hosting.fallback_instance_types]
    if hosting.shadow is not None and shadow is not None:
        target = workload.targets[workload.variant(hosting.shadow.target).target]
        others.append(("hosting.shadow.instance_type", hosting.shadow.instance_type, shadow, target))
    for key, instance_type, artifact, target in others:
        choice = InstanceChoice(instance_type=instance_type, file=file, key=key)
        yield from unfit(choice, artifact, target)
        if region is not None:
            yield from not_offered(choice, region)


def _problems_of_type(file: Path, hosting: SageMakerEndpointHosting, instance_type: str) -> Iterator[UsageError]:
    """Yields zones that lack the type, and a shadow that SageMaker does not run with it."""
    if isinstance(hosting.network, NewVpc):
        yield from outside_zones(file, "hosting.network.zone_ids", instance_type, hosting.network.zone_ids)
    used = (instance_type, hosting.shadow.instance_type) if hosting.shadow else ()
    if inf1 := next((name for name in used if hardware(name) == "Inferentia 1"), None):
        yield UsageError(
            f"{file}: hosting.shadow: SageMaker runs no shadow tests with Inf1 (got {inf1}). "
            "Leave hosting.shadow out, or host a target for Inf2."
        )


def _problems_of_minimums(
    props: WorkloadStackProps, hosting: SageMakerEndpointHosting, deployment: Deployment
) -> Iterator[ProjectError]:
    low, instance_type = deployment.min_instances, deployment.instance_type
    fleet = sized(deployment.recommendation, instance_type, low, autoscaled=deployment.autoscaled)
    if fleet.autoscaling is not None:
        for problem in problems_of_minimums(hosting.scaling, low, fleet.autoscaling):
            yield UsageError(f"{props.folder.file}: hosting.scaling.{problem}")


def _inf1_warnings(props: WorkloadStackProps, instance_type: str) -> Iterator[SynthWarning]:
    if hardware(instance_type) == "Inferentia 1":
        text = (
            f"{props.folder.file}: hosting: SageMaker excludes endpoints on Inf1 ({instance_type}) from deployment "
            "guardrails and shadow tests: an update moves all traffic at once, and no alarm rolls it back. With "
            'hosting.kind = "ecs-service" the same build is rolled back by itself; workloads/query_intent shows how.'
        )
        yield SynthWarning("guardrails:inf1", text)
