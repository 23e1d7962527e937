"""Runs the container of a SageMaker Processing job as a process of this machine: `… processing_job.py REQUEST`.

REQUEST is the file with CreateProcessingJob's request that `local_aws.sagemaker.processing_jobs` wrote. Inputs come
from S3 and outputs go there with the credentials of the job's role, which the environment has. /opt/ml is a folder
beside the request, and the entrypoint's program is told so (`container_entry`). What it says goes to the job's stream
in CloudWatch Logs. Beside the request it leaves `outcome.json`: exit status and message, or why it could not run.

What is replaced it notes in the file that $STAND_INS_LOG names.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from scripts.rehearsal.stand_ins.neuron import write_package
from scripts.rehearsal.stand_ins.notes import note

OUTCOME = "outcome.json"
LOG_GROUP = "/aws/sagemaker/ProcessingJobs"
HOST = "algo-1"
ENTRY = Path(__file__).with_name("container_entry.py")
MESSAGE_BYTES = 1024
"""SageMaker shows the first kilobyte of /opt/ml/output/message."""
LINES = 1000
"""Lines of a log in one call of PutLogEvents, which takes 10,000 and 1 MiB."""
NEURON_IMAGES = {"pytorch-inference-neuronx": "torch_neuronx", "pytorch-inference-neuron": "torch_neuron"}
"""The package that an image of AWS's has, by the repository's name."""


def main(request_file: Path) -> int:
    request = json.loads(request_file.read_text("utf-8"))
    folder = request_file.parent
    try:
        outcome = run(request, folder)
    except (BotoCoreError, ClientError) as error:
        outcome = {"failure": f"ClientError: {error}"}
    (folder / OUTCOME).write_text(json.dumps(outcome), "utf-8")
    return 0


def run(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Runs the job and returns its outcome. Raises botocore's errors where the role may not, or nothing is there."""
    system, said = folder / "system", folder / "container.log"
    s3: Any = boto3.client("s3")
    for each in request.get("ProcessingInputs") or ():
        source = each["S3Input"]
        if not download(s3, source["S3Uri"], inside(system, source["LocalPath"])):
            return {"failure": f"ClientError: Failed to download data. No S3 objects found under {source['S3Uri']}"}
    configure(system, request)
    status = contain(request, system, folder, said)
    write_log(request["ProcessingJobName"], said)
    message = inside(system, "/opt/ml/output/message")
    outcome: dict[str, Any] = {"exit_status": status}
    if message.exists():
        outcome["message"] = message.read_bytes()[:MESSAGE_BYTES].decode("utf-8", "ignore")
    for each in (request.get("ProcessingOutputConfig") or {}).get("Outputs", ()):
        left = each["S3Output"]
        if status == 0 or left["S3UploadMode"] == "Continuous":
            upload(s3, inside(system, left["LocalPath"]), left["S3Uri"])
    return outcome


def inside(system: Path, path: str) -> Path:
    return system / path.lstrip("/")


def configure(system: Path, request: Mapping[str, Any]) -> None:
    """Writes what SageMaker tells a container of its job."""
    config = inside(system, "/opt/ml/config")
    config.mkdir(parents=True, exist_ok=True)
    resources = {"current_host": HOST, "hosts": [HOST]}
    (config / "resourceconfig.json").write_text(json.dumps(resources), "utf-8")
    (config / "processingjobconfig.json").write_text(json.dumps(request), "utf-8")


def contain(request: Mapping[str, Any], system: Path, folder: Path, said: Path) -> int:
    """Runs the entrypoint's program in its place and returns the exit status."""
    specification = request["AppSpecification"]
    program, script = specification["ContainerEntrypoint"]
    arguments = specification.get("ContainerArguments") or []
    environment = {"HOME": str(folder), "LANG": "C.UTF-8", **inherited(), **(request.get("Environment") or {})}
    image = specification["ImageUri"].split("/")[-1]
    for name, package in NEURON_IMAGES.items():
        if image.startswith(f"{name}:"):
            torch = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
            environment["PYTHONPATH"] = f"{write_package(folder / 'packages', package)}:{torch}"
            note(f"{package} of the image {image}", "the stand-in compiler, on this machine's Python and torch")
    note(f"docker run {image} {program} {script} {' '.join(arguments)}", "the same program as a process here")
    command = [sys.executable, str(ENTRY), str(system), str(inside(system, script)), *arguments]
    with said.open("ab") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()


def inherited() -> dict[str, str]:
    """Returns what a container gets from SageMaker: the way to its role's credentials, and a path."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "OMP_"))}
    return {"PATH": os.environ["PATH"], **passed}


def download(s3: Any, url: str, folder: Path) -> int:
    """Fetches every object below an s3:// folder and returns how many there were."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    prefix = f"{prefix.rstrip('/')}/"
    count = 0
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for item in page.get("Contents", ()):
            file = folder / item["Key"].removeprefix(prefix)
            file.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, item["Key"], str(file))
            count += 1
    return count


def upload(s3: Any, folder: Path, url: str) -> None:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        s3.upload_file(str(file), bucket, f"{prefix.rstrip('/')}/{file.relative_to(folder).as_posix()}")


def write_log(name: str, said: Path) -> None:
    """Puts the container's output into the stream that SageMaker names after the job and the host."""
    logs: Any = boto3.client("logs")
    stream, now = f"{name}/{HOST}-{int(time.time())}", int(time.time() * 1000)
    with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
        logs.create_log_group(logGroupName=LOG_GROUP)
    logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
    for lines in chunks(said.read_text("utf-8", "replace").splitlines()):
        events = [{"timestamp": now, "message": line} for line in lines if line]
        if events:
            logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=events)


def chunks(lines: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(lines), LINES):
        yield lines[start : start + LINES]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
