"""The program of each instance of the Processing job: installs a Python, meets the others, runs its share of the load.

    python3 entry.py

It uses the standard library alone and Python 3.10, because the image's own Python starts it. The generator gets the
Python and the packages that constraints.txt was resolved for, from the network. Results are copied to a folder named
after the host below the output folder; the generator's exit status is in `exit.json`, because a run without a verdict
is still a job that did its work. The reason of a failed job goes to /opt/ml/output/message, of which SageMaker shows
the first kilobyte.

The meeting: the first host listens, every other host connects when it is ready, and when all have connected each is
told when to start. The hosts' clocks must agree; AWS keeps them within a millisecond or so of each other.
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
"""Seconds between the meeting and the start, in which the generators calibrate and sign requests."""
MESSAGE_BYTES = 1000
RESULTS = ("generator.log", "summary.json", "timeline.npz", "exit.json")
"""The files that are copied to the output. The last one tells that all are there."""


class StepFailed(Exception):
    pass


def main(
    system: Path = Path("/"), python: str | None = None, port: int = MEETING_PORT, notice_s: float = NOTICE_S
) -> int:
    """`system` is the root of the file system, `python` an interpreter that has the packages; tests give their own."""
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
    """Installs a Python for the generator, outside every environment of the image, and returns its path."""
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
    """Returns when all start, in seconds since the epoch. Raises `StepFailed` when not all meet within `MEETING_S`."""
    deadline = time.monotonic() + MEETING_S
    try:
        return (
            _host_meeting(hosts, port, deadline, notice_s)
            if host == hosts[0]
            else _join_meeting(hosts[0], port, deadline)
        )
    except TimeoutError:
        raise StepFailed(
            f"{host}: the {len(hosts)} generators did not meet on port {port} of {hosts[0]} within {MEETING_S} s. In a "
            "VPC, the security group must let its members speak to each other."
        ) from None


def _host_meeting(hosts: list[str], port: int, deadline: float, notice_s: float) -> float:
    """Waits for the other hosts and tells each when to start; the first host does this."""
    if len(hosts) == 1:
        return time.time() + notice_s
    with socket.create_server(("" if not hosts[0].startswith("127.") else hosts[0], port)) as server:
        arrived: list[socket.socket] = []
        while len(arrived) < len(hosts) - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.01))
            arrived.append(server.accept()[0])
        start_at = time.time() + notice_s
        for connection in arrived:
            with connection:
                connection.sendall(f"{start_at!r}\n".encode())
    return start_at


def _join_meeting(leader: str, port: int, deadline: float) -> float:
    """Connects to the first host, trying again until it listens, and returns the start that it tells."""
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
    """Runs the generator on this host's share and copies its results. SIGTERM is passed on: it ends in good order."""
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
    copy_results(measured, output)


def copy_results(measured: Path, output: Path) -> None:
    """Copies all but the records of single requests, which may be gigabytes: merging needs the timeline alone."""
    output.mkdir(parents=True, exist_ok=True)
    for name in RESULTS:
        if (measured / name).exists():
            shutil.copyfile(measured / name, output / name)


def tell(file: Path, message: str) -> None:
    print(message, file=sys.stderr, flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(message[-MESSAGE_BYTES:], "utf-8")


if __name__ == "__main__":
    sys.exit(main())
