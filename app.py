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
from stacks.sagemaker_endpoint_stack import SageMakerEndpointStack, SageMakerEndpointStackProps


def add_stacks(app: App, root: Path, environment: Environment | None = None) -> None:
    """One stack in `app` for each folder below root/workloads. Raises `ProjectError`."""
    for name in workloads.workload_names(root / "workloads"):
        folder = workloads.load_workload(name, root / "workloads")
        match folder.workload.hosting:
            case workloads.SageMakerEndpointHosting(target=target):
                artifact = workloads.load_artifact(root, name, target)
                archive_file = workloads.artifact_file(root, name, target).with_name(artifact.archive)
                props = SageMakerEndpointStackProps(
                    folder=folder,
                    artifact=artifact,
                    archive_file=archive_file,
                    recommendation=folder.recommendation(),
                    environment=environment,
                )
                SageMakerEndpointStack(app, folder.workload.stack_name, props)


def deploying_to(variables: Mapping[str, str]) -> Environment:
    """What the CDK CLI passes on of the caller's credentials; either may be missing."""
    account, region = (variables.get(f"CDK_DEFAULT_{name}") for name in ("ACCOUNT", "REGION"))
    return Environment(account=account, region=region)


def main(root: Path = workloads.ROOT) -> int:
    app = App()
    try:
        add_stacks(app, root, deploying_to(os.environ))
    except workloads.ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
