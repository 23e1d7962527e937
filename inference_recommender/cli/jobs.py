"""`list`, `describe` and `stop`: the Inference Recommender jobs of the account and region.

`describe` tells what came of each test so far; the service keeps what a stopped job measured.
"""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.measure.aws import Aws
from inference_recommender.measure.job_wait import TERMINAL, stop_and_wait
from inference_recommender.measurement import Measurement, measurements
from inference_recommender.output import (
    MISSING,
    Commands,
    add_command,
    number,
    stdout_console,
    tell,
)
from inference_recommender.report.candidates import cores, cpu_utilization
from inference_recommender.run_folder import as_json
from workloads.instances import instance_shape


def add_list(commands: Commands) -> None:
    parser = add_command(commands, "list", "the jobs of this account and region, the newest first", "list spellcheck")
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD", help="only jobs whose name contains the workload's")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="how many at most; default: 20")
    parser.add_argument("--json", action="store_true", help="print them as one JSON document")
    parser.set_defaults(command=_list)


def _list(options: argparse.Namespace, stderr: Console) -> int:
    jobs = Aws().jobs(options.workload and options.workload.replace("_", "-"), options.limit)
    if options.json:
        print(as_json(jobs))
        return 0
    if not jobs:
        tell(stderr, "No jobs.")
        return 0
    table = Table(box=SIMPLE_HEAD)
    for head in ("job", "kind", "status", "created, UTC", "model"):
        table.add_column(head, overflow="fold")
    for job in jobs:
        model = job.get("ModelName") or job.get("ModelPackageVersionArn", "").rpartition("model-package/")[2]
        created = f"{job['CreationTime']:%Y-%m-%d %H:%M}"
        table.add_row(job["JobName"], job["JobType"], job["Status"], created, model)
    stdout_console().print(table)
    return 0


def add_describe(commands: Commands) -> None:
    parser = add_command(
        commands, "describe", "a job and its tests, as they are now", "describe spellcheck-production-1"
    )
    parser.add_argument("job", metavar="NAME", help="as `list` shows it")
    parser.add_argument("--json", action="store_true", help="print job and steps as one JSON document, in AWS's shapes")
    parser.set_defaults(command=_describe)


def _describe(options: argparse.Namespace, stderr: Console) -> int:
    aws = Aws()
    described, steps = aws.existing_job(options.job), aws.job_steps(options.job)
    if options.json:
        print(as_json({"job": described, "steps": steps}))
        return 0
    console = stdout_console()
    tell(console, _head(described))
    tests = measurements(described, steps, {})
    machine = aws.measured_on(described["JobArn"])
    console.print(_table(tests, cores(machine) if machine else None))
    for test in tests:
        if test.failure_reason:
            tell(console, f"{_name(test)}: {test.failure_reason}")
    return 0


def _head(described: Mapping[str, Any]) -> str:
    tested = described["InputConfig"]
    endpoints = ", ".join(endpoint["EndpointName"] for endpoint in tested.get("Endpoints", []))
    facts = {
        "job": described["JobName"],
        "kind": described["JobType"],
        "status": described["Status"],
        "reason": described.get("FailureReason"),
        "model": tested.get("ModelName") or tested.get("ModelPackageVersionArn"),
        "endpoint": endpoints or None,
        "traffic": tested.get("TrafficPattern", {}).get("TrafficType"),
        "created": f"{described['CreationTime']:%Y-%m-%d %H:%M:%S %Z}",
        "ended": f"{ended:%Y-%m-%d %H:%M:%S %Z}" if (ended := described.get("CompletionTime")) else None,
    }
    return "\n".join(f"{name:<10}{value}" for name, value in facts.items() if value)


def _table(tests: tuple[Measurement, ...], local_vcpus: int | None) -> Table:
    """Returns a row for each test; `local_vcpus` is of the machine that stands in for every instance type, if any."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("test", overflow="fold")
    for head in ("max inv/min\nper instance", "model latency\nms", "CPU\n%", "memory\n%"):
        table.add_column(head, justify="right")
    for test in tests:
        table.add_row(
            _name(test),
            number(test.max_invocations_per_minute, ",.0f"),
            number(test.model_latency_ms, ".4g"),
            cpu_utilization(test.cpu_utilization_percent, local_vcpus or _vcpus(test.instance_type)) or MISSING,
            number(test.memory_utilization_percent, ".0f"),
        )
    return table


def _vcpus(instance_type: str) -> int | None:
    shape = instance_shape(instance_type)
    return shape.vcpus if shape else None


def _name(test: Measurement) -> str:
    """Returns what the test ran on: the endpoint's name where the job does not say the type (an existing endpoint)."""
    known = test.endpoint_name if test.instance_type == "unknown" else test.instance_type
    return " ".join([known, *(f"{key}={value}" for key, value in test.environment.items())])


def add_stop(commands: Commands) -> None:
    parser = add_command(commands, "stop", "stop a job and wait until it has ended", "stop spellcheck-production-1")
    parser.add_argument("job", metavar="NAME", help="as `list` shows it")
    parser.add_argument("--json", action="store_true", help="print name and status as one JSON document")
    parser.set_defaults(command=_stop)


def _stop(options: argparse.Namespace, stderr: Console) -> int:
    aws = Aws()
    aws.existing_job(options.job)
    status = stop_and_wait(aws, options.job)["Status"]
    if options.json:
        print(json.dumps({"job_name": options.job, "status": status}))
    else:
        print(f"{options.job}: {status}")
    if status not in TERMINAL:
        stderr.print("It has been told to stop and takes its time: `describe` shows when it has.", style="yellow")
    return 0
