"""The CDK app: one stack for each workload folder, by its `hosting.kind`, and their shared network. Calls no AWS.

Without an account and a region the stacks fit every one.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from aws_cdk import Annotations, App, CfnOutput, CloudFormationValidatePlugin, Environment, Stack, Validations
from constructs import Construct

import workloads
from stacks.batch.batch_stack import ScheduledBatchStack
from stacks.budget import NAME as BUDGET
from stacks.budget import BudgetStack, cost_tags
from stacks.cleanup import NAME as CLEANUP
from stacks.cleanup import CleanupStack
from stacks.context import (
    DEFAULT_CIDR,
    PRODUCTION,
    Context,
    Options,
    ReleaseSource,
    Stage,
    check_choice,
    read_alarm_receiver,
    read_cleanup,
    read_environment,
    read_network_cidr,
    read_options,
    read_release,
)
from stacks.deployment import plan_deployment
from stacks.ecs.service_stack import EcsServiceStack
from stacks.ecs.shared_network import NAME as SHARED_NETWORK
from stacks.ecs.shared_network import Shared, SharedNetworkStack
from stacks.ecs.zones import SharedZones, on_shared_network
from stacks.endpoint.endpoint_stack import SageMakerEndpointStack
from stacks.workload_stack import BuiltArtifact, NotMeasured, WorkloadStackProps
from workloads.instances import has_accelerator
from workloads.program import exit_code

NO_ACCOUNT = (
    "No AWS account is reachable. Start a local one with `python -m local_aws` and run `source .local_aws/exports`, "
    "or log in to AWS."
)
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
COMMANDS_ON_STACKS = {"deploy", "destroy", "diff", "synth", "synthesize", "watch"}
"""The commands of the CDK CLI that skip a stack without a template."""


class NothingBuilt(workloads.ProjectError):
    """`reasons` say, by the name of its stack, why a workload has none. Workloads without a build share a line."""

    def __init__(self, reasons: Mapping[str, workloads.ProjectError]) -> None:
        self.reasons = reasons
        lines = list(map(str, reasons.values()))
        not_built = [name for name, reason in reasons.items() if isinstance(reason, workloads.MissingArtifact)]
        if len(not_built) > 1:
            build = "Build a workload with `python -m model_build build WORKLOAD --target TARGET`."
            lines = [str(reason) for name, reason in reasons.items() if name not in not_built]
            lines.append(f"Not built: {', '.join(not_built)}. {build}")
        super().__init__("\n".join(["There is nothing to deploy:", *lines]))


def add_stacks(
    scope: Construct,
    root: Path,
    environment: Environment | None = None,
    options: Options | None = None,
    *,
    only: str | None = None,
    on_cpu: bool = False,
) -> dict[str, workloads.ProjectError]:
    """Adds a stack for each built workload folder, or for one. Returns why workloads have none, by stack name.

    With `on_cpu` each workload is hosted on its CPU target, unless the options name a target. Raises `NothingBuilt` if
    there is no stack.
    """
    options = options or Options()
    left_out: dict[str, workloads.ProjectError] = {}
    before = len(scope.node.children)
    as_committed = _folders(root, options.hosting_target)
    on_cpu = on_cpu and options.hosting_target is None
    folders = [_hosted_on_cpu(folder) for folder in as_committed] if on_cpu else as_committed
    if options.network_cidr and not any(on_shared_network(folder.workload) for folder in as_committed):
        raise workloads.UsageError(
            f"-c {options.stage}-network-cidr: got '{options.network_cidr}', but no workload is in the shared network. "
            "Leave the option out, or leave hosting.vpc out of a workload on EC2."
        )
    network = partial(_shared_network, scope, folders, environment, options)
    for folder, committed in zip(folders, as_committed, strict=True):
        if only is not None and folder.workload.name != only:
            continue
        instead = folder.workload.hosting.target if folder is not committed else options.hosting_target
        try:
            props = _props(root, folder, environment, replace(options, hosting_target=instead))
            stack = _add_stack(scope, root, props, network)
            if folder is not committed:
                _note_target(stack, folder, committed)
        except (workloads.MissingArtifact, NotMeasured) as error:
            scope.node.try_remove_child(folder.workload.stack_name)  # It may have been made in part.
            left_out[folder.workload.stack_name] = error
    if left_out and len(scope.node.children) == before:
        raise NothingBuilt(left_out)
    if options.budget_usd is not None:
        BudgetStack(scope, BUDGET, stage=options.stage, limit_usd=options.budget_usd, environment=environment)
    for child in scope.node.children[before:]:
        if isinstance(child, Stack):
            child.termination_protection = options.in_production
    return left_out


def add_releases(app: App, root: Path, environment: Environment, source: ReleaseSource, *, local: bool = False) -> None:
    """Adds the pipeline of each workload, or of the one that -c release names. Its first deployment needs no build."""
    # Imported here because most syntheses have no pipeline, and its library takes long to import.
    from stacks.release.pipeline import ReleasePipeline

    context = app.node.try_get_context
    environments = stage_environments(context, environment)
    email, topic = read_alarm_receiver(context)

    def add_stage(workload: str, scope: Construct, options: Options, stage: Environment) -> None:
        options = replace(
            options,
            local=local,
            network_cidr=read_network_cidr(context, options.stage),
            image_account=environment.account if stage != environment else None,
            alarm_email=email,
            alarm_topic=topic,
        )
        add_stacks(scope, root, stage, options, only=workload)

    if source.start == "push-and-approval" and environments["beta"] != environment:
        raise workloads.UsageError(
            "cdk.json: context.release-start: got 'push-and-approval' with a beta-environment. Approvals are events of "
            "beta's account and region, and start only a pipeline there. Leave one of the two out."
        )
    folders = {folder.workload.name: folder for folder in _folders(root, None)}
    if (only := context("release")) is not None:
        check_choice("release", only, list(folders))
    for name in folders if only is None else [only]:
        workload = folders[name].workload
        about = f"Releases {name}: model and infrastructure."
        stack = Stack(app, workload.release_stack_name, env=environment, description=about)
        release = ReleasePipeline(
            stack,
            "Default",  # Leaves no trace in the logical ids of its resources.
            repository=source.repository,
            connection_arn=source.connection_arn,
            branch=source.branch,
            start=source.start,
            workload=workload,
            add_stacks=partial(add_stage, name),
            environments={stage: place for stage, place in environments.items() if place != environment},
            is_built=all(workloads.artifact_file(root, name, each).exists() for each in workload.deployed),
            waiting=_why_not_in_production(root, folders[name], environments["production"]),
        )
        CfnOutput(stack, "PipelineName", value=release.pipeline.pipeline_name)


def stage_environments(context: Context, pipeline: Environment) -> dict[Stage, Environment]:
    """Returns account and region of each stage: its own, or those of the pipeline. Raises `UsageError`."""
    environments = dict.fromkeys(get_args(Stage), pipeline)
    for stage in environments:
        if (given := read_environment(context, stage)) is None:
            continue
        if pipeline.account is None or pipeline.region is None:
            raise workloads.UsageError(
                f"cdk.json: context.{stage}-environment: the account and region of the pipeline are unknown. "
                "Log in to AWS as the account of the pipeline, and set AWS_REGION."
            )
        environments[stage] = Environment(account=given[0], region=given[1])
    return environments


def _why_not_in_production(
    root: Path, folder: workloads.WorkloadFolder, environment: Environment
) -> workloads.ProjectError | None:
    """Returns why a workload waits for its build, or for a recommendation of it. A batch needs none."""
    try:
        for target in folder.workload.deployed:
            _built(root, folder, target)
        props = _props(root, folder, environment, PRODUCTION)
        if not isinstance(folder.workload.hosting, workloads.ScheduledBatchHosting):
            plan_deployment(props, environment.region)
    except (workloads.MissingArtifact, NotMeasured) as error:
        return error
    return None


def _folders(root: Path, target: str | None) -> list[workloads.WorkloadFolder]:
    """Returns every workload's folder, hosted on `target` where the workload has it."""
    names = workloads.workload_names(root / "workloads")
    folders = [workloads.load_workload(name, root / "workloads") for name in names]
    if target is None:
        return folders
    check_choice("hosting-target", target, sorted({name for folder in folders for name in folder.workload.deployables}))
    return [folder.hosted_on(target) if target in folder.workload.deployables else folder for folder in folders]


