"""Runs a SageMaker Processing job as a process: `processing_job.py REQUEST`.

REQUEST is the CreateProcessingJob request written by `local_aws.sagemaker.processing_jobs`. Inputs and outputs are
copied with the credentials of the job's role from the environment. A folder beside the request stands for /. Output of
the program goes to the job's stream in CloudWatch Logs; exit status and message go to `outcome.json`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from aws_api.errors import AwsUnavailable
from aws_api.s3 import S3Session
from scripts.rehearsal.stand_ins import gpu
from scripts.rehearsal.stand_ins.notes import note
from tests.fake_neuron import write_fake

OUTCOME = "outcome.json"
LOG_GROUP = "/aws/sagemaker/ProcessingJobs"
HOST = "algo-1"
ENTRY = Path(__file__).with_name("container_entry.py")
MESSAGE_BYTES = 1024
"""SageMaker returns the first kilobyte of /opt/ml/output/message."""
LINES = 1000
"""Lines in one call of PutLogEvents (limit: 10,000 and 1 MiB)."""
NEURON_IMAGES = {"pytorch-inference-neuronx": "torch_neuronx", "pytorch-inference-neuron": "torch_neuron"}
"""The Neuron package of an AWS image, by the repository's name."""


def main(request_file: Path) -> int:
    request = json.loads(request_file.read_text("utf-8"))
    try:
        outcome = run(request, request_file.parent)
    except (BotoCoreError, ClientError, AwsUnavailable) as error:
        outcome = {"failure": f"ClientError: {error}"}
    request_file.with_name(OUTCOME).write_text(json.dumps(outcome), "utf-8")
    return 0


def run(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Runs the job and returns its outcome. Raises `AwsUnavailable`, and botocore's errors for its log."""
    system, log = folder / "system", folder / "container.log"
    aws = S3Session()
    for each in request.get("ProcessingInputs") or ():
        url, place = each["S3Input"]["S3Uri"], inside(system, each["S3Input"]["LocalPath"])
        if not (names := aws.files(url)):
            return {"failure": f"ClientError: Failed to download data. No S3 objects found under {url}"}
        for name in names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            aws.download(f"{url.rstrip('/')}/{name}", place / name)
    config = inside(system, "/opt/ml/config")
    config.mkdir(parents=True, exist_ok=True)
    (config / "resourceconfig.json").write_text(json.dumps({"current_host": HOST, "hosts": [HOST]}), "utf-8")
    (config / "processingjobconfig.json").write_text(json.dumps(request), "utf-8")
    status = run_program(request, system, folder, log)
    write_log(request["ProcessingJobName"], log)
    outcome: dict[str, Any] = {"exit_status": status}
    message = inside(system, "/opt/ml/output/message")
    if message.exists():
        outcome["message"] = message.read_bytes()[:MESSAGE_BYTES].decode("utf-8", "ignore")
    for each in (request.get("ProcessingOutputConfig") or {}).get("Outputs", ()):
        output = each["S3Output"]
        if status == 0 or output["S3UploadMode"] == "Continuous":
            place = inside(system, output["LocalPath"])
            for file in sorted(path for path in place.rglob("*") if path.is_file()):
                aws.upload_file(f"{output['S3Uri'].rstrip('/')}/{file.relative_to(place).as_posix()}", file)
    return outcome


def inside(system: Path, path: str) -> Path:
    return system / path.lstrip("/")


def run_program(request: Mapping[str, Any], system: Path, folder: Path, log: Path) -> int:
    """Runs the entrypoint's program and returns its exit status."""
    specification = request["AppSpecification"]
    program, script = specification["ContainerEntrypoint"]
    arguments = specification.get("ContainerArguments") or []
    inherited = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "OMP_", "PATH"))}
    environment = {"HOME": str(folder), "LANG": "C.UTF-8", **inherited, **(request.get("Environment") or {})}
    image = specification["ImageUri"].split("/")[-1]
    ours = sysconfig.get_path("purelib")
    for name, package in NEURON_IMAGES.items():
        if image.startswith(f"{name}:"):
            environment["PYTHONPATH"] = f"{write_fake(folder / 'packages', package)}:{ours}"
            note(f"{package} of the image {image}", "the fake compiler, on this machine's Python and torch")
    instance_type = request["ProcessingResources"]["ClusterConfig"]["InstanceType"]
    if capability := gpu.capability_of(instance_type):
        environment["PYTHONPATH"] = f"{gpu.write_packages(folder / 'packages', capability)}:{ours}"
        tools = gpu.write_tools(folder / "tools", gpu.DEVICES[capability])
        environment["PATH"] = f"{tools}:{environment['PATH']}"
        note(f"the GPU of {instance_type}, and trtexec of the image {image}", gpu.DESCRIPTION)
    note(f"docker run {image} {program} {script} {' '.join(arguments)}", "the same program as a process")
    command = [sys.executable, str(ENTRY), str(system), str(inside(system, script)), *arguments]
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()


def write_log(name: str, log: Path) -> None:
    """Puts the output into the stream that SageMaker names after the job and the host."""
    logs: Any = boto3.client("logs")
    stream, now = f"{name}/{HOST}-{int(time.time())}", int(time.time() * 1000)
    with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
        logs.create_log_group(logGroupName=LOG_GROUP)
    logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line]
    for start in range(0, len(lines), LINES):
        events = [{"timestamp": now, "message": line} for line in lines[start : start + LINES]]
        logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=events)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
