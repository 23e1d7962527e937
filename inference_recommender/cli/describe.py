"""`describe`: one Inference Recommender job, what it tests and what came of each test so far."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.cli import Commands
from inference_recommender.cli.terminal import number
from inference_recommender.jobs.aws import Aws
from inference_recommender.measurement import Measurement, measurements
from inference_recommender.run_folder import as_json

LOG_WIDTH = 120


def add(commands: Commands) -> None:
    parser = commands.add_parser("describe", help="a job and its tests, as they are now")
    parser.add_argument("job", metavar="NAME", help="as `list` shows it")
    parser.add_argument("--json", action="store_true", help="print job and steps as one JSON document, in AWS's shapes")
    parser.set_defaults(command=_describe)


def _describe(options: argparse.Namespace, people: Console) -> int:
    aws = Aws()
    described, steps = aws.existing_job(options.job), aws.job_steps(options.job)
    if options.json:
        print(as_json({"job": described, "steps": steps}))
        return 0
    console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
    console.print(_head(described), highlight=False, soft_wrap=True, markup=False)
    found = measurements(described, steps, {})
    console.print(_tests(found))
    for one in found:
        if one.failure_reason:
            told = f"{_name(one)}: {one.failure_reason}"
            console.print(told, highlight=False, soft_wrap=True, markup=False)
    return 0


def _head(described: Mapping[str, Any]) -> str:
    about = described["InputConfig"]
    endpoints = ", ".join(one["EndpointName"] for one in about.get("Endpoints", []))
    facts = {
        "job": described["JobName"],
        "kind": described["JobType"],
        "status": described["Status"],
        "reason": described.get("FailureReason"),
        "model": about.get("ModelName") or about.get("ModelPackageVersionArn"),
        "endpoint": endpoints or None,
        "traffic": about.get("TrafficPattern", {}).get("TrafficType"),
        "created": f"{described['CreationTime']:%Y-%m-%d %H:%M:%S %Z}",
        "ended": f"{ended:%Y-%m-%d %H:%M:%S %Z}" if (ended := described.get("CompletionTime")) else None,
    }
    return "\n".join(f"{name:<10}{value}" for name, value in facts.items() if value)


def _tests(found: tuple[Measurement, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("test", overflow="fold")
    for head in ("max inv/min\nper instance", "model latency\nms", "CPU\n%", "memory\n%"):
        table.add_column(head, justify="right")
    for one in found:
        table.add_row(
            _name(one),
            number(one.max_invocations_per_minute, ",.0f"),
            number(one.model_latency_ms, ".4g"),
            number(one.cpu_utilization_percent, ".0f"),
            number(one.memory_utilization_percent, ".0f"),
        )
    return table


def _name(one: Measurement) -> str:
    """By what it ran on, or where the job does not say (an endpoint that exists) by its endpoint."""
    known = one.endpoint_name if one.instance_type == "unknown" else one.instance_type
    return " ".join([known, *(f"{key}={value}" for key, value in one.environment.items())])
