"""`run --cold-start`: how long a new endpoint takes until it answers within the objective, by stages."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from aws_api.sagemaker import SageMakerAccount
from aws_api.temporary_endpoint import EndpointSpec, temporary_endpoint
from inference_recommender.kserve import Body
from inference_recommender.measure.start_stages import GIVE_UP_S, cold_start, log_lines, stages, start_of
from inference_recommender.measure.system import system_of_endpoint
from inference_recommender.output import tell
from inference_recommender.payloads import header_size, request_bodies
from inference_recommender.report.document import Report, objective_text
from inference_recommender.report.run_report import rewrite
from inference_recommender.report.sections import cold_start_table, present
from inference_recommender.report.text import print_result
from workloads import ColdStart, Interrupted, Recommendation, Unavailable, WorkloadFolder
from workloads.files import from_here
from workloads.recommendation import Stages

STARTS = 3
NOT_OF_A_NEW_ENDPOINT = ("InitialInstanceCount", "ManagedInstanceScaling")
"""Members of the deployed variant that an endpoint of one instance does not need."""


def run_cold_start(
    options: argparse.Namespace, account: SageMakerAccount, folder: WorkloadFolder, stderr: Console
) -> int:
    """Starts endpoints like the deployed one and adds the result to the recommendation. With --endpoint, reads the log
    of that endpoint's own start instead and writes nothing.
    """
    name = options.endpoint or account.endpoint_name(folder.workload.stack_name)
    described = account.endpoint_description(name)
    system = system_of_endpoint(described, account.region)
    if options.endpoint:
        starts = _read(account, name)
    else:
        starts = _started(account, folder, described.config["ProductionVariants"][0], stderr)
    result = cold_start(starts, system, system.archive_sha256, datetime.now(UTC))
    is_known = result.total_s is not None
    report = Report(
        kind="cold-start",
        name=f"{result.starts} start{'s' * (result.starts != 1)} of {result.instance_type}",
        workload=folder.workload.name,
        objective=objective_text(folder.workload.latency_objective),
        verdict="met" if is_known else "unknown",
        decision=f"The time until the first answer is {'known' if is_known else 'unknown'}.",
        tables=present([cold_start_table(result, detail=False)]),
    )
    print_result(report, json=options.json, document=result)
    if options.endpoint:
        return 0
    _keep(result, folder, options.runs, stderr)
    if len(starts) < STARTS:
        raise Interrupted(f"Interrupted: {len(starts)} of {STARTS} starts were measured.")
    return 0 if all(start.total_s is not None for start in starts) else 1


def _read(account: SageMakerAccount, endpoint: str) -> list[Stages]:
    """Raises `Unavailable` if no log reports a start."""
    found = [stages(log_lines(events)) for events in account.endpoint_log(endpoint)]
    known = [each for each in found if each.load_s is not None]
    if not known:
        raise Unavailable(
            f"{endpoint}: its log in CloudWatch Logs does not show when a server loaded its models. Set "
            "SAGEMAKER_TRITON_LOG_INFO=true in the model's environment."
        )
    return known


def _started(
    account: SageMakerAccount, folder: WorkloadFolder, variant: Mapping[str, Any], stderr: Console
) -> list[Stages]:
    """Starts `STARTS` endpoints of one instance, one after another; fewer if Ctrl-C comes after the first. Raises
    `Unavailable` or `Interrupted`.
    """
    objective = folder.workload.latency_objective
    size = header_size(folder.workload.model.fields, objective)
    bodies = [Body(content=each, header_size=size) for each in request_bodies(folder.payloads(), objective)]
    members = {key: value for key, value in variant.items() if key not in NOT_OF_A_NEW_ENDPOINT}
    starts: list[Stages] = []
    try:
        for number_of_start in range(1, STARTS + 1):
            tell(stderr, f"Start {number_of_start} of {STARTS}: an endpoint of 1 × {variant['InstanceType']}")
            spec = EndpointSpec(model=variant["ModelName"], variant=members, lifetime_s=GIVE_UP_S)
            with temporary_endpoint(account, spec, partial(tell, stderr)) as name:
                system = system_of_endpoint(account.endpoint_description(name), account.region)
                starts.append(start_of(account, system, bodies, objective.model_latency_ms))
    except KeyboardInterrupt:
        if not starts:
            raise Interrupted("Interrupted: no start was measured, and nothing was written.") from None
    return starts


def _keep(result: ColdStart, folder: WorkloadFolder, runs: Path, stderr: Console) -> None:
    """Writes the result to the workload's recommendation if that has the same archive and place."""
    file = folder.recommendation_file
    recommendation = Recommendation.from_json(file) if file.exists() else None
    if recommendation is None:
        reason = "it does not exist"
    elif result.archive_sha256 != recommendation.archive_sha256:
        reason = "it is for another archive"
    elif result.measured_on != (origin := recommendation.provenance.measured_on):
        reason = f"it was measured on {origin}, the start on {result.measured_on}"
    else:
        report = rewrite(recommendation.model_copy(update={"cold_start": result}), file, runs)
        if report is not None:
            tell(stderr, f"Report: {from_here(report)}")
        tell(stderr, f"Written: {from_here(file)}. `simulate` uses it.")
        return
    tell(stderr, f"Not written to {from_here(file)}: {reason}.", "yellow")
