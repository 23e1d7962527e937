"""The program of each instance of the Processing job: installs a Python, meets the others, runs its share of the load.

    python3 entry.py

It needs only the standard library of Python 3.10, which is the image's, and `containers.archive_reader`, which is
uploaded with it. The generator gets a newer Python and the packages of requirements/generator.txt from the network.
Results are copied to a folder named after the host in the output folder. The generator's exit status is in `exit.json`,
because a job may succeed although its run has no verdict. The reason of a failed job goes to /opt/ml/output/message;
SageMaker shows its first kilobyte.

Start: the first host listens. Every other host connects when it is ready and sends the token of the plan. Once all
have done so, the first host sends each of them the start time. A peer that sends no token within `PEER_S` is
disconnected. The hosts' clocks must agree; AWS keeps them within about a millisecond.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from containers.archive_reader import ArchiveRefused, unpack  # uploaded with this program

PYTHON = "3.11"
LOCKED = ("--require-hashes", "--only-binary", ":all:", "--no-deps")
"""pip's and uv's options that allow only wheels with the hash in the lock."""
MEETING_PORT = 29400
MEETING_S = 1500
NOTICE_S = 5.0
"""Seconds between the meeting and the start, in which the generators start and sign requests."""
PEER_S = 2.0
"""Seconds in which a peer must have sent its token."""
LINE_BYTES = 512
"""The longest line that is read of a peer."""
TOKEN = "token"
"""The file beside the plan that holds the fleet's secret."""
MESSAGE_BYTES = 1000
UNAVAILABLE, UNFORESEEN = 3, 70
RESULTS = ("generator.log", "summary.json", "records.npz", "exit.json")
"""The files that are copied to the output. The last one shows that all are there."""


class StepFailed(Exception):
    pass


def main(
    system: Path = Path("/"), python: str | None = None, port: int = MEETING_PORT, notice_s: float = NOTICE_S
) -> int:
    """`system` is the root of the file system, `python` an interpreter that has the packages; tests give their own."""
    processing = system / "opt/ml/processing"
    source, work, message = processing / "source", processing / "work", system / "opt/ml/output/message"
    try:
        resources = json.loads((system / "opt/ml/config/resourceconfig.json").read_text("utf-8"))
        host, hosts = resources["current_host"], sorted(resources["hosts"])
        with (source / "source.tar.gz").open("rb") as archive:
            unpack(archive, work)
        python = python or install(work)
        start_at = meet(host, hosts, port, notice_s, (source / TOKEN).read_text("ascii").strip())
        place = (hosts.index(host), len(hosts))
        generate(python, work, source, processing / "output" / host, place, start_at)
    except ArchiveRefused as refused:
        tell(message, f"source.tar.gz: {refused}. Start the run again: it uploads it anew.")
        return UNAVAILABLE
    except (StepFailed, OSError) as error:
        tell(message, str(error))
        return UNAVAILABLE
    except Exception as error:
        traceback.print_exc()
        tell(message, f"Unforeseen {type(error).__name__}: {error}. The traceback is in the job's log.")
        return UNFORESEEN
    return 0


def install(work: Path) -> str:
    """Installs a Python for the generator, outside every environment of the image, and returns its path."""
    uv, venv = f"{work}/.uv/bin/uv", f"{work}/.venv"
    python = f"{venv}/bin/python"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *LOCKED, "--target", f"{work}/.uv"]
    for command in (
        [*pip, "--requirement", f"{work}/requirements/uv.txt"],
        [uv, "venv", "--quiet", "--python", PYTHON, venv],
        [
            *(uv, "pip", "install", "--quiet", "--python", python, *LOCKED),
            *("--requirements", f"{work}/requirements/generator.txt"),
        ],
    ):
        print(f"$ {' '.join(command)}", flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
        if done.returncode:
            raise StepFailed(f"Installing ended with exit status {done.returncode}:\n{done.stdout[-800:]}")
    return python


def meet(host: str, hosts: list[str], port: int, notice_s: float, token: str) -> float:
    """Returns when all start, in seconds since the epoch. Raises `StepFailed` when not all meet within `MEETING_S`."""
    deadline = time.monotonic() + MEETING_S
    try:
        if host == hosts[0]:
            return _host_meeting(hosts, port, deadline, notice_s, token)
        return _join_meeting(host, hosts[0], port, deadline, token)
    except TimeoutError:
        raise StepFailed(
            f"{host}: the {len(hosts)} generators did not meet on port {port} of {hosts[0]} within {MEETING_S} s. In a "
            "VPC, the security group must let its members speak to each other."
        ) from None


def _host_meeting(hosts: list[str], port: int, deadline: float, notice_s: float, token: str) -> float:
    """Waits for the other hosts and sends each the start time; the first host does this."""
    arrived: dict[str, socket.socket] = {}
    with ExitStack() as open_sockets:
        server = open_sockets.enter_context(
            socket.create_server((hosts[0] if hosts[0].startswith("127.") else "", port))
        )
        while len(arrived) < len(hosts) - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            peer = open_sockets.enter_context(server.accept()[0])
            if (name := _admitted(_line(peer), hosts[1:], token)) is None:
                peer.close()
                continue
            if name in arrived:  # it has lost its first connection
                arrived[name].close()
            arrived[name] = peer
        start_at = time.time() + notice_s
        for peer in arrived.values():
            peer.sendall(f"{start_at!r}\n".encode())
    return start_at


def _line(peer: socket.socket) -> str:
    """Returns what a peer sends at once, or nothing if it sends nothing in time."""
    peer.settimeout(PEER_S)
    try:
        return peer.recv(LINE_BYTES).decode("ascii").strip()
    except (OSError, ValueError):
        return ""


def _admitted(line: str, expected: list[str], token: str) -> str | None:
    """Returns the host that sends `line`, its name and the token, if it is one of the `expected`."""
    name, _, sent = line.partition(" ")
    return name if hmac.compare_digest(sent.encode(), token.encode()) and name in expected else None


def _join_meeting(host: str, leader: str, port: int, deadline: float, token: str) -> float:
    """Connects to the first host, trying again until it listens, and returns the start time that it sends."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((leader, port), timeout=left) as connection:
                connection.sendall(f"{host} {token}\n".encode())
                received = connection.makefile("rb").readline(LINE_BYTES)
        except (ConnectionError, socket.gaierror):
            received = b""
        if (start_at := _start(received)) is not None:
            return start_at
        time.sleep(0.2)
    raise TimeoutError


def _start(received: bytes) -> float | None:
    """Returns the start time; None if a meeting could not agree on it."""
    try:
        start_at = float(received)
    except ValueError:
        return None
    return start_at if math.isfinite(start_at) and abs(start_at - time.time()) < MEETING_S else None


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
