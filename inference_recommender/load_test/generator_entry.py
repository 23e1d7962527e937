"""What each instance of the Processing job runs: a Python for the generator, a meeting with the others, its share.

    python3 entry.py

Standard library alone and Python 3.10, since the image's own Python starts it. The generator gets the Python and the
packages that constraints.txt was resolved for, from the network. What it measured is left below the output folder, in
one named after the host, with the generator's exit status in `exit.json`: a run that proves nothing is still a job that
did its work. Why a job failed goes to /opt/ml/output/message, of which SageMaker shows the first kilobyte.

The meeting: the first host listens, every other one connects when it is ready, and when all have, each is told how many
seconds later to start. Clocks are those of the hosts: AWS keeps them within a millisecond or so of each other.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

UV = "uv==0.13.8"
PYTHON = "3.11"
PACKAGES = ("boto3", "httptools", "numpy", "pydantic", "scipy", "uvloop")
MEETING_PORT = 29400
MEETING_S = 1500
NOTICE_S = 5.0
"""Between the meeting and the start: calibrations and signatures are done by then."""
MESSAGE_BYTES = 1000
LEFT = ("generator.log", "summary.json", "timeline.npz", "exit.json")
"""The last one says that all are there."""


class StepFailed(Exception):
    pass


def main(
    system: Path = Path("/"), python: str | None = None, port: int = MEETING_PORT, notice_s: float = NOTICE_S
) -> int:
    """`system` is where the file system begins, `python` one that has the packages: a test puts its own there."""
    processing = system / "opt/ml/processing"
    source, work = processing / "source", processing / "work"
    try:
        resources = json.loads((system / "opt/ml/config/resourceconfig.json").read_text("utf-8"))
        host, hosts = resources["current_host"], sorted(resources["hosts"])
        with tarfile.open(source / "source.tar.gz") as archive:
            archive.extractall(work)
        python = python or install(work)
        start_at = meet(host, hosts, port, notice_s)
        place = (hosts.index(host), len(hosts))
        generate(python, work, source, processing / "output" / host, place, start_at)
    except (StepFailed, OSError, tarfile.TarError) as error:
        tell(system / "opt/ml/output/message", str(error))
        return 1
    return 0


def install(work: Path) -> str:
    """A Python of the generator's own, outside every environment of the image; its path."""
    uv, venv = f"{work}/.uv/bin/uv", f"{work}/.venv"
    python = f"{venv}/bin/python"
    pins = ["--constraints", f"{work}/constraints.txt"]
    for command in (
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", f"{work}/.uv", UV],
        [uv, "venv", "--quiet", "--python", PYTHON, venv],
        [uv, "pip", "install", "--quiet", "--python", python, *pins, *PACKAGES],
    ):
        print(f"$ {' '.join(command)}", flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
        if done.returncode:
            raise StepFailed(f"Installing ended with exit status {done.returncode}:\n{done.stdout[-800:]}")
    return python


def meet(host: str, hosts: list[str], port: int, notice_s: float) -> float:
    """When all start, in seconds since the epoch. Raises `StepFailed` when not all come within `MEETING_S`."""
    deadline = time.monotonic() + MEETING_S
    try:
        return _call(hosts, port, deadline, notice_s) if host == hosts[0] else _come(hosts[0], port, deadline)
    except TimeoutError:
        raise StepFailed(
            f"{host}: the {len(hosts)} generators did not meet on port {port} of {hosts[0]} within {MEETING_S} s. In a "
            "VPC, the security group must let its members speak to each other."
        ) from None


def _call(hosts: list[str], port: int, deadline: float, notice_s: float) -> float:
    """The first host's part: wait for the others, tell all."""
    if len(hosts) == 1:
        return time.time() + notice_s
    with socket.create_server(("" if not hosts[0].startswith("127.") else hosts[0], port)) as server:
        come: list[socket.socket] = []
        while len(come) < len(hosts) - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.01))
            come.append(server.accept()[0])
        start_at = time.time() + notice_s
        for connection in come:
            with connection:
                connection.sendall(f"{start_at!r}\n".encode())
    return start_at


def _come(leader: str, port: int, deadline: float) -> float:
    """Another host's part: connect, again and again until the first one listens, and be told."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            with socket.create_connection((leader, port), timeout=left) as connection:
                told = connection.makefile().readline()
        except (ConnectionError, socket.gaierror):
            told = ""
        if told:
            return float(told)
        time.sleep(0.2)


def generate(python: str, work: Path, source: Path, output: Path, place: tuple[int, int], start_at: float) -> None:
    """Run the generator on this host's share; what came of it is left. A signal is passed on: it ends in good order."""
    measured = work / "measured"
    measured.mkdir(parents=True)
    plan = json.loads((source / "plan.json").read_text("utf-8"))
    share = {"share": {"index": place[0], "of": place[1]}, "start_at": start_at}
    (work / "plan.json").write_text(json.dumps({**plan, **share, "payloads": f"{source}/payloads.tar.gz"}), "utf-8")
    command = [python, "-m", "inference_recommender.load_generator", f"{work}/plan.json", "--out", str(measured)]
    with (measured / "generator.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=work, stdout=subprocess.PIPE, stderr=log, env=dict(os.environ), encoding="utf-8"
        )
        signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
        reason = ""
        for line in process.stdout or ():
            print(line, end="", flush=True)
            event = json.loads(line)
            if event["event"] == "finished":
                reason = event["reason"]
        status = process.wait()
    reason = reason or (measured / "generator.log").read_text("utf-8", "replace")[-600:]
    (measured / "exit.json").write_text(json.dumps({"exit_code": status, "reason": reason}), "utf-8")
    leave(measured, output)


def leave(measured: Path, output: Path) -> None:
    """All but the records of single requests, which may be gigabytes: the timeline is what is merged."""
    output.mkdir(parents=True, exist_ok=True)
    for name in LEFT:
        if (measured / name).exists():
            shutil.copyfile(measured / name, output / name)


def tell(file: Path, message: str) -> None:
    print(message, file=sys.stderr, flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(message[-MESSAGE_BYTES:], "utf-8")


if __name__ == "__main__":
    sys.exit(main())
