"""Serves the model in MODEL_FOLDER (/opt/ml/model) on HOST:PORT (0.0.0.0:8080, or SAGEMAKER_BIND_TO_PORT).

With METRICS_STACK and METRICS_WORKLOAD it prints metrics for CloudWatch Logs every METRICS_PERIOD_S seconds (60).
NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES limits the NeuronCores; the default is all.
Exit codes: 0 stopped by a signal; 2 a setting is wrong; 3 no model, no device, or a worker failed; 70 internal error.

The launcher binds one socket per worker, all to the same port. Connections are refused until all workers have their
model and listen. A worker that ends, or sends no line for `SILENT_S`, stops the others: SageMaker and ECS restart a
failed container, while a server with one core less would stay slow.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from ..container_errors import ContainerError, Unavailable, exit_code_of
from ..encoder.engines.load_engine import NEURON_GRAPHS
from ..encoder.settings import Settings
from ..worker_process import how_it_ended, worker_environment
from . import placement
from .http_server import bind
from .placement import ServerSettings
from .telemetry import TaskReports

GRACE_S = 25.0  # Seconds between SIGTERM and SIGKILL for a worker
SILENT_S = 20.0
"""A serving worker writes a line every 2 s. One that is silent for this long hangs."""


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
        where = f" on NeuronCore{'s' if len(cores) > 1 else ''} {', '.join(map(str, cores))}" if cores else ""
        self._name = f"Worker {number}{where}"
        self._process = process

    async def read(self, within_s: "float | None" = None) -> "dict[str, Any]":
        """Waits for its next line. Raises `Unavailable` if it fails, ends or takes longer."""
        assert self._process.stdout
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), within_s)
        except asyncio.TimeoutError:
            raise self._failure(f"has sent no report for {SILENT_S:.0f} s") from None
        report: dict[str, Any] = json.loads(line) if line else {"failed": how_it_ended(await self._process.wait())}
        if "failed" in report:
            raise self._failure(report["failed"])
        return report

    async def read_reports(self, reports: TaskReports) -> None:
        """Reads until it ends, which raises `Unavailable`."""
        while True:
            if report := await self.read(SILENT_S):
                reports.add(report)

    def serve(self) -> None:
        """Lets it accept connections."""
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
        return Unavailable(f"{self._name} {reason}. The server stops, so that the container is started again.")


def main() -> int:
    uvloop.run(run(plan(os.environ)))
    return 0


def plan(environment: Mapping[str, str]) -> ServerPlan:
    """Reads the model's settings and the machine's placement. Raises `ContainerError`."""
    folder = Path(environment.get("MODEL_FOLDER", "/opt/ml/model"))
    try:  # once here, so that not every worker reports the error
        settings = Settings.load(folder / "settings.json")
        serving = ServerSettings.load(folder / "server.json")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            f"{folder}: its settings cannot be read ({type(error).__name__}: {error}). A model's folder has "
            "settings.json, server.json, tokenizer.json and the compiled model."
        ) from error
    port = environment.get("PORT") or environment.get("SAGEMAKER_BIND_TO_PORT", "8080")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ContainerError(f"PORT: got '{port}'. Allowed: 1 to 65535.")
    groups: list[list[int]] = [[]] * serving.model_instances
    if any(folder.glob(NEURON_GRAPHS)):
        per_chip = placement.cores_per_chip()
        available = placement.available(environment, placement.count_chips(), per_chip)
        if serving.placement == "data-parallel":
            at_least = -(-serving.max_batch_size // settings.batch_size)
            groups = placement.shares(available, per_chip, at_least, len(os.sched_getaffinity(0)))
        else:
            groups = placement.groups(available, serving.pipeline_cores)
    return ServerPlan(
        folder=folder,
        host=environment.get("HOST", "0.0.0.0"),
        port=int(port),
        groups=groups,
        environments=[worker_environment(environment, placement.variables(each, serving.placement)) for each in groups],
        concurrency=serving.pipeline_cores,
    )


async def run(plan: ServerPlan) -> None:
    """Serves until SIGTERM or SIGINT. Raises `Unavailable` if the port is taken or a worker fails."""
    workers: list[WorkerProcess] = []
    serving = asyncio.create_task(_serve(plan, workers))
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, serving.cancel)
    try:
        with suppress(asyncio.CancelledError):
            await serving
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))


async def _serve(plan: ServerPlan, workers: "list[WorkerProcess]") -> None:
    try:
        listeners = [bind(plan.host, plan.port) for _ in plan.groups]
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable(f"Cannot listen on port {plan.port}: {reason}. Free it, or set PORT to another.") from error
    for number, listener in enumerate(listeners):
        arguments = (str(plan.folder), str(listener.fileno()), str(plan.concurrency))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{__package__}.worker", *arguments),
            env=plan.environments[number],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # only the launcher forwards a signal to the process group
        )
        workers.append(WorkerProcess(number, plan.groups[number], process))
        listener.close()
    await asyncio.gather(*(worker.read() for worker in workers))
    for worker in workers:
        worker.serve()
    await asyncio.gather(*(worker.read() for worker in workers))
    print(f"Serving with {len(workers)} worker{'s' if len(workers) > 1 else ''}.", file=sys.stderr, flush=True)
    reports = TaskReports(plan.environments[0], lambda line: print(line, flush=True))
    await asyncio.gather(reports.print_each_period(), *(worker.read_reports(reports) for worker in workers))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
