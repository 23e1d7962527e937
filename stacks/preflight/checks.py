"""Plans a preflight: the questions for the stacks of some workloads. Pure.

EC2's quotas count vCPUs of a group of families, SageMaker's count instances of a type and use.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stacks.context import ReleaseSource, Stage
from stacks.ecs.zones import ORDINALS, SharedZones
from stacks.preflight.questions import (
    AMI_LEAF,
    AMI_ROOT,
    BOOTSTRAP_QUALIFIER,
    AmiParameter,
    Bootstrapped,
    Connection,
    Image,
    MayDo,
    Offered,
    Question,
    Quota,
    ServiceRole,
    Trusts,
)
from workloads import (
    Candidate,
    EcsServiceHosting,
    NeuronTarget,
    NewVpc,
    Rolling,
    SageMakerEndpointHosting,
    ScheduledBatchHosting,
    TensorRtTarget,
    UsageError,
    WorkloadFolder,
    own_images,
)
from workloads.instances import NEURON_FAMILIES, family, instance_shape
from workloads.target import NEURON_BUILD_INSTANCE

ON_DEMAND = {
    "inf": "Running On-Demand Inf instances",
    "g": "Running On-Demand G and VT instances",
    "": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
}
"""EC2's quotas by the prefix of a family's name."""
BUILDS_AT_ONCE = {"Large": 2, "Medium": 1, "Small": 2}
"""Most builds that one pipeline starts at once, by CodeBuild's compute type."""
QUEUED = 5
"""Builds that CodeBuild queues for each that may run ("Builds in AWS CodeBuild")."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A question, and the stacks that need it."""

    question: Question
    stacks: tuple[str, ...]


SAGEMAKER_SCALING = ServiceRole(
    name="AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint",
    service="sagemaker.application-autoscaling.amazonaws.com",
)
ECS_SCALING = ServiceRole(
    name="AWSServiceRoleForApplicationAutoScaling_ECSService", service="ecs.application-autoscaling.amazonaws.com"
)
ON_ECS = (
    ServiceRole(name="AWSServiceRoleForECS", service="ecs.amazonaws.com"),
    ServiceRole(name="AWSServiceRoleForAutoScaling", service="autoscaling.amazonaws.com"),
)
BALANCING = ServiceRole(name="AWSServiceRoleForElasticLoadBalancing", service="elasticloadbalancing.amazonaws.com")


def plan(
    folders: Sequence[WorkloadFolder],
    stage: Stage,
    releases: Mapping[str, ReleaseSource] | None = None,
    network: SharedZones | None = None,
    trusts: Sequence[Trusts] = (),
) -> tuple[Check, ...]:
    """Returns the checks for the stacks of `folders` and for `releases`, pipelines by stack name, each question once.

    Quotas are added up over the stacks.
    """
    if network is None:
        shared = {folder.file: folder.workload for folder in folders}
        network = SharedZones(shared, None, in_production=stage == "production")
    questions = [
        (folder.workload.stack_name, question) for folder in folders for question in _questions(folder, stage, network)
    ]
    pipelines = releases or {}
    for stack, source in pipelines.items():
        questions += [(stack, question) for question in (Connection(arn=source.connection_arn), *_deploying(), *trusts)]
    for folder in folders:
        if (stack := folder.workload.release_stack_name) in pipelines:
            questions += [(stack, question) for question in _releasing(folder, stage)]
    return (*_each_once(questions), *_builds(tuple(pipelines)))


def _each_once(questions: Iterable[tuple[str, Question]]) -> Iterator[Check]:
    quotas: dict[tuple[str, str], list[tuple[str, Quota]]] = {}
    others: dict[Question, list[str]] = {}
    for stack, question in questions:
        if isinstance(question, Quota):
            quotas.setdefault((question.service, question.quota), []).append((stack, question))
        else:
            others.setdefault(question, []).append(stack)
    for (service, name), parts in quotas.items():
        several = len(parts) > 1
        why = "; ".join(f"{stack}: {part.why}" if several else part.why for stack, part in parts)
        total = Quota(service=service, quota=name, needed=sum(part.needed for _, part in parts), why=why)
        yield Check(question=total, stacks=tuple(dict.fromkeys(stack for stack, _ in parts)))
    for question, stacks in others.items():
        yield Check(question=question, stacks=tuple(dict.fromkeys(stacks)))


