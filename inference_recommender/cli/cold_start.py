"""`cold-start`: how long a new server takes until it answers within the objective, stage after stage."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.cli import arguments
from inference_recommender.experiment.aws import ExperimentAws
from inference_recommender.measure.aws import deployed_workload
from inference_recommender.measure.first_answer import GIVE_UP_S, start_of
from inference_recommender.measure.load_test import machine_description
from inference_recommender.measure.start_stages import Stages, cold_start, stages
from inference_recommender.measure.target import ARCHIVE_KEY, Described, TargetAws
from inference_recommender.measure.temporary_endpoint import EndpointSpec, temporary_endpoint
from inference_recommender.output import Commands, add_command, number, stdout_console, tell
from inference_recommender.payloads import request_bodies
from inference_recommender.report.rewrite import rewrite
from inference_recommender.report.sections import STAGES, cold_start_text
from workloads import ROOT, ColdStart, Interrupted, Recommendation, Unavailable, WorkloadFolder
from workloads.files import from_here

NOT_OF_A_NEW_ENDPOINT = ("InitialInstanceCount", "ManagedInstanceScaling")
"""Members of the deployed variant that an endpoint of one instance does without."""

UNDER_WAY = "The endpoint under way is deleted; `python -m inference_recommender sweep` deletes it later if it is not."

DESCRIPTION = """Makes endpoints like the deployed one, of one instance, one after another, and times each stage of
their start: the archive fetched and unpacked, the server started, its models loaded and warmed up, the first answer
within the objective. Each is deleted after that answer; on AWS its minutes cost money. The medians go into the
workload's recommendation, for review, where that is of the same archive: simulate takes them in the place of its
assumptions. The stages are read from the endpoint's own log and times; SageMaker tells of no fetching and unpacking, so
there the time from the request to the container's first line is one figure, called provisioning.

With --endpoint the servers of an endpoint that is there already are read, as far as their logs go; nothing is made,
asked or written. Exit code 1: no answer within the objective came in two minutes."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands, "cold-start", "how long a new server takes until it answers", "cold-start spellcheck", DESCRIPTION
    )
    parser.add_argument("workload", metavar="WORKLOAD")
    parser.add_argument("--endpoint", metavar="NAME", help="read its servers' logs; default: make endpoints like it")
    parser.add_argument("--starts", type=arguments.count, default=3, metavar="N", help="endpoints to make; default: 3")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="where run folders are")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_cold_start)


def _cold_start(options: argparse.Namespace, stderr: Console) -> int:
    aws = ExperimentAws()
    folder = deployed_workload(options.workload, None, aws, options.endpoint)
    name = options.endpoint or aws.endpoint_name(folder.workload.stack_name)
    described = TargetAws().described(name)
    variant, archive = _variant(described), ARCHIVE_KEY.search(described.archive_url)
    found = _read(aws, name) if options.endpoint else _started(aws, folder, variant, options.starts, stderr)
    local = aws.is_on_this_machine()
    told = cold_start(
        found,
        measured_on="local" if local else "sagemaker",
        machine=machine_description() if local else f"SageMaker, asked from {machine_description()}",
        instance_type=variant["InstanceType"],
        archive_sha256=archive[1] if archive else None,
        measured_at=datetime.now(UTC),
    )
    if options.json:
        print(told.model_dump_json(indent=2))
    else:
        _show(told, folder)
    if not options.endpoint:
        _keep(told, folder, options.runs, stderr)
        if len(found) < options.starts:
            raise Interrupted(f"Interrupted: {len(found)} of {options.starts} starts were measured. {UNDER_WAY}")
        return 0 if all(start.total_s is not None for start in found) else 1
    return 0


def _variant(described: Described) -> Mapping[str, Any]:
    """Returns the only variant of an endpoint. Raises `Unavailable` where its start is none of one server."""
    variants = described.config["ProductionVariants"]
    if len(variants) != 1 or "InstanceType" not in variants[0]:
        name = described.endpoint["EndpointName"]
        raise Unavailable(f"{name}: a start is timed of one variant, on instances of one type. Name such an endpoint.")
    only: Mapping[str, Any] = variants[0]
    return only


def _read(aws: ExperimentAws, endpoint: str) -> list[Stages]:
    """Raises `Unavailable` where no log tells of a start."""
    found = [stages(log) for log in aws.endpoint_log(endpoint)]
    known = [each for each in found if each.load_s is not None]
    if not known:
        raise Unavailable(
            f"{endpoint}: no line of its log in CloudWatch Logs tells when a server loaded its models. Triton's log "
            "must have its information lines: leave SAGEMAKER_TRITON_LOG_INFO as it is."
        )
    return known


def _started(
    aws: ExperimentAws, folder: WorkloadFolder, variant: Mapping[str, Any], count: int, stderr: Console
) -> list[Stages]:
    """Starts so many endpoints of one instance of a variant, fewer where Ctrl-C comes after the first. Raises
    `Unavailable` or `Interrupted`.
    """
    objective, rows = folder.workload.latency_objective, folder.payloads()
    bodies = request_bodies(rows, objective.rows_per_invocation)
    spec = EndpointSpec(
        model=variant["ModelName"],
        variant={key: value for key, value in variant.items() if key not in NOT_OF_A_NEW_ENDPOINT},
        lives_s=GIVE_UP_S,
    )
    found: list[Stages] = []
    try:
        for done in range(count):
            tell(stderr, f"Start {done + 1} of {count}: an endpoint of 1 × {variant['InstanceType']}")
            with temporary_endpoint(aws, spec) as name:
                found.append(start_of(aws, name, bodies, objective.model_latency_ms))
    except KeyboardInterrupt:
        if not found:
            raise Interrupted(
                f"Interrupted: 0 of {count} starts were measured, and nothing was written. {UNDER_WAY}"
            ) from None
    return found


def _keep(told: ColdStart, folder: WorkloadFolder, runs: Path, stderr: Console) -> None:
    """Writes it into the workload's recommendation, where that is of the same archive and place."""
    file = folder.recommendation_file
    recommendation = Recommendation.from_json(file) if file.exists() else None
    if recommendation is None or (why := _unlike(told, recommendation)):
        why = "does not exist" if recommendation is None else why
        tell(stderr, f"Nothing was written: {from_here(file)} {why}.", "yellow")
        return
    report = rewrite(recommendation.model_copy(update={"cold_start": told}), file, runs)
    if report is not None:
        tell(stderr, f"Report: {from_here(report)}")
    tell(stderr, f"Written: {from_here(file)}. `simulate` uses it.")


def _unlike(told: ColdStart, recommendation: Recommendation) -> str | None:
    """Returns why the recommendation is of something else than what was started, or None."""
    if told.archive_sha256 != recommendation.archive_sha256:
        return "is of another archive"
    origin = recommendation.provenance.measured_on
    return None if told.measured_on == origin else f"was measured elsewhere ({origin}, and this on {told.measured_on})"


def _show(told: ColdStart, folder: WorkloadFolder) -> None:
    console = stdout_console()
    table = Table(
        title=f"{folder.workload.name} on {told.instance_type}, {told.starts} start{'s' * (told.starts != 1)}",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("stage")
    for head in ("seconds", "shortest", "longest"):
        table.add_column(head, justify="right")
    for key, name in STAGES:
        figures = (getattr(told, key), *told.ranges_s.get(key, (None, None)))
        table.add_row(name, *(number(value, ".3f") for value in figures))
    console.print(table)
    tell(console, cold_start_text(told))
