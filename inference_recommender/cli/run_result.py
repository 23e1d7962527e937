"""The subject of a run, and its result on the terminal and in the workload's folder."""

import argparse
from datetime import UTC, datetime
from functools import partial

from rich.console import Console

from inference_recommender.measure.run import RunSubject
from inference_recommender.measure.system import UNKNOWN_TYPE
from inference_recommender.output import stdout_console, tell, warn
from inference_recommender.payload_lengths import known_lengths
from inference_recommender.report.run_report import recommendation_report
from inference_recommender.report.text import show
from inference_recommender.run_folder import RunFolder
from workloads import ROOT, Recommendation, WorkloadFolder, load_artifact
from workloads.files import from_here

NO_CANDIDATE = 1


def run_subject(options: argparse.Namespace, folder: WorkloadFolder, traffic: str, stderr: Console) -> RunSubject:
    """Raises `MissingArtifact` if the target is not built."""
    return RunSubject(
        workload=folder.workload,
        payloads=folder.payloads(options.payloads),
        artifact=load_artifact(ROOT, folder.workload.name, folder.workload.hosting.target),
        traffic=traffic,
        lengths=known_lengths(folder, partial(warn, stderr)) if options.payloads is None else None,
    )


def conclude(
    recommendation: Recommendation,
    folder: WorkloadFolder,
    run_folder: RunFolder,
    options: argparse.Namespace,
    stderr: Console,
) -> int:
    """Prints the recommendation, writes it to the workload's folder for review, and returns the exit code."""
    if options.json:
        print(recommendation.model_dump_json(indent=2))
    else:
        show(recommendation_report(recommendation), stdout_console())
    tell(stderr, f"Report: {from_here(run_folder.report)}")
    if recommendation.recommended is None:
        return NO_CANDIDATE
    if recommendation.recommended.instance_type == UNKNOWN_TYPE:
        tell(stderr, "Not written to the workload's folder: the instance type is unknown. State it with --instances.")
        return 0
    own_account = all(setting.startswith("recommender.") for setting in options.settings)
    if options.payloads is not None or not own_account:
        tell(stderr, "Not written to the workload's folder: other payloads or settings were measured.")
        return 0
    recommendation.write_json(folder.recommendation_file)
    tell(stderr, f"Written: {from_here(folder.recommendation_file)}. The next `cdk deploy` uses it.")
    return 0


def run_name(workload: str, traffic: str) -> str:
    """Returns a name that begins with the workload's: the stack's role allows no other job."""
    return f"{workload}-{traffic}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}".replace("_", "-")