def _questions(folder: WorkloadFolder, stage: Stage, network: SharedZones) -> Iterator[Question]:
    yield from _fleet(folder, stage)
    match folder.workload.hosting:
        case SageMakerEndpointHosting() as hosting:
            yield from _endpoint(folder, hosting)
        case EcsServiceHosting() as hosting:
            chosen, instance_type = _chosen(folder)
            yield BALANCING
            if chosen is not None and chosen.autoscaling is not None:
                yield ECS_SCALING
            yield from _on_ec2(folder, hosting, instance_type, network)
        case ScheduledBatchHosting() as hosting:
            yield from _batch(folder, hosting, network)
    yield from _built(folder)
    yield from _images(folder)
    yield from _deploying()


def _releasing(folder: WorkloadFolder, stage: Stage) -> Iterator[Question]:
    """Yields what a pipeline needs beside `stage`: the other stage in the same account, and the check on a chip."""
    other: Stage = "beta" if stage == "production" else "production"
    for quota in _fleet(folder, other):
        yield replace(quota, why=f"{quota.why}, in {other}")
    if isinstance(folder.workload.hosted, NeuronTarget):
        chip = f"ml.{folder.workload.instance_types[0].removeprefix('ml.')}"
        yield _hosted(chip, 1, "the temporary endpoint that records the model's outputs on its chip")


def _builds(pipelines: tuple[str, ...]) -> Iterator[Check]:
    for size, each in BUILDS_AT_ONCE.items() if pipelines else ():
        most = each * len(pipelines)
        question = Quota(
            service="codebuild",
            quota=f"Concurrently running builds for Linux/{size} environment",
            needed=math.ceil(most / (1 + QUEUED)),
            why=f"the pipelines start up to {most} at once, and CodeBuild queues {QUEUED} for each that runs",
        )
        yield Check(question=question, stacks=pipelines)


def _built(folder: WorkloadFolder) -> Iterator[Quota]:
    """Yields the machines of `model_build build --on sagemaker`, each of which has one job."""
    workload = folder.workload
    types: dict[str, str] = {}
    for name in workload.deployed:
        match workload.targets[workload.variant(name).target]:
            case TensorRtTarget() as target:
                types |= dict.fromkeys(target.build_instances.values(), "an engine is built on its GPU")
            case NeuronTarget():
                types[NEURON_BUILD_INSTANCE] = "a remote build compiles for Inferentia"
    for instance_type, why in types.items():
        yield Quota(service="sagemaker", quota=f"{instance_type} for processing job usage", needed=1, why=why)


def _deploying() -> Iterator[Question]:
    yield Bootstrapped()
    for role in ("deploy", "file-publishing"):
        name = f"cdk-{BOOTSTRAP_QUALIFIER}-{role}-role-{{account}}-{{region}}"
        arn = f"arn:{{partition}}:iam::{{account}}:role/{name}"
        yield MayDo(action="sts:AssumeRole", resource=arn, named=f"CDK's {role} role")


def _fleet(folder: WorkloadFolder, stage: Stage) -> Iterator[Quota]:
    """Yields the quotas of the stack's own instances in a stage, at their most."""
    chosen, instance_type = _chosen(folder)
    match folder.workload.hosting:
        case SageMakerEndpointHosting() as hosting:
            most = _most(chosen, hosting.min_instances_in_production if stage == "production" else 1)
            beside, how = _beside(hosting, most, stage)
            why = f"{most} at the peak and {beside} beside them while {how}"
            for each in (instance_type, *hosting.fallback_instance_types):
                yield _hosted(each, most + beside, why)
            if (shadow := hosting.shadow) is not None:
                yield _hosted(shadow.instance_type, shadow.instance_count, "the shadow variant")
        case EcsServiceHosting():
            most = _most(chosen, 2 if stage == "production" else 1)
            why = f"{most} {instance_type} at the peak, and as many during an update"
            yield _on_demand(folder, instance_type, most * 2, why)


