"""An account that runs a fleet's Processing job as processes on loopback, one with the real entry program per instance.

The hosts are 127.0.0.1, 127.0.0.2 and so on, so they meet over sockets as instances do. The installation is left out:
the Python is this one.
"""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aws_api.sagemaker import SageMakerAccount

PROGRAM = """
import sys
from pathlib import Path
from inference_recommender.measure.generator_entry import main
sys.exit(main(Path(sys.argv[1]), python=sys.executable, port=int(sys.argv[2]), notice_s=1.5))
"""


class LoopbackFleet(SageMakerAccount):
    region = "us-east-1"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: dict[str, bytes] = {}
        self.created: list[Mapping[str, Any]] = []
        self.interrupt_when: Callable[[], bool] = lambda: False
        """Tells when the user presses Ctrl-C."""
        self._processes: list[subprocess.Popen[bytes]] = []

    def upload(self, url: str, body: bytes) -> None:
        self.objects[url] = body

    def create_processing_job(self, request: Mapping[str, Any]) -> None:
        self.created.append(request)
        count = request["ProcessingResources"]["ClusterConfig"]["InstanceCount"]
        source_url = request["ProcessingInputs"][0]["S3Input"]["S3Uri"]
        hosts, port = [f"127.0.0.{number}" for number in range(1, count + 1)], str(_free_port())
        for host in hosts:
            system = self.folder / host
            self._lay_out(system, host, hosts, source_url)
            command = [sys.executable, "-c", PROGRAM, str(system), port]
            self._processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

    def describe_processing_job(self, name: str) -> Mapping[str, Any]:
        if self.interrupt_when():
            self.interrupt_when = lambda: False
            raise KeyboardInterrupt
        ended = [process.poll() for process in self._processes]
        if None in ended:
            return {"ProcessingJobStatus": "InProgress"}
        if any(ended):
            messages = [file.read_text("utf-8") for file in self.folder.glob("*/opt/ml/output/message")]
            return {"ProcessingJobStatus": "Failed", "ExitMessage": "; ".join(messages)}
        return {"ProcessingJobStatus": "Completed"}

    def stop_processing_job(self, name: str) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)

    def files(self, url: str) -> list[str]:
        return [
            file.relative_to(output).as_posix()
            for output in self.folder.glob("*/opt/ml/processing/output")
            for file in output.rglob("*")
            if file.is_file()
        ]

    def read(self, url: str) -> bytes:
        host, name = url.split("/")[-2:]
        return (self.folder / host / "opt/ml/processing/output" / host / name).read_bytes()

    def _lay_out(self, system: Path, host: str, hosts: list[str], prefix: str) -> None:
        """Writes what SageMaker puts into a container: the inputs, and the names of the job's hosts."""
        source = system / "opt/ml/processing/source"
        source.mkdir(parents=True)
        for url, body in self.objects.items():
            if url.startswith(prefix):
                file = source / url.removeprefix(f"{prefix}/")
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(body)
        config = system / "opt/ml/config/resourceconfig.json"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps({"current_host": host, "hosts": hosts}), "utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
