"""`compare`: the performance gate. Is a candidate slower than a baseline by more than noise?"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.capacity.compare import Comparison, Difference, Result, compare
from inference_recommender.cli import Commands, add_command
from inference_recommender.measurement import Measurement
from inference_recommender.run_folder import RunFolder
from workloads import UsageError

REGRESSION, NO_VERDICT = 1, 4
LOG_WIDTH = 120

DESCRIPTION = """Compares two run folders of the same workload and traffic: capacity, and latency at equal load. Exit
code 1: a regression beyond the noise; 0: none is shown; 4: the runs cannot tell, with the reason."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "compare",
        "is a run slower than another, beyond the noise",
        "compare runs/OLD runs/NEW",
        DESCRIPTION,
    )
    parser.add_argument("baseline", type=Path, metavar="BASELINE", help="the run folder to compare with")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the run folder to judge")
    parser.add_argument("--json", action="store_true", help="print the comparison as one JSON document")
    parser.set_defaults(command=_compare)


def _compare(options: argparse.Namespace, people: Console) -> int:
    baseline, candidate = RunFolder(options.baseline), RunFolder(options.candidate)
    _refuse_unlike(baseline, candidate)
    objective = candidate.workload().latency_objective
    found = compare(_results(baseline), _results(candidate), objective)
    if options.json:
        print(json.dumps(document(found), indent=2, ensure_ascii=False))
    else:
        _show(found)
    for reason in (*found.unfit, *found.not_compared):
        people.print(reason, style="yellow", highlight=False, soft_wrap=True, markup=False)
    people.print(advice(found), highlight=False, soft_wrap=True, markup=False)
    return exit_code(found)


def _results(run: RunFolder) -> list[Result]:
    return [result(measured) for measured in run.measurements()]


def result(measured: Measurement) -> Result:
    """Returns a measurement as the comparison takes it, named by variant, instance type and environment."""
    environment = " ".join(f"{name}={value}" for name, value in sorted(measured.environment.items()))
    return Result(
        configuration=" ".join(part for part in (measured.variant, measured.instance_type, environment) if part),
        invocations_per_minute=measured.max_invocations_per_minute,
        interval=measured.max_invocations_interval,
        warm_up_s=measured.warm_up_s,
        series=measured.series,
        failure_reason=measured.failure_reason,
    )


def exit_code(found: Comparison) -> int:
    """A regression that is shown counts, whatever else could not be told."""
    if found.regressions:
        return REGRESSION
    return NO_VERDICT if found.unfit else 0


def advice(found: Comparison) -> str:
    """What it means and what to do."""
    match exit_code(found):
        case 0:
            return "No regression is shown."
        case 1:
            worse = "; ".join(_told(one) for one in found.regressions)
            return (
                f"Regression beyond the noise: {worse}. Do not release the candidate: find what made it slower, or, "
                "if the loss is meant, size it anew and make its run the baseline."
            )
        case _:
            return "No verdict: neither release on these runs nor reject; do what is said above and compare again."


def document(found: Comparison) -> dict[str, Any]:
    return {
        "verdict": {0: "no regression shown", 1: "regression", 4: "none"}[exit_code(found)],
        "differences": [{**asdict(one), "is_regression": one.is_regression} for one in found.differences],
        "unfit": list(found.unfit),
        "not_compared": list(found.not_compared),
    }


def _refuse_unlike(baseline: RunFolder, candidate: RunFolder) -> None:
    names = baseline.workload().name, candidate.workload().name
    if names[0] != names[1]:
        raise _unlike(candidate, "workload", names[1], baseline, names[0])
    traffic = [run.request().get("InputConfig", {}).get("TrafficPattern") for run in (baseline, candidate)]
    if traffic[0] != traffic[1]:
        raise _unlike(candidate, "traffic", _short(traffic[1]), baseline, _short(traffic[0]))


def _unlike(candidate: RunFolder, what: str, got: str, baseline: RunFolder, wanted: str) -> UsageError:
    return UsageError(
        f"{candidate.path}: its {what} is {got}, but that of the baseline {baseline.path} is {wanted}. Only runs of "
        f"the same workload and traffic compare: measure the candidate with the baseline's {what}."
    )


def _short(traffic: Any) -> str:
    return json.dumps(traffic, separators=(",", ":"))


def _told(one: Difference) -> str:
    low, high = sorted((one.worst, one.best))
    return f"{one.configuration}: {one.figure} {one.ratio - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})"


def _show(found: Comparison) -> None:
    table = Table("configuration", "figure", box=SIMPLE_HEAD)
    for name in ("baseline", "candidate", "change", "at least", "at most", ""):
        table.add_column(name, justify="right")
    for one in found.differences:
        low, high = sorted((one.worst, one.best))
        changes = [f"{value - 1:+.1%}" for value in (one.ratio, low, high)]
        verdict = "worse" if one.is_regression else ""
        table.add_row(one.configuration, one.figure, _figure(one.baseline), _figure(one.candidate), *changes, verdict)
    Console(width=None if sys.stdout.isatty() else LOG_WIDTH).print(table)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