def _endpoint(folder: WorkloadFolder, hosting: SageMakerEndpointHosting) -> Iterator[Question]:
    workload, (chosen, first) = folder.workload, _chosen(folder)
    for instance_type in (first, *hosting.fallback_instance_types):
        yield Offered(
            instance_type=instance_type.removeprefix("ml."),
            zones=hosting.network.zone_ids if isinstance(hosting.network, NewVpc) else (),
        )
    combinations = math.prod(len(values) for values in workload.recommender.environment.values())
    at_once = min(workload.recommender.parallel_tests, combinations)
    for instance_type in workload.instance_types:
        yield _hosted(instance_type, at_once, "tests of a recommender job at once, beside the stack's own endpoint")
    if chosen is not None and chosen.autoscaling is not None:
        yield SAGEMAKER_SCALING
    endpoint = "arn:{partition}:sagemaker:{region}:{account}:endpoint/*"
    yield MayDo(action="sagemaker:InvokeEndpoint", resource=endpoint, named="endpoints")
    job = "arn:{partition}:sagemaker:{region}:{account}:inference-recommendations-job/*"
    yield MayDo(action="sagemaker:CreateInferenceRecommendationsJob", resource=job, named="jobs")


def _hosted(instance_type: str, needed: int, why: str) -> Quota:
    return Quota(service="sagemaker", quota=f"{instance_type} for endpoint usage", needed=needed, why=why)


def _beside(hosting: SageMakerEndpointHosting, most: int, stage: Stage) -> tuple[int, str]:
    """Returns how many instances an update adds, and how it does: only a rolling one has no second fleet."""
    if stage == "production" and isinstance(hosting.update, Rolling):
        return math.ceil(most * hosting.update.percent / 100), "a rolling update replaces a batch"
    return most, "a blue/green update runs both fleets"


def _batch(folder: WorkloadFolder, hosting: ScheduledBatchHosting, network: SharedZones) -> Iterator[Question]:
    sized = folder.batch_recommendation()
    shards = sized.recommended.shards if sized else hosting.shards
    instance_type = sized.recommended.instance_type if sized else folder.workload.instance_types[0]
    why = f"{shards} {instance_type}, one for each shard"
    yield _on_demand(folder, instance_type, shards, why)
    yield from _on_ec2(folder, hosting, instance_type, network)


def _on_demand(folder: WorkloadFolder, instance_type: str, instances: int, why: str) -> Quota:
    """Raises `UsageError` for a type whose size is not known."""
    if (shape := instance_shape(instance_type)) is None:
        raise UsageError(
            f"{folder.file}: {instance_type}: its vCPUs are unknown. "
            "Use EC2's notation (inf1.6xlarge), or another type."
        )
    group = next(quota for prefix, quota in ON_DEMAND.items() if family(instance_type).startswith(prefix))
    return Quota(service="ec2", quota=group, needed=instances * shape.vcpus, why=f"vCPUs of {why}")


def _on_ec2(
    folder: WorkloadFolder, hosting: EcsServiceHosting | ScheduledBatchHosting, instance_type: str, network: SharedZones
) -> Iterator[Question]:
    zones = hosting.vpc.availability_zones if hosting.vpc else tuple(network.of(folder.workload))
    if set(zones) & set(ORDINALS):
        yield Offered(instance_type=instance_type, first=len(zones))
    else:
        yield Offered(instance_type=instance_type, zones=zones)
    on_chips = folder.workload.hosted.runtime in NEURON_FAMILIES
    yield AmiParameter(name=f"{AMI_ROOT}amazon-linux-2023{'/neuron' if on_chips else ''}{AMI_LEAF}")
    yield from ON_ECS


def _images(folder: WorkloadFolder) -> Iterator[Question]:
    """Yields the images that the stack names: by digest if they were built, else by the tag for their contents."""
    workload, root = folder.workload, folder.file.parents[2]
    shadow = workload.hosting.shadow if isinstance(workload.hosting, SageMakerEndpointHosting) else None
    for uri in (workload.hosting.image_uri, shadow.image_uri if shadow else None):
        if uri is not None:
            yield Image(uri=uri)
    for kind in sorted(own_images.kinds_of(workload)):
        built, content = own_images.load_image(root, kind), own_images.content_of(kind)
        if built is not None and built.content == content:
            yield Image(uri=built.uri, kind=kind)
        else:
            yield Image(uri=f"{own_images.REPOSITORY}:{kind}-{content}", kind=kind)


def _chosen(folder: WorkloadFolder) -> tuple[Candidate | None, str]:
    """Returns the recommended candidate and its type; without one, the first type of the target."""
    recommendation = folder.recommendation()
    chosen = recommendation.recommended if recommendation is not None else None
    return chosen, chosen.instance_type if chosen else folder.workload.instance_types[0]


def _most(chosen: Candidate | None, least: int) -> int:
    if chosen is None:
        return least
    scaled = chosen.autoscaling.max_capacity if chosen.autoscaling else 0
    return max(chosen.instance_count or 1, scaled, least)
