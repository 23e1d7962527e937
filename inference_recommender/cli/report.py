"""`report`: renders a run, proof, search, simulation or experiment from its folder, without AWS."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import Console

from inference_recommender.experiment.experiment_report import experiment_plots, experiment_report
from inference_recommender.experiment.result import PLAN as EXPERIMENT
from inference_recommender.experiment.result import ExperimentFolder, conclude
from inference_recommender.output import Commands, add_command
from inference_recommender.report import plots
from inference_recommender.report.document import Plot, Report, ReportKind
from inference_recommender.report.inputs import read_inputs
from inference_recommender.report.markdown import markdown
from inference_recommender.report.page import page, render
from inference_recommender.report.run_report import proof_report, run_plots, run_report
from inference_recommender.report.simulation_report import SIMULATION, Simulation
from inference_recommender.report.text import print_result
from inference_recommender.run_folder import RunFolder
from inference_recommender.tune.folder import PLAN, TuneFolder
from inference_recommender.tune.tune_report import tune_figures
from workloads import ROOT, ProjectError, Proof, UsageError
from workloads.files import replace_text

INDEX = "index.html"
PROOF = "proof.json"
FILES: dict[str, ReportKind] = {
    EXPERIMENT: "experiment",
    SIMULATION: "simulation",
    PLAN: "tune",
    "recommendation.json": "run",
    PROOF: "proof",
}
"""A file of a folder → the folder's kind; the first that exists decides."""
DESCRIPTION = """Renders a folder below runs/: a run, a proof, a capacity search, a search of a configuration (tune), a
simulation or an experiment. html writes report.html into the folder and prints its path. The other formats go to
stdout: text as the command printed it, markdown for the body of a pull request, json as a document. --all writes the
page of every folder and runs/index.html with links to them."""
DrawPlots = Callable[[], Mapping[str, Plot]]
"""Returns a report's plots by title."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "report runs/NAME", DESCRIPTION)
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="a folder below runs/")
    parser.add_argument("--all", type=Path, nargs="?", const=ROOT / "runs", metavar="DIR", help="index of all runs")
    parser.add_argument("--format", choices=("html", "text", "markdown", "json"), default="html", help="default: html")
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace, stderr: Console) -> int:
    if (options.run is None) == (options.all is None):
        raise UsageError("report: name a folder below runs/, or give --all for an index of all of them.")
    if options.all is not None:
        if not options.all.is_dir():
            raise UsageError(f"--all: {options.all} does not exist. `python -m inference_recommender run` creates it.")
        print(write_index(options.all))
        return 0
    match options.format:
        case "html":
            write_page(options.run)
            print(RunFolder(options.run).report)
        case "markdown":
            print(markdown(read_report(options.run)), end="")
        case _:
            print_result(read_report(options.run), json=options.format == "json")
    return 0


def kind_of(path: Path) -> ReportKind:
    """Returns the kind of a folder by its files; the default is a run."""
    return next((kind for name, kind in FILES.items() if (path / name).exists()), "run")


def read_report(path: Path) -> Report:
    """Reads a folder. Raises `UsageError` or `InvalidDocument`."""
    return _read(path)[0]


def _read(path: Path) -> tuple[Report, DrawPlots]:
    name, folder, inputs = path.resolve().name, RunFolder(path), read_inputs(path)
    match kind_of(path):
        case "experiment":
            result = conclude(ExperimentFolder(path))
            return experiment_report(name, result, inputs), partial(experiment_plots, result)
        case "simulation":
            simulation = Simulation.from_json(path / SIMULATION)
            day = simulation.day
            return simulation.report, lambda: {
                "Worst day": plots.worst_day(day.start, day.serving, day.desired, day.ideal)
            }
        case "tune":
            report = TuneFolder(path).result()
            return report, partial(tune_figures, report)
        case "proof":
            workload = folder.workload() if (path / "workload.json").exists() else None
            proof = Proof.from_json(path / PROOF)
            return proof_report(name, proof, workload, inputs), lambda: {"Latency by load": plots.of_proof(proof)}
        case _:
            tested, recommendation = folder.workload(), folder.recommendation()
            measured = folder.measurements() if (path / "measurements.json").exists() else ()
            report = run_report(name, tested, recommendation, inputs, measured)
            return report, lambda: run_plots(tested, recommendation, measured, folder.request())


def write_page(path: Path) -> Report:
    """Writes a folder's report.html, and an experiment's result.json. Raises `UsageError` or `InvalidDocument`."""
    report, draw_plots = _read(path)
    if report.kind == "experiment":
        report.write_json(path / "result.json")
    RunFolder(path).keep_report(page(report, draw_plots()))
    return report


def write_index(runs: Path) -> Path:
    """Writes the page of every folder below `runs`, and an index with relative links. Returns the index's path."""
    entries = sorted(_entries(runs), key=itemgetter("made_at"), reverse=True)
    replace_text(runs / INDEX, render("index.html", below=f"{runs.resolve().name}/", entries=entries))
    return runs / INDEX


def _entries(runs: Path) -> Iterator[dict[str, Any]]:
    """Yields each folder with its report, or with the reason why it has none."""
    for path in sorted(each for each in runs.iterdir() if each.is_dir() and not each.is_symlink()):
        try:
            report = write_page(path)
        except ProjectError as error:
            yield {"name": path.name, "report": None, "problem": str(error), "made_at": ""}
            continue
        facts = report.environment
        made_at = facts.get("simulated at") or facts.get("measured at", "unknown")
        yield {"name": path.name, "report": report, "made_at": made_at.replace("unknown", "")}
