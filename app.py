"""CDK entry: one stack for each workload folder, chosen by its `hosting.kind`.

Reads `workloads/`, `build/` and the account and region that the CDK CLI found, if any; without them the
stacks fit every account and region. Calls no AWS.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from aws_cdk import App, Environment

import workloads
from stacks.errors import NoStack, NothingBuilt
from stacks.sagemaker_endpoint_stack import SageMakerEndpointStack, SageMakerEndpointStackProps


def add_stacks(app: App, root: Path, environment: Environment | None = None) -> list[workloads.ProjectError]:
    """One stack in `app` for each folder below root/workloads that is built; why the others have none.

    Raises `ProjectError` for a file that is wrong, or when nothing is built.
    """
    left_out: list[workloads.ProjectError] = []
    for name in workloads.workload_names(root / "workloads"):
        folder = workloads.load_workload(name, root / "workloads")
        try:
            _add_stack(app, root, folder, environment)
        except (workloads.MissingArtifact, NoStack) as error:
            left_out.append(error)
    if left_out and not app.node.children:
        raise NothingBuilt(left_out)
    return left_out


def _add_stack(app: App, root: Path, folder: workloads.WorkloadFolder, environment: Environment | None) -> None:
    workload, hosting = folder.workload, folder.workload.hosting
    if not isinstance(hosting, workloads.SageMakerEndpointHosting):
        raise NoStack(folder.file, hosting.kind, workload.stack_name)
    target = workload.targets[workload.variant(hosting.target).target]
    if isinstance(target, workloads.NeuronTarget):
        raise NoStack(folder.file, f"{hosting.kind} on Inferentia", workload.stack_name)
    artifact = workloads.load_artifact(root, workload.name, hosting.target)
    props = SageMakerEndpointStackProps(
        folder=folder,
        hosting=hosting,
        artifact=artifact,
        archive_file=workloads.artifact_file(root, workload.name, hosting.target).with_name(artifact.archive),
        recommendation=folder.recommendation(),
        environment=environment,
    )
    SageMakerEndpointStack(app, workload.stack_name, props)


def deploying_to(variables: Mapping[str, str]) -> Environment:
    """What the CDK CLI passes on of the caller's credentials; either may be missing."""
    account, region = (variables.get(f"CDK_DEFAULT_{name}") for name in ("ACCOUNT", "REGION"))
    return Environment(account=account, region=region)


def main(root: Path = workloads.ROOT) -> int:
    app = App()
    try:
        for error in add_stacks(app, root, deploying_to(os.environ)):
            print(f"No stack for it: {error}", file=sys.stderr)
    except workloads.ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
