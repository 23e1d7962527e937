"""Starts the workers, answers "not ready" until all have their model, and stops them together.

The launcher makes one socket per worker, all on the same port, and accepts connections from all of them until the
workers are ready. The sockets stay open, so a connection during the hand-over waits for its worker and is not refused.

A worker that ends stops the others: SageMaker and ECS restart a failed container, while a server with one core less
would stay slow. If a worker hangs or its cores do not answer, /ping of every worker reports it, and SageMaker or ECS
decides whether to restart the container.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..container_errors import Unavailable
from .application import ErrorResponses, loading
from .http_server import HttpLimits, NeuronHttpServer, bind
from .telemetry import TaskReports, ticks

PACKAGES = Path(__file__).parents[len(str(__package__).split("."))]
GRACE_S = 25.0
"""Seconds between SIGTERM and SIGKILL for a worker."""
SILENT_S = 20.0
"""A worker reports on its cores every 2 s. One that is silent for this long hangs."""
HAND_OVER_S = 30.0
"""Seconds in which a connection that the launcher accepted must send its request."""


@dataclass(frozen=True)
class ServerPlan:
    folder: Path
    host: str
    port: int
    groups: Sequence[Sequence[int]]  # NeuronCores of each worker; empty for a worker on CPU
    environments: Sequence[Mapping[str, str]]  # complete, one per worker
    concurrency: int  # batches that a worker runs at once


class WorkerProcess:
    def __init__(self, number: int, cores: Sequence[int], process: asyncio.subprocess.Process) -> None:
        self.complaint = ""
        self.serving = asyncio.Event()
        where = f" on NeuronCore{'s' if len(cores) > 1 else ''} {', '.join(map(str, cores))}" if cores else ""
        self._name = f"Worker {number}{where}"
        self._process = process
        self._last_line_s = asyncio.get_running_loop().time()

    async def read(self) -> "dict[str, Any]":
        """Waits for its next line. Raises `Unavailable` if it fails or ends."""
        assert self._process.stdout
        if not (line := await self._process.stdout.readline()):
            code = await self._process.wait()
            raise self._failure(f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}")
        report: dict[str, Any] = json.loads(line)
        if "failed" in report:
            raise self._failure(f"could not load the model: {report['failed']}")
        self._last_line_s = asyncio.get_running_loop().time()
        return report

    async def read_reports(self, reports: TaskReports) -> None:
        """Reads until it ends, which raises `Unavailable`."""
        while True:
            report = await self.read()
            if "serving" in report:
                self.serving.set()
            elif "complaint" in report:
                self.complaint = report["complaint"]
            else:
                reports.add(report)

    def unwell(self, now_s: float) -> str:
        """Returns its fault as a sentence; empty if it has none."""
        silent = now_s - self._last_line_s > SILENT_S
        complaint = f"has sent no report for {SILENT_S:.0f} s" if silent else self.complaint
        return f"{self._name} {complaint}." if complaint else ""

    def send(self, unwell: str) -> None:
        """Sends the faults of all workers. The first line lets it serve."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"unwell": unwell}).encode() + b"\n")

    async def stop(self) -> None:
        """Sends SIGTERM, then SIGKILL after GRACE_S."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), GRACE_S)
        except asyncio.TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _failure(self, reason: str) -> Unavailable:
        return Unavailable(f"{self._name} {reason}. The server stops, so that the container is started again.")


async def run(plan: ServerPlan) -> None:
    """Serves until SIGTERM or SIGINT. Raises `Unavailable` if the port is taken or a worker fails."""
    not_ready = NeuronHttpServer(loading, ErrorResponses().answer, HttpLimits(), keeps_alive=False)
    workers: list[WorkerProcess] = []
    serving = asyncio.create_task(_serve(plan, workers, not_ready))
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, serving.cancel)
    try:
        with suppress(asyncio.CancelledError):
            await serving
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))
        await not_ready.drain(0)


async def _serve(plan: ServerPlan, workers: "list[WorkerProcess]", not_ready: NeuronHttpServer) -> None:
    """Starts the workers, waits until all have loaded, lets them accept connections, and waits for one to fail."""
    for number, listener in enumerate(_bind(plan)):
        workers.append(WorkerProcess(number, plan.groups[number], await _start(plan, number, listener)))
        await not_ready.listen(listener)
    await asyncio.gather(*(worker.read() for worker in workers))
    handing_over = asyncio.create_task(not_ready.drain(HAND_OVER_S))
    for worker in workers:
        worker.send("")
    reports = TaskReports(plan.environments[0], lambda line: print(line, flush=True))
    reading = [worker.read_reports(reports) for worker in workers]
    await asyncio.gather(handing_over, _log_start(workers), send_unwell(workers), reports.print_each_period(), *reading)


async def _log_start(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        await worker.serving.wait()
    print(f"Serving with {len(workers)} worker{'s' if len(workers) > 1 else ''}.", file=sys.stderr, flush=True)


async def send_unwell(workers: Sequence[WorkerProcess]) -> None:
    """Sends the faults of all workers to each, whenever they change."""
    sent = ""
    async for _ in ticks(1.0, first_after_s=1.0):
        now_s = asyncio.get_running_loop().time()
        unwell = " ".join(filter(None, (worker.unwell(now_s) for worker in workers)))
        if unwell != sent:
            sent = unwell
            print(unwell or "All workers answer again.", file=sys.stderr, flush=True)
            for worker in workers:
                worker.send(unwell)


def _bind(plan: ServerPlan) -> list[socket.socket]:
    """Returns a listening socket for each worker."""
    try:
        return [bind(plan.host, plan.port) for _ in plan.groups]
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable(f"Cannot listen on port {plan.port}: {reason}. Free it, or set PORT to another.") from error


async def _start(plan: ServerPlan, number: int, listener: socket.socket) -> asyncio.subprocess.Process:
    environment = plan.environments[number]
    path = os.pathsep.join(filter(None, [str(PACKAGES), environment.get("PYTHONPATH")]))
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", f"{__package__}.worker", str(plan.folder), str(listener.fileno()), str(plan.concurrency)),
        env={**environment, "PYTHONPATH": path},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        pass_fds=[listener.fileno()],
        start_new_session=True,  # only the launcher forwards a signal to the process group
    )