def _hosted_on_cpu(folder: workloads.WorkloadFolder) -> workloads.WorkloadFolder:
    """Returns the folder itself if it is hosted on CPUs already, or has no target for them."""
    target = folder.workload.cpu_target
    if target is None or not has_accelerator(folder.workload.instance_types[0]):
        return folder
    return folder.hosted_on(target)


def _note_target(stack: Stack, folder: workloads.WorkloadFolder, committed: workloads.WorkloadFolder) -> None:
    shadow = ", and no shadow" if len(folder.workload.deployed) < len(committed.workload.deployed) else ""
    Annotations.of(stack).add_info_v2(
        "hosting:local",
        f"{folder.file}: the local account gets '{folder.workload.hosting.target}' in place of hosting.target "
        f"'{committed.workload.hosting.target}', whose hardware it lacks{shadow}. "
        "-c hosting-target=NAME chooses another.",
    )


def _props(
    root: Path, folder: workloads.WorkloadFolder, environment: Environment | None, options: Options
) -> WorkloadStackProps:
    return WorkloadStackProps(
        root=root,
        folder=folder,
        built=_hosted(root, folder),
        recommendation=folder.recommendation(),
        options=options,
        environment=environment,
    )


def _hosted(root: Path, folder: workloads.WorkloadFolder) -> BuiltArtifact:
    """Returns what hosting.target names. Raises `MissingArtifact`, which names the targets that are built."""
    name, workload = folder.workload.name, folder.workload
    try:
        return _built(root, folder, workload.hosting.target)
    except workloads.MissingArtifact as error:
        built = [each for each in workload.deployables if workloads.artifact_file(root, name, each).exists()]
        if built:
            error.args = (f"{error} Built is {', '.join(built)}: -c hosting-target={built[0]} deploys it instead.",)
        raise


