"""Does what `python -m model_build` does on SageMaker: the options, and what is done with them.

plan     the jobs of `build --on sagemaker`, with AWS asked for what was not given
show     the document of --dry-run: requests, warnings and what stands in for what AWS could not tell
run      the artifact, after minutes
record   the file of `record`: what a model for Inferentia gave on its chip
"""

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from aws_api.session import AwsSession
from model_build.progress import Progress
from model_build.remote.aws_account import AwsAccount
from model_build.remote.recording import AwsChipAccount, plan_recording, record_on_chip
from model_build.remote.remote_build import build_remotely
from model_build.remote.request import RemoteBuild, dry_run_document, plan_remote
from model_build.remote.where import MAX_RUNTIME_S, Options, resolve, resolve_for_show
from workloads import ModelArtifact, WorkloadFolder, artifact_file, load_workload


def add_options(command: argparse.ArgumentParser) -> None:
    """Adds them all to the `build` command; they are of no use without --on sagemaker."""
    command.add_argument("--on", choices=["local", "sagemaker"], default="local", help="which machine builds")
    remote = command.add_argument_group("with --on sagemaker")
    remote.add_argument("--dry-run", action="store_true", help="print the requests as one JSON document, send nothing")
    remote.add_argument("--role-arn", metavar="ARN", help="role the job assumes")
    remote.add_argument("--bucket", metavar="NAME", help="default: SageMaker's bucket of account and region")
    remote.add_argument("--instance-type", metavar="TYPE", help="default: what the target needs")
    remote.add_argument("--image-uri", metavar="URI", help="default: AWS's image of the target's runtime")
    remote.add_argument("--kms-key", metavar="KEY", help="encrypts what is uploaded, the volume and the output")
    remote.add_argument("--security-group", action="append", default=[], metavar="ID", help="with --subnet: the VPC's")
    remote.add_argument("--subnet", action="append", default=[], metavar="ID", help="may be given several times")
    remote.add_argument(
        "--max-runtime-s", type=int, default=MAX_RUNTIME_S, metavar="N", help=f"default: {MAX_RUNTIME_S}"
    )


def add_record_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("workload", help="a folder of workloads/")
    command.add_argument("--target", required=True, help="a target of its workload.toml for Inferentia, or a variant")
    command.add_argument("--role-arn", required=True, metavar="ARN", help="role the endpoint assumes")
    command.add_argument("--image-uri", required=True, metavar="URI", help="image of containers/neuron, in ECR")
    command.add_argument("--bucket", metavar="NAME", help="default: SageMaker's bucket of account and region")
    command.add_argument("--instance-type", metavar="TYPE", help="default: the target's first")
    command.add_argument("--output", type=Path, metavar="FILE", help="default: build/WORKLOAD/TARGET/outputs.json")


def record(given: argparse.Namespace, root: Path, progress: Progress) -> Path:
    """Returns the file that `verify --outputs` takes. Raises what `plan_recording` and `record_on_chip` raise."""
    session = AwsSession(notify=progress)
    recording = plan_recording(
        load_workload(given.workload, root / "workloads"),
        given.target,
        root,
        role_arn=given.role_arn,
        bucket=given.bucket or session.default_bucket(),
        image_uri=given.image_uri,
        instance_type=given.instance_type,
        stamp=_stamp(),
    )
    output: Path = given.output or artifact_file(root, given.workload, given.target).with_name("outputs.json")
    record_on_chip(recording, output, AwsChipAccount(session), progress)
    return output


def plan(folder: WorkloadFolder, name: str, given: argparse.Namespace) -> tuple[RemoteBuild, ...]:
    """Plans the jobs. Raises what `where.resolve` and `request.plan_remote` raise."""
    return plan_remote(folder, name, resolve(_options(given), AwsAccount(AwsSession()), _stamp()))


def show(folder: WorkloadFolder, name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Returns the document of --dry-run. Needs neither AWS nor a build."""
    where, stand_ins = resolve_for_show(_options(given), AwsAccount(AwsSession()), _stamp())
    return {**dry_run_document(plan_remote(folder, name, where)), "stand_ins": dict(stand_ins)}


def run(
    folder: WorkloadFolder, name: str, builds: Sequence[RemoteBuild], root: Path, progress: Progress
) -> ModelArtifact:
    """Builds. Raises what `build_remotely` raises."""
    return build_remotely(folder, name, builds, root, AwsAccount(AwsSession(notify=progress)), progress)


def _options(given: argparse.Namespace) -> Options:
    return Options(
        role_arn=given.role_arn,
        bucket=given.bucket,
        instance_type=given.instance_type,
        image_uri=given.image_uri,
        kms_key=given.kms_key,
        security_groups=tuple(given.security_group),
        subnets=tuple(given.subnet),
        max_runtime_s=given.max_runtime_s,
    )


def _stamp() -> str:
    return datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
