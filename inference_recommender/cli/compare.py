"""`compare`: the performance gate. Is a candidate slower than a baseline by more than noise?"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.capacity.compare import Comparison, Difference, Result, compare
from inference_recommender.measurement import Measurement
from inference_recommender.output import Commands, add_command, stdout_console, tell
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.verdict import sustained_rate
from workloads import LatencyObjective, UsageError

REGRESSION, NO_VERDICT = 1, 4

DESCRIPTION = """Compares two run folders of the same workload and traffic: capacity, and latency at equal load. Exit
code 0: no regression is shown; 1: a regression beyond the noise; 4: no verdict, with the reason."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "compare",
        "compare two runs: is the second slower beyond the noise",
        "compare runs/OLD runs/NEW",
        DESCRIPTION,
    )
    parser.add_argument("baseline", type=Path, metavar="BASELINE", help="the run folder to compare with")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the run folder to judge")
    parser.add_argument("--json", action="store_true", help="print the comparison as one JSON document")
    parser.set_defaults(command=_compare)


def _compare(options: argparse.Namespace, stderr: Console) -> int:
    baseline, candidate = RunFolder(options.baseline), RunFolder(options.candidate)
    if (why := unlike(baseline, candidate)) is not None:
        raise why
    objective = candidate.workload().latency_objective
    comparison = compare(results(baseline, objective), results(candidate, objective), objective)
    if options.json:
        print(json.dumps(document(comparison), indent=2, ensure_ascii=False))
    else:
        _show(comparison)
    for reason in (*comparison.unfit, *comparison.not_compared):
        tell(stderr, reason, "yellow")
    tell(stderr, advice(comparison))
    return exit_code(comparison)


def results(run: RunFolder, objective: LatencyObjective) -> list[Result]:
    return [result(measured, objective) for measured in run.measurements()]


def result(measured: Measurement, objective: LatencyObjective) -> Result:
    """Returns a measurement as the comparison takes it, named by variant, instance type and environment. Its rate keeps
    the objective, as its interval's does; a job's own may keep a P95 alone.
    """
    environment = " ".join(f"{name}={value}" for name, value in sorted(measured.environment.items()))
    return Result(
        configuration=" ".join(part for part in (measured.variant, measured.instance_type, environment) if part),
        invocations_per_minute=sustained_rate(measured, objective),
        interval=measured.max_invocations_interval,
        warm_up_s=measured.warm_up_s,
        series=measured.series,
        failure_reason=measured.failure_reason,
    )


def exit_code(comparison: Comparison) -> int:
    """Returns 1 for a regression, even if the runs cannot tell something else, 4 if they carry no verdict, else 0."""
    if comparison.regressions:
        return REGRESSION
    return NO_VERDICT if comparison.unfit else 0


def advice(comparison: Comparison) -> str:
    """Returns what the comparison means and what to do."""
    match exit_code(comparison):
        case 0:
            return "No regression is shown."
        case 1:
            worse = "; ".join(_changed(difference) for difference in comparison.regressions)
            return (
                f"Regression beyond the noise: {worse}. Do not release the candidate. Find the cause; "
                "or, if the loss is intended, size the fleet again and use this run as the baseline."
            )
        case _:
            return "No verdict: do not accept or reject the candidate by these runs. See above, and compare again."


def document(comparison: Comparison) -> dict[str, Any]:
    return {
        "verdict": {0: "no regression shown", 1: "regression", 4: "none"}[exit_code(comparison)],
        "differences": [
            {**asdict(difference), "is_regression": difference.is_regression} for difference in comparison.differences
        ],
        "unfit": list(comparison.unfit),
        "not_compared": list(comparison.not_compared),
    }


def unlike(baseline: RunFolder, candidate: RunFolder) -> UsageError | None:
    """Returns why two runs do not compare, or None."""
    names = baseline.workload().name, candidate.workload().name
    if names[0] != names[1]:
        return _unlike(candidate, "workload", names[1], baseline, names[0])
    traffic = [run.request().get("InputConfig", {}).get("TrafficPattern") for run in (baseline, candidate)]
    if traffic[0] != traffic[1]:
        return _unlike(candidate, "traffic", _short(traffic[1]), baseline, _short(traffic[0]))
    return None


def _unlike(candidate: RunFolder, what: str, got: str, baseline: RunFolder, wanted: str) -> UsageError:
    return UsageError(
        f"{candidate}: its {what} is {got}, but that of the baseline {baseline} is {wanted}. Only runs of "
        f"the same workload and traffic compare: measure the candidate with the baseline's {what}."
    )


def _short(traffic: Any) -> str:
    return json.dumps(traffic, separators=(",", ":"))


def _changed(difference: Difference) -> str:
    low, high = sorted((difference.worst, difference.best))
    change = f"{difference.ratio - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})"
    return f"{difference.configuration}: {difference.figure} {change}"


def _show(comparison: Comparison) -> None:
    table = Table("configuration", "figure", box=SIMPLE_HEAD)
    for name in ("baseline", "candidate", "change", "at least", "at most", ""):
        table.add_column(name, justify="right")
    for difference in comparison.differences:
        low, high = sorted((difference.worst, difference.best))
        changes = [f"{value - 1:+.1%}" for value in (difference.ratio, low, high)]
        figures = (_figure(difference.baseline), _figure(difference.candidate))
        verdict = "worse" if difference.is_regression else ""
        table.add_row(difference.configuration, difference.figure, *figures, *changes, verdict)
    stdout_console().print(table)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
