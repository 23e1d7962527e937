"""The options of `--on sagemaker`, and what they do."""

import argparse
import sys
from pathlib import Path
from typing import Any

from aws_api.sagemaker import SageMakerAccount
from model_build.progress import Progress
from model_build.remote.recording import plan_recording, record_on_chip
from model_build.remote.remote_build import build_remotely
from model_build.remote.request import MAX_RUNTIME_S, build_site, driver_warnings, plan_remote
from workloads import UsageError, WorkloadFolder, artifact_file


def add_build_options(command: argparse.ArgumentParser) -> None:
    image = "default: AWS's image of the target's runtime"
    add = _add_remote_options(command, "the machine that builds", "default: what the target needs", image).add_argument
    add("--dry-run", action="store_true", help="print the requests as one JSON document, send nothing")
    add("--max-runtime-s", type=int, default=MAX_RUNTIME_S, metavar="N", help=f"default: {MAX_RUNTIME_S}")


def add_verify_options(command: argparse.ArgumentParser) -> None:
    machine = "the machine that runs the model: with sagemaker, a chip"
    _add_remote_options(command, machine, "default: the target's first", "the image of containers/neuron; required")


def _add_remote_options(command: argparse.ArgumentParser, machine: str, instance: str, image: str) -> Any:
    command.add_argument("--on", choices=["local", "sagemaker"], default="local", help=machine)
    remote = command.add_argument_group("with --on sagemaker")
    remote.add_argument("--instance-type", metavar="TYPE", help=instance)
    remote.add_argument("--image-uri", metavar="URI", help=image)
    fact = "override a key of workload.toml, such as recommender.role_arn or .bucket; may be repeated"
    remote.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE", help=fact)
    return remote


def build(
    folder: WorkloadFolder, name: str, given: argparse.Namespace, root: Path, progress: Progress
) -> dict[str, Any]:
    """Returns the artifact's document after the jobs have built it, or that of --dry-run, which needs no AWS."""
    account = SageMakerAccount(notify=None if given.dry_run else progress)
    stand_ins: dict[str, str] | None = {} if given.dry_run else None
    jobs = plan_remote(folder, name, build_site(folder, account, given, stand_ins))
    warnings = driver_warnings(jobs)
    if stand_ins is not None:
        return {"requests": [job.request() for job in jobs], "warnings": warnings, "stand_ins": stand_ins}
    for warning in warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    return build_remotely(folder, name, jobs, root, account, progress).model_dump(mode="json")


def record(folder: WorkloadFolder, name: str, given: argparse.Namespace, root: Path, progress: Progress) -> Path:
    """Returns the file that `verify --outputs` compares. Raises what `plan_recording` and `record_on_chip` raise."""
    if given.image_uri is None:
        raise UsageError("--image-uri is missing: the image of containers/neuron, in your registry.")
    account = SageMakerAccount(notify=progress)
    recording = plan_recording(folder, name, root, build_site(folder, account, given))
    output: Path = given.outputs or artifact_file(root, folder.workload.name, name).with_name("outputs.json")
    record_on_chip(recording, output, account, progress)
    return output
