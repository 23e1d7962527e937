"""`compare`: the performance gate. Is a candidate slower than a baseline by more than noise?"""

import argparse
import json
from pathlib import Path

from rich.console import Console

from inference_recommender.output import Commands, add_command
from inference_recommender.report.document import Report, ReportVerdict, Value, objective_text, table
from inference_recommender.report.text import print_result
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.compare import Difference, RunComparison, compare
from workloads import UsageError, Workload

EXIT_CODES = {"met": 0, "missed": 1, "unknown": 4}
DIFFERENCES = (
    ("configuration", "configuration", ""),
    ("figure", "figure", ""),
    ("baseline", "baseline", ",.1f"),
    ("candidate", "candidate", ",.1f"),
    ("change", "change", "+.1%"),
    ("change_low", "95 % from", "+.1%"),
    ("change_high", "to", "+.1%"),
    ("is_regression", "regression", ""),
)
DESCRIPTION = """Compares two run folders of the same workload and traffic: capacity, and latency at equal load. Exit
code 0: no regression was found; 1: a regression beyond the noise; 4: inconclusive, with the reason."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "compare runs/OLD runs/NEW", DESCRIPTION)
    parser.add_argument("baseline", type=Path, metavar="BASELINE", help="the run folder to compare with")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the run folder to judge")
    parser.add_argument("--json", action="store_true", help="print the comparison as one JSON document")
    parser.set_defaults(command=_compare)


def _compare(options: argparse.Namespace, stderr: Console) -> int:
    baseline, candidate = RunFolder(options.baseline), RunFolder(options.candidate)
    _check_comparable(baseline, candidate)
    workload = candidate.workload()
    objective = workload.latency_objective
    comparison = compare(baseline.measurements(), candidate.measurements(), objective)
    report = _report(str(baseline), str(candidate), workload, comparison)
    print_result(report, json=options.json)
    return EXIT_CODES[report.verdict]


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


def _report(baseline: str, candidate: str, workload: Workload, comparison: RunComparison) -> Report:
    """Returns the report of `candidate` against `baseline`, the names of two run folders."""
    rows: list[tuple[Value, ...]] = [
        (
            each.configuration,
            each.figure,
            each.baseline,
            each.candidate,
            *(value - 1 for value in (each.ratio, each.low, each.high)),
            each.is_regression,
        )
        for each in comparison.differences
    ]
    return Report(
        kind="comparison",
        name=f"{candidate} against {baseline}",
        workload=workload.name,
        description=workload.description,
        objective=objective_text(workload.latency_objective),
        verdict=_verdict(comparison),
        decision=_decision(comparison),
        cautions=(*comparison.unfit, *comparison.not_compared),
        tables=(table("differences", "Differences", DIFFERENCES, rows),),
        environment={"baseline": baseline, "candidate": candidate},
    )


def _verdict(comparison: RunComparison) -> ReportVerdict:
    """Returns missed for a regression, even if the runs leave other figures open; unknown if they are inconclusive."""
    if comparison.regressions:
        return "missed"
    return "unknown" if comparison.unfit else "met"


def _decision(comparison: RunComparison) -> str:
    match _verdict(comparison):
        case "met":
            return "No regression was found."
        case "missed":
            worse = "; ".join(_change(difference) for difference in comparison.regressions)
            return (
                f"Regression beyond the noise: {worse}. Do not release the candidate. Find the cause. If the loss is "
                "intended, size the fleet again and use this run as the baseline."
            )
        case _:
            return "Inconclusive: neither accept nor reject the candidate. Measure both again and compare."


def _change(difference: Difference) -> str:
    change = f"{difference.ratio - 1:+.1%} ({difference.low - 1:+.1%} to {difference.high - 1:+.1%})"
    return f"{difference.configuration}: {difference.figure} {change}"
