"""Starts the workers, answers "not ready" until all of them have their model, and stops all of them together.

The launcher makes a socket for each worker, all on the same port, before it starts them. It accepts connections from
all of these sockets itself until the workers are ready, and then each worker from its own. The sockets stay open
throughout, so a connection that comes while the launcher hands over waits for its worker, and is neither refused nor
reset.

`run` returns after SIGTERM or SIGINT. A worker that dies takes the others down: SageMaker and ECS start a failed
container again, whereas a server with one core less would stay slow. A worker that lives, but whose cores do not
answer, or that says nothing any more, makes every worker's /ping say so: to start the container again is then for
SageMaker or ECS to decide.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import Unavailable
from .application import Errors, loading
from .connection import Limits
from .http_server import HttpServer, bind
from .telemetry import Reports, Telemetry, ticks

PACKAGES = Path(__file__).parents[len(str(__package__).split("."))]
GRACE_S = 25.0
"""Seconds between SIGTERM and SIGKILL for a worker."""
SILENT_S = 20.0
"""A worker that has told nothing of its cores for so long hangs; it tells every 2 s."""
HAND_OVER_S = 30.0
"""Seconds in which a connection that the launcher has accepted must send its request."""


@dataclass(frozen=True)
class Plan:
    folder: Path
    host: str
    port: int
    groups: Sequence[Sequence[int]]  # NeuronCores of each worker; empty for a worker on CPU
    environments: Sequence[Mapping[str, str]]  # complete, one for each worker
    concurrency: int  # batches that a worker runs at once
    telemetry: Telemetry


class Worker:
    def __init__(self, number: int, cores: Sequence[int], process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.complaint = ""
        self.serving = asyncio.Event()
        self._cores = cores
        self._process = process
        self._heard_s = asyncio.get_running_loop().time()

    async def heard(self) -> "dict[str, Any]":
        """Waits for its next line. Raises `Unavailable` if it fails or ends instead."""
        assert self._process.stdout
        line = await self._process.stdout.readline()
        if not line:
            await self.ended()
        said: dict[str, Any] = json.loads(line)
        if "failed" in said:
            raise self._failure(f"could not load the model: {said['failed']}")
        self._heard_s = asyncio.get_running_loop().time()
        return said

    async def report_to(self, reports: Reports) -> None:
        """Passes its reports on until it ends, which is a failure. Raises `Unavailable`."""
        while True:
            said = await self.heard()
            if "serving" in said:
                self.serving.set()
            elif "complaint" in said:
                self.complaint = said["complaint"]
            else:
                reports.hear(said)

    def unwell(self, now_s: float) -> str:
        """Returns what is wrong with it, in a sentence; empty if nothing is."""
        silent = now_s - self._heard_s > SILENT_S
        complaint = f"has said nothing for {SILENT_S:.0f} s" if silent else self.complaint
        return f"{self._name} {complaint}." if complaint else ""

    async def ended(self) -> None:
        """Waits until it ends, which is a failure. Raises `Unavailable`."""
        code = await self._process.wait()
        raise self._failure(f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}")

    def tell(self, unwell: str) -> None:
        """Lets it serve, and then tells it what is wrong with any worker."""
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

    @property
    def _name(self) -> str:
        cores = self._cores
        where = f" on NeuronCore{'s' if len(cores) > 1 else ''} {', '.join(map(str, cores))}" if cores else ""
        return f"Worker {self.number}{where}"

    def _failure(self, reason: str) -> Unavailable:
        return Unavailable(f"{self._name} {reason}. The server goes down with it, to be started again as a whole.")


async def run(plan: Plan) -> None:
    """Serves until told to end. Raises `Unavailable` where the port is taken or a worker fails."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, told.set)
    listeners = _bind(plan)
    not_ready = HttpServer(loading, Errors().answer, Limits(), keeps_alive=False)
    workers: list[Worker] = []
    try:
        for number, listener in enumerate(listeners):
            workers.append(await _start(plan, number, listener))
            await not_ready.listen(listener)
        await _first(told, _serve(workers, not_ready, Reports(plan.telemetry, _print)))
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))
        await not_ready.drain(0)


async def _serve(workers: Sequence[Worker], not_ready: HttpServer, reports: Reports) -> None:
    """Waits until all workers have loaded, lets them accept connections, and then waits for one to fail."""
    await asyncio.gather(*(worker.heard() for worker in workers))
    handing_over = asyncio.create_task(not_ready.drain(HAND_OVER_S))
    for worker in workers:
        worker.tell("")
    listening = [worker.report_to(reports) for worker in workers]
    telling = (_tell_that_all_serve(workers), tell_of_the_unwell(workers), reports.tell_each_period())
    await asyncio.gather(handing_over, *telling, *listening)


async def _tell_that_all_serve(workers: Sequence[Worker]) -> None:
    for worker in workers:
        await worker.serving.wait()
    print(f"Serving with {len(workers)} worker{'s' if len(workers) > 1 else ''}.", file=sys.stderr, flush=True)


async def tell_of_the_unwell(workers: Sequence[Worker]) -> None:
    """Tells every worker what is wrong with any, whenever that changes."""
    told = ""
    async for _ in ticks(1.0, first_after_s=1.0):
        now_s = asyncio.get_running_loop().time()
        unwell = " ".join(filter(None, (worker.unwell(now_s) for worker in workers)))
        if unwell != told:
            told = unwell
            print(unwell or "All workers answer again.", file=sys.stderr, flush=True)
            for worker in workers:
                worker.tell(unwell)


def _print(line: str) -> None:
    print(line, flush=True)


def _bind(plan: Plan) -> list[socket.socket]:
    """Returns a listening socket for each worker."""
    try:
        return [bind(plan.host, plan.port) for _ in plan.groups]
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable(
            f"Port {plan.port} cannot be listened on: {reason}. Free it, or set PORT to another."
        ) from error


async def _start(plan: Plan, number: int, listener: socket.socket) -> Worker:
    environment = plan.environments[number]
    path = os.pathsep.join(filter(None, [str(PACKAGES), environment.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", f"{__package__}.worker", str(plan.folder), str(listener.fileno()), str(plan.concurrency)),
        env={**environment, "PYTHONPATH": path},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        pass_fds=[listener.fileno()],
        start_new_session=True,  # the launcher alone passes on a signal to the process group
    )
    return Worker(number, plan.groups[number], process)


async def _first(told: asyncio.Event, serving: Coroutine[Any, Any, None]) -> None:
    """Runs `serving` until told to end. Raises what `serving` raises."""
    tasks = {asyncio.create_task(told.wait()), asyncio.create_task(serving)}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    for task in done:
        task.result()
