"""CDK entry: one stack for each workload folder, chosen by its `hosting.kind`.

Reads `workloads/`, `build/`, `cdk -c KEY=VALUE` (stacks/options.py) and the account and region that the CDK CLI
found, if any; without them the stacks fit every account and region. Calls no AWS.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from aws_cdk import App, Environment
from constructs import Construct

import workloads
from stacks.ecs_service_stack import EcsServiceStack
from stacks.errors import NoStack, NothingBuilt, UnknownOption
from stacks.options import Options, read_options
from stacks.sagemaker_endpoint_stack import SageMakerEndpointStack
from stacks.scheduled_batch_stack import ScheduledBatchStack
from stacks.workload_stack import BuiltArtifact, WorkloadStackProps


def add_stacks(
    scope: Construct, root: Path, environment: Environment | None = None, options: Options | None = None
) -> list[workloads.ProjectError]:
    """One stack in `scope` for each folder below root/workloads that is built; why the others have none.

    Raises `ProjectError` for a file or an option that is wrong, or when nothing is built.
    """
    options = options or Options()
    left_out: list[workloads.ProjectError] = []
    before = len(scope.node.children)
    for folder in _folders(root, options.hosting_target):
        try:
            _add_stack(scope, root, _props(root, folder, environment, options))
        except (workloads.MissingArtifact, NoStack) as error:
            left_out.append(error)
    if left_out and len(scope.node.children) == before:
        raise NothingBuilt(left_out)
    return left_out


def _folders(root: Path, target: str | None) -> list[workloads.WorkloadFolder]:
    names = workloads.workload_names(root / "workloads")
    folders = [workloads.load_workload(name, root / "workloads") for name in names]
    known = sorted({name for folder in folders for name in folder.workload.deployables})
    if target is None:
        return folders
    if target not in known:
        raise UnknownOption("hosting-target", target, known)
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
    app = App()
    try:
        for error in add_stacks(app, root, deploying_to(os.environ), read_options(app.node.try_get_context)):
            print(f"No stack for it: {error}", file=sys.stderr)
    except workloads.ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
