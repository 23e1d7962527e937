"""The report of a comparison of two runs. Pure."""

from inference_recommender.capacity.compare import Difference, RunComparison
from inference_recommender.report.document import Report, ReportVerdict, Value, objective_text, table
from workloads import Workload

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


def comparison_report(baseline: str, candidate: str, workload: Workload, comparison: RunComparison) -> Report:
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
        verdict=comparison_verdict(comparison),
        decision=comparison_decision(comparison),
        cautions=(*comparison.unfit, *comparison.not_compared),
        tables=(table("differences", "Differences", DIFFERENCES, rows),),
        environment={"baseline": baseline, "candidate": candidate},
    )


def comparison_verdict(comparison: RunComparison) -> ReportVerdict:
    """Returns missed for a regression, even if the runs leave other figures open; unknown if they are inconclusive."""
    if comparison.regressions:
        return "missed"
    return "unknown" if comparison.unfit else "met"


def comparison_decision(comparison: RunComparison) -> str:
    """Returns what to do, in a sentence or two."""
    match comparison_verdict(comparison):
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