def _built(root: Path, folder: workloads.WorkloadFolder, target: str) -> BuiltArtifact:
    artifact = workloads.load_artifact(root, folder.workload.name, target)
    archive_file = workloads.artifact_file(root, folder.workload.name, target).with_name(artifact.archive)
    return BuiltArtifact(artifact=artifact, archive_file=archive_file)


def _shared_network(
    scope: Construct, folders: Sequence[workloads.WorkloadFolder], environment: Environment | None, options: Options
) -> SharedNetworkStack:
    """Returns the one network below `scope`, for all workloads that run on EC2."""
    if isinstance(there := scope.node.try_find_child(SHARED_NETWORK), SharedNetworkStack):
        return there
    workloads_by_file = {folder.file: folder.workload for folder in folders}
    region = environment.region if environment else None
    zones = SharedZones(workloads_by_file, region, in_production=options.in_production)
    return SharedNetworkStack(
        scope,
        SHARED_NETWORK,
        zones=zones,
        cidr=options.network_cidr or DEFAULT_CIDR,
        measured=options.recommendation == "ignore",
        tags=cost_tags(options.stage),
        environment=environment,
    )


def _add_stack(scope: Construct, root: Path, props: WorkloadStackProps, network: Shared) -> Stack:
    name = props.folder.workload.stack_name
    match props.folder.workload.hosting:
        case workloads.SageMakerEndpointHosting() as hosting:
            shadow = _built(root, props.folder, hosting.shadow.target) if hosting.shadow else None
            return SageMakerEndpointStack(scope, name, hosting, props, shadow)
        case workloads.EcsServiceHosting() as hosting:
            return EcsServiceStack(scope, name, hosting, props, network)
        case workloads.ScheduledBatchHosting() as hosting:
            return ScheduledBatchStack(scope, name, hosting, props, network)


