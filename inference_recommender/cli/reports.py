"""`reports`: an index of all that is below runs/, with each report and comparisons, for a browser on this machine."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path

from rich.console import Console

from inference_recommender.capacity.compare import compare
from inference_recommender.cli.compare import advice, document, exit_code, results, unlike
from inference_recommender.cli.report import page_text, report
from inference_recommender.output import Commands, add_command, tell
from inference_recommender.report.document import Kind, Report, Verdict, as_json, table
from inference_recommender.report.markdown import markdown
from inference_recommender.report.owner_only import NOT_FOUND, Page, ReportServer
from inference_recommender.report.page import render, summary_page
from inference_recommender.report.side_by_side import side_by_side
from inference_recommender.run_folder import RunFolder
from workloads import ROOT, ProjectError, UsageError

DESCRIPTION = """Serves an index of the folders below runs/, each one's report, and comparisons of two of one kind and
workload, until Ctrl-C. Runs are judged as by `compare`; proofs, searches and simulations are shown side by side. It
listens on 127.0.0.1 only. The address that it prints has a random part; requests without it are rejected."""
VERDICTS: dict[int, Verdict] = {0: "met", 1: "missed", 4: "unknown"}
"""An exit code of `compare` → what its page shows."""
SEVERAL: dict[Kind, str] = {
    "run": "runs",
    "proof": "proofs",
    "capacity": "capacity searches",
    "tune": "tunings",
    "simulation": "simulations",
}
"""The kinds of which two compare, in words; an experiment compares its own cells."""
DIFFERENCES = (
    ("configuration", "configuration", ""),
    ("figure", "figure", ""),
    ("baseline", "baseline", ",.6g"),
    ("candidate", "candidate", ",.6g"),
    ("ratio", "candidate over baseline", ".3f"),
    ("worst", "at worst", ".3f"),
    ("best", "at best", ".3f"),
    ("is_regression", "regression", ""),
)


def add(commands: Commands) -> None:
    parser = add_command(commands, "reports", "browse all runs and compare two", "reports", DESCRIPTION)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="where run folders are")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: a free one")
    parser.set_defaults(command=_reports)


def _reports(options: argparse.Namespace, stderr: Console) -> int:
    if not options.runs.is_dir():
        raise UsageError(f"--runs: {options.runs} is no folder. `python -m inference_recommender run` makes runs/.")
    if not 0 <= options.port < 65_536:
        raise UsageError(f"--port: got {options.port}. Allowed: 0 to 65535; 0 is a free one.")
    server = ReportServer(partial(site, options.runs), options.port)
    print(server.url, flush=True)
    tell(stderr, "Ctrl-C ends it.")
    try:
        server.serve()
    except KeyboardInterrupt:
        return 0
    return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A folder below runs/: its report, or why it has none."""

    name: str
    report: Report | None
    problem: str = ""


def site(runs: Path, parts: tuple[str, ...], query: Mapping[str, str]) -> Page:
    """Returns the page of an address below the token. A folder is one of those that are there, never a path."""
    folders = {path.name: path for path in sorted(runs.iterdir()) if path.is_dir() and not path.is_symlink()}
    try:
        match parts:
            case () | ("",):
                return Page(text=index(runs, folders))
            case ("run", name) if name in folders:
                return _run(folders[name], query.get("format", "html"))
            case ("compare",) if {query.get("baseline"), query.get("candidate")} <= folders.keys():
                return Page(text=_compared(folders[query["baseline"]], folders[query["candidate"]]))
            case _:
                return NOT_FOUND
    except ProjectError as error:
        return Page(text=f"{error}\n", status=HTTPStatus.CONFLICT, content_type="text/plain; charset=utf-8")


def index(runs: Path, folders: Mapping[str, Path]) -> str:
    entries = sorted((_entry(path) for path in folders.values()), key=_measured_at, reverse=True)
    return render(
        "index.html", below=runs.resolve().name + "/", entries=entries, groups=_comparable(entries), when=when
    )


def _comparable(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Returns the folders of which there are several of one kind and workload, by these in words."""
    groups: dict[str, list[str]] = {}
    for entry in entries:
        if entry.report and entry.report.workload and entry.report.kind in SEVERAL:
            words = f"{SEVERAL[entry.report.kind]} of {entry.report.workload}"
            groups.setdefault(words, []).append(entry.name)
    return {words: names for words, names in groups.items() if len(names) > 1}


def _entry(path: Path) -> Entry:
    try:
        return Entry(name=path.name, report=report(path))
    except ProjectError as error:
        return Entry(name=path.name, report=None, problem=str(error))


def _measured_at(entry: Entry) -> str:
    return when(entry.report) if entry.report else ""


def when(report: Report) -> str:
    """Returns when a folder was made, or its figures were measured."""
    return report.environment.get("simulated at") or report.environment["measured at"]


def _run(path: Path, form: str) -> Page:
    match form:
        case "html":
            return Page(text=page_text(path))
        case "markdown":
            return Page(text=markdown(report(path)), content_type="text/plain; charset=utf-8")
        case "json":
            text = json.dumps(as_json(report(path)), indent=2, ensure_ascii=False)
            return Page(text=text + "\n", content_type="application/json")
        case _:
            return NOT_FOUND


def _compared(baseline: Path, candidate: Path) -> str:
    """Draws what `compare` prints of two runs, and two folders of another kind side by side. Raises `UsageError`
    where the two are not alike.
    """
    if not all((each / "measurements.json").exists() for each in (baseline, candidate)):
        return summary_page(side_by_side(report(baseline), report(candidate)))
    runs = RunFolder(baseline), RunFolder(candidate)
    if (why := unlike(*runs)) is not None:
        raise why
    objective = runs[1].workload().latency_objective
    comparison = compare(results(runs[0], objective), results(runs[1], objective), objective)
    rows = [tuple(each[name] for name, _, _ in DIFFERENCES) for each in document(comparison)["differences"]]
    return summary_page(
        Report(
            kind="comparison",
            name=f"{candidate.name} against {baseline.name}",
            workload=runs[1].workload().name,
            asked=f"whether {candidate.name} is slower than {baseline.name} by more than noise",
            verdict=VERDICTS[exit_code(comparison)],
            decision=advice(comparison),
            cautions=(*comparison.unfit, *comparison.not_compared),
            tables=(table("differences", "Differences", DIFFERENCES, rows),),
            not_tested=(),
            environment={"baseline": str(baseline.name), "candidate": str(candidate.name)},
        )
    )
