"""Starts the workers, answers "not ready" until all of them have their model, and stops all of them together.

`run` returns after SIGTERM or SIGINT. A worker that dies takes the others down: SageMaker and ECS start a failed
container again, whereas a server with one core less would stay slow.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from ..errors import Unavailable
from . import application
from .telemetry import Reports, Telemetry

PACKAGES = Path(__file__).parents[len(str(__package__).split("."))]
GRACE_S = 25.0
"""Seconds between SIGTERM and SIGKILL for a worker."""


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
        self._cores = cores
        self._process = process

    async def heard(self) -> "dict[str, Any]":
        """Waits for its next line. Raises `Unavailable` if it fails or ends instead."""
        assert self._process.stdout
        line = await self._process.stdout.readline()
        if not line:
            await self.ended()
        said: dict[str, Any] = json.loads(line)
        if "failed" in said:
            raise self._failure(f"could not load the model: {said['failed']}")
        return said

    async def report_to(self, reports: Reports) -> None:
        """Passes its reports on until it ends, which is a failure. Raises `Unavailable`."""
        while True:
            reports.hear(await self.heard())

    async def ended(self) -> None:
        """Waits until it ends, which is a failure. Raises `Unavailable`."""
        code = await self._process.wait()
        raise self._failure(f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}")

    def go(self) -> None:
        assert self._process.stdin
        self._process.stdin.write(b"serve\n")

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
        cores = self._cores
        where = f" on NeuronCore{'s' if len(cores) > 1 else ''} {', '.join(map(str, cores))}" if cores else ""
        return Unavailable(
            f"Worker {self.number}{where} {reason}. The server goes down with it, to be started again as a whole."
        )


async def run(plan: Plan) -> None:
    """Serves until told to end. Raises `Unavailable` where the port is taken or a worker fails."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, told.set)
    not_ready = await _answer_not_ready(plan)
    workers: list[Worker] = []
    try:
        for number in range(len(plan.groups)):
            workers.append(await _start(plan, number))
        await _first(told, _serve(workers, not_ready, Reports(plan.telemetry, _print)))
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))
        await not_ready.cleanup()


async def _serve(workers: Sequence[Worker], not_ready: web.AppRunner, reports: Reports) -> None:
    """Waits until all workers have loaded, stops listening, lets all of them listen, and then waits for one to fail.

    The order matters: a connection waiting at a socket that is being closed is reset, which must not happen once
    another socket has answered "ready".
    """
    await asyncio.gather(*(worker.heard() for worker in workers))
    await not_ready.cleanup()
    for worker in workers:
        worker.go()
    await asyncio.gather(*(worker.heard() for worker in workers))
    print(f"Serving with {len(workers)} worker{'s' if len(workers) > 1 else ''}.", file=sys.stderr, flush=True)
    await asyncio.gather(reports.tell_each_period(), *(worker.report_to(reports) for worker in workers))


def _print(line: str) -> None:
    print(line, flush=True)


async def _answer_not_ready(plan: Plan) -> web.AppRunner:
    runner = web.AppRunner(application.loading(), access_log=None, shutdown_timeout=0.5)  # every answer is immediate
    await runner.setup()
    try:
        await web.TCPSite(runner, plan.host, plan.port, reuse_port=True).start()
    except OSError as error:
        await runner.cleanup()
        reason = error.strerror or str(error)
        raise Unavailable(
            f"Port {plan.port} cannot be listened on: {reason}. Free it, or set PORT to another."
        ) from error
    return runner


async def _start(plan: Plan, number: int) -> Worker:
    environment = plan.environments[number]
    path = os.pathsep.join(filter(None, [str(PACKAGES), environment.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", f"{__package__}.worker", str(plan.folder), plan.host, str(plan.port), str(plan.concurrency)),
        env={**environment, "PYTHONPATH": path},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
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