def on_this_machine(variables: Mapping[str, str]) -> bool:
    """Returns whether CloudFormation is that of `python -m local_aws`, whose exports name a loopback address."""
    url = variables.get("AWS_ENDPOINT_URL_CLOUDFORMATION") or variables.get("AWS_ENDPOINT_URL")
    return url is not None and urlsplit(url).hostname in LOOPBACK


def deploying_to(variables: Mapping[str, str]) -> Environment:
    """Returns the account and region of the caller's credentials, as the CDK CLI passes them on; each may be None."""
    account, region = (variables.get(f"CDK_DEFAULT_{name}") for name in ("ACCOUNT", "REGION"))
    return Environment(account=account, region=region)


def cdk_command(process: int) -> list[str] | None:
    """Returns the arguments of the CDK CLI that runs this app, or None.

    The CLI does not pass on the stacks it was called for, so its command line is read from /proc. `process` is the
    parent's id: the CLI, or the shell in which the CLI starts the app.
    """
    for _ in range(2):
        try:
            words = Path(f"/proc/{process}/cmdline").read_text("utf-8").split("\0")[:-1]
            process = int(Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return None
        for position, word in enumerate(words[:2]):
            if Path(word).name == "cdk":
                return words[position + 1 :]
    return None


def asked_for(stacks: Sequence[str], command: Sequence[str] | None) -> list[str]:
    """Returns the stacks that the CDK CLI was called for: by name, by pattern, or all without a name or a command."""
    if command is None:
        return list(stacks)
    if not COMMANDS_ON_STACKS & set(command):
        return []
    named = [stack for stack in stacks if any(fnmatchcase(stack, word) for word in command)]
    return named or list(stacks)


def add_all(
    app: App, root: Path, environment: Environment, command: Sequence[str] | None, *, local: bool = False
) -> int:
    """Adds every stack and a release's pipeline; returns the exit code. Errors go to stderr."""
    context = app.node.try_get_context
    try:
        source = read_release(context)
        if cleans := read_cleanup(context):
            CleanupStack(app, CLEANUP, environment=environment)
        try:
            left_out = add_stacks(app, root, environment, replace(read_options(context), local=local), on_cpu=local)
        except NothingBuilt as error:
            if source is None and not cleans:
                raise
            left_out = dict(error.reasons)  # A release builds its models itself; a cleanup needs none.
        for name in asked_for([*(stack.node.id for stack in app.node.children), *left_out], command):
            if name in left_out:
                print(f"{name} is left out: {left_out[name]}", file=sys.stderr)
        if source is not None:
            add_releases(app, root, environment, source, local=local)
            Validations.of(app).add_plugins(CloudFormationValidatePlugin())
    except NothingBuilt as error:
        names = asked_for(list(error.reasons), command) or list(error.reasons)
        if environment.account is None:
            print(NO_ACCOUNT, file=sys.stderr)
        print(NothingBuilt({name: error.reasons[name] for name in names}), file=sys.stderr)
        return error.exit_code
    except workloads.ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def synthesise(root: Path = workloads.ROOT, command: Sequence[str] | None = None) -> int:
    # `make test` and the synthesis of a release run CDK's checks of templates, which take a third of the time.
    app = App(stack_traces=False, tree_metadata=False, builtin_cloud_formation_validation=False)
    code = add_all(app, root, deploying_to(os.environ), command, local=on_this_machine(os.environ))
    if code == 0:
        app.synth()
    return code


def main() -> int:
    """Synthesises the project's stacks for the CDK CLI that started this process. Returns the exit code."""
    return exit_code(lambda: synthesise(command=cdk_command(os.getppid())))
