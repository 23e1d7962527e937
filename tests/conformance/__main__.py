"""`python -m tests.conformance [FILE...]`: the cases of other projects, as Markdown tables.

Each case that does not pass has a reason. `differs` are cases in which the project answers on purpose in another way,
as AWS documents. Exit code 1 if fewer than 95 % of the passed and failed cases pass.
"""

import contextlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

CONFORMANCE = "tests/conformance/test_"
MOTO = "test_moto_cases.py::test_the_account_answers_a_case_of_moto_as_moto_or_as_aws_documents"
SUITES = {
    f"{CONFORMANCE}triton_model_config.py": ("Triton `qa/L0_model_config`", "triton-inference-server/server@e1db8a6"),
    f"{CONFORMANCE}triton_sagemaker.py": ("Triton `qa/L0_sagemaker`", "triton-inference-server/server@e1db8a6"),
    f"{CONFORMANCE}open_inference_protocol.py": (
        "OpenAPI schema, v2 payloads",
        "kserve/open-inference-protocol@d49cc23",
    ),
    f"{CONFORMANCE}coordinated_omission.py": ("Coordinated omission", "be-next/Coordinated-Omission@4142505"),
    f"{CONFORMANCE}early_stopping.py": ("MLPerf early stopping", "mlcommons/inference@51a4a7e"),
    f"{CONFORMANCE}recorded_recommendations.py": ("Recorded recommendations", "aws/sagemaker-python-sdk@6b92057"),
    f"{CONFORMANCE}aws_notebooks.py": ("AWS's notebooks", "aws/amazon-sagemaker-examples@2b67b63"),
    f"tests/local_aws/moto_cases/{MOTO}": ("moto: scaling and endpoints", "getmoto/moto@0af643a"),
}
"""Title and source of each file of tests, or of one test in a file."""
OUTCOMES = ("passed", "failed", "differs", "not run")
LEAST_PASSED = 0.95


class Result(NamedTuple):
    suite: str
    case: str
    outcome: str
    reason: str


class Collector:
    """A pytest plugin that keeps the result of each case, and how often Triton and `lint` accept or refuse."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.verdicts = Counter[tuple[object, object]]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            suite, _, case = report.nodeid.partition("::")
            found = dict(report.user_properties)
            self.verdicts[found.get("Triton"), found.get("lint")] += 1
            name = case.partition("[")[2].removesuffix("]") or case
            self.results.append(Result(suite, name, *_outcome(report, str(found.get("differs", "")))))


def _outcome(report: pytest.TestReport, differs: str) -> tuple[str, str]:
    if hasattr(report, "wasxfail"):
        return "failed", report.wasxfail if report.outcome == "skipped" else "It passes, and is listed as failing."
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return "not run", report.longrepr[2].removeprefix("Skipped: ")
    if report.outcome == "failed":
        return "failed", report.longreprtext.strip().splitlines()[-1]
    return ("differs", differs) if differs else ("passed", "")


def tables(results: list[Result], verdicts: Mapping[tuple[object, object], int]) -> Iterator[str]:
    """Yields the lines of the tables: suites, agreement of `lint` and Triton, and reasons."""
    yield "| cases | source | passed | failed | differs | not run |\n|---|---|---|---|---|---|"
    for suite, (title, source) in SUITES.items():
        counts = Counter(each.outcome for each in results if each.suite == suite.partition("::")[0])
        yield f"| {title} | {source} | {' | '.join(str(counts[outcome]) for outcome in OUTCOMES)} |"
    yield "\n| | `lint` accepts | `lint` refuses |\n|---|---|---|"
    for verdict in ("accepts", "refuses"):
        yield f"| Triton {verdict} | {verdicts[verdict, 'accepts']} | {verdicts[verdict, 'refuses']} |"
    reasons = defaultdict(list)
    for each in results:
        reasons[OUTCOMES.index(each.outcome), each.reason].append(each.case)
    yield "\n| outcome | cases | reason |\n|---|---|---|"
    for (outcome, reason), cases in sorted(reasons.items()):
        if reason:
            shown = min(cases).rpartition("/")[2] + (f" and {len(cases) - 1} more" if len(cases) > 1 else "")
            yield f"| {OUTCOMES[outcome]} | {shown} | {reason} |"


def main(arguments: list[str]) -> int:
    collector = Collector()
    with contextlib.redirect_stdout(sys.stderr):
        ended = pytest.main(["-q", "-p", "no:cacheprovider", *(arguments or SUITES)], plugins=[collector])
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return int(ended)
    print("\n".join(tables(collector.results, collector.verdicts)))
    counts = Counter(each.outcome for each in collector.results)
    judged = counts["passed"] + counts["failed"]
    print(f"\n{counts['passed']} of {judged} cases pass ({counts['passed'] / max(judged, 1):.1%}).")
    return 0 if counts["passed"] >= LEAST_PASSED * judged else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
