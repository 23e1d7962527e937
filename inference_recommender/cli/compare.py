"""`compare`: the performance gate. Is a candidate slower than a baseline by more than noise?"""

import argparse
import json
from pathlib import Path

from rich.console import Console

from inference_recommender.capacity.compare import ComparedRun, compare
from inference_recommender.measurement import Measurement
from inference_recommender.output import Commands, add_command, stdout_console
from inference_recommender.report.comparison_report import comparison_report
from inference_recommender.report.document import as_json
from inference_recommender.report.text import show
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.verdict import sustained_rate
from workloads import LatencyObjective, UsageError

EXIT_CODES = {"met": 0, "missed": 1, "unknown": 4}
DESCRIPTION = """Compares two run folders of the same workload and traffic: capacity, and latency at equal load. Exit
code 0: no regression was found; 1: a regression beyond the noise; 4: inconclusive, with the reason."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "compare",
        "compare two runs: is the second one slower beyond the noise",
        "compare runs/OLD runs/NEW",
        DESCRIPTION,
    )
    parser.add_argument("baseline", type=Path, metavar="BASELINE", help="the run folder to compare with")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the run folder to judge")
    parser.add_argument("--json", action="store_true", help="print the comparison as one JSON document")
    parser.set_defaults(command=_compare)


def _compare(options: argparse.Namespace, stderr: Console) -> int:
    baseline, candidate = RunFolder(options.baseline), RunFolder(options.candidate)
    _check_comparable(baseline, candidate)
    workload = candidate.workload()
    objective = workload.latency_objective
    before, after = ([result(each, objective) for each in run.measurements()] for run in (baseline, candidate))
    comparison = compare(before, after, objective)
    report = comparison_report(str(baseline), str(candidate), workload, comparison)
    if options.json:
        print(as_json(report))
    else:
        show(report, stdout_console())
    return EXIT_CODES[report.verdict]


def result(measured: Measurement, objective: LatencyObjective) -> ComparedRun:
    """Returns a measurement for the comparison, named by variant, instance type and environment. The rate meets the
    objective; that of a job may meet only a P95.
    """
    environment = " ".join(f"{name}={value}" for name, value in sorted(measured.environment.items()))
    return ComparedRun(
        configuration=" ".join(part for part in (measured.variant, measured.instance_type, environment) if part),
        invocations_per_minute=sustained_rate(measured, objective),
        interval=measured.closed_loop_invocations_interval,
        warm_up_s=measured.warm_up_s,
        series=measured.series,
        failure_reason=measured.failure_reason,
    )


def _check_comparable(baseline: RunFolder, candidate: RunFolder) -> None:
    """Raises `UsageError` for runs of different workloads or traffic."""
    names = [run.workload().name for run in (baseline, candidate)]
    traffic = [run.request().get("InputConfig", {}).get("TrafficPattern") for run in (baseline, candidate)]
    shown = [json.dumps(each, separators=(",", ":")) for each in traffic]
    for what, (base, other) in (("workload", names), ("traffic", shown)):
        if base != other:
            raise UsageError(
                f"{candidate}: its {what} is {other}, but that of the baseline {baseline} is {base}. Only runs of the "
                f"same workload and traffic compare: measure the candidate with the baseline's {what}."
            )
