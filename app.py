"""CDK entry: one stack for each workload folder, chosen by its `hosting.kind`.

Reads `workloads/`, `build/`, `cdk -c KEY=VALUE` (stacks/context.py) and the account and region that the CDK CLI
found, if any; without them the stacks fit every account and region. Calls no AWS.
"""

import gc
import os
import sys

if __name__ == "__main__":
    # A synthesis is over in seconds. Looking for garbage among all that the imports make is a tenth of it.
    gc.disable()

from collections.abc import Container, Mapping
from pathlib import Path

from aws_cdk import App, CloudFormationValidatePlugin, Environment, Validations
from constructs import Construct

import workloads
from stacks.batch.batch_stack import ScheduledBatchStack
from stacks.context import PRODUCTION, Options, ReleaseSource, check_choice, read_options, read_release
from stacks.deployment import plan_deployment
from stacks.ecs.service_stack import EcsServiceStack
from stacks.endpoint.endpoint_stack import SageMakerEndpointStack
from stacks.errors import NoRecommendation, NothingBuilt, waits
from stacks.workload_stack import BuiltArtifact, WorkloadStackProps


def add_stacks(
    scope: Construct,
    root: Path,
    environment: Environment | None = None,
    options: Options | None = None,
    *,
    without: Container[str] = (),
) -> list[workloads.ProjectError]:
    """One stack in `scope` for each folder below root/workloads that is built, and in production measured; why the
    others have none.

    `without` names workloads to leave alone. Raises `ProjectError` for a file or an option that is wrong, or when
    nothing is built.
    """
    options = options or Options()
    left_out: list[workloads.ProjectError] = []
    before = len(scope.node.children)
    for folder in _folders(root, options.hosting_target):
        if folder.workload.name in without:
            continue
        try:
            _add_stack(scope, root, _props(root, folder, environment, options))
        except (workloads.MissingArtifact, NoRecommendation) as error:
            scope.node.try_remove_child(folder.workload.stack_name)  # what there is of it
            left_out.append(error)
    if left_out and len(scope.node.children) == before:
        raise NothingBuilt(left_out)
    return left_out


def add_release(app: App, root: Path, environment: Environment, source: ReleaseSource) -> None:
    """The pipeline that releases every workload below root/workloads that is built."""
    # Only here: most syntheses have no pipeline, and its library takes long to import.
    from stacks.release.pipeline_stack import ReleasePipelineProps, ReleasePipelineStack

    folders = [folder for folder in _folders(root, None) if _artifact_file(root, folder).exists()]

    def add(scope: Construct, options: Options, without: Container[str]) -> None:
        add_stacks(scope, root, environment, options, without=without)

    props = ReleasePipelineProps(
        source=source,
        workloads=[folder.workload for folder in folders],
        waiting={
            folder.workload.name: reason
            for folder in folders
            if (reason := _waits(root, folder, environment)) is not None
        },
        add_stacks=add,
        environment=environment,
    )
    ReleasePipelineStack(app, "ReleasePipelineStack", props)


def _artifact_file(root: Path, folder: workloads.WorkloadFolder) -> Path:
    return workloads.artifact_file(root, folder.workload.name, folder.workload.hosting.target)


def _waits(root: Path, folder: workloads.WorkloadFolder, environment: Environment) -> workloads.ProjectError | None:
    """Why a workload is not in production yet: its recommendation is not of its artifact. A batch needs none."""
    if isinstance(folder.workload.hosting, workloads.ScheduledBatchHosting):
        return None
    try:
        plan_deployment(_props(root, folder, environment, PRODUCTION), environment.region)
    except workloads.ProjectError as error:
        if waits(error):
            return error
        raise
    return None


def _folders(root: Path, target: str | None) -> list[workloads.WorkloadFolder]:
    names = workloads.workload_names(root / "workloads")
    folders = [workloads.load_workload(name, root / "workloads") for name in names]
    known = sorted({name for folder in folders for name in folder.workload.deployables})
    if target is None:
        return folders
    check_choice("hosting-target", target, known)
    return [folder.hosted_on(target) if target in folder.workload.deployables else folder for folder in folders]


def _props(
    root: Path, folder: workloads.WorkloadFolder, environment: Environment | None, options: Options
) -> WorkloadStackProps:
    built = _built(root, folder, folder.workload.hosting.target)
    return WorkloadStackProps(
        folder=folder,
        artifact=built.artifact,
        archive_file=built.archive_file,
        recommendation=folder.recommendation(),
        options=options,
        environment=environment,
    )


def _built(root: Path, folder: workloads.WorkloadFolder, target: str) -> BuiltArtifact:
    name = folder.workload.name
    artifact = workloads.load_artifact(root, name, target)
    archive_file = workloads.artifact_file(root, name, target).with_name(artifact.archive)
    return BuiltArtifact(artifact=artifact, archive_file=archive_file)


def _add_stack(scope: Construct, root: Path, props: WorkloadStackProps) -> None:
    name = props.folder.workload.stack_name
    match props.folder.workload.hosting:
        case workloads.SageMakerEndpointHosting() as hosting:
            shadow = _built(root, props.folder, hosting.shadow.target) if hosting.shadow else None
            SageMakerEndpointStack(scope, name, hosting, props, shadow)
        case workloads.EcsServiceHosting() as hosting:
            EcsServiceStack(scope, name, hosting, props)
        case workloads.ScheduledBatchHosting() as hosting:
            ScheduledBatchStack(scope, name, hosting, props)


def deploying_to(variables: Mapping[str, str]) -> Environment:
    """What the CDK CLI passes on of the caller's credentials; either may be missing."""
    account, region = (variables.get(f"CDK_DEFAULT_{name}") for name in ("ACCOUNT", "REGION"))
    return Environment(account=account, region=region)


def main(root: Path = workloads.ROOT) -> int:
    # Where in the code each construct was made, and a tree of them all, cost time, and nobody reads them. CDK's own
    # checks of the templates would take a third of it: `make test` makes them, and every synthesis of a release.
    app = App(stack_traces=False, tree_metadata=False, builtin_cloud_formation_validation=False)
    environment = deploying_to(os.environ)
    try:
        for error in add_stacks(app, root, environment, read_options(app.node.try_get_context)):
            print(f"No stack for it: {error}", file=sys.stderr)
        if source := read_release(app.node.try_get_context):
            add_release(app, root, environment, source)
            Validations.of(app).add_plugins(CloudFormationValidatePlugin())
    except workloads.ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
