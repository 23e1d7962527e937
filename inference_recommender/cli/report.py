"""`report`: renders a run, proof, search, simulation or experiment from its folder, without AWS."""

import argparse
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import Console

from inference_recommender.experiment.experiment_report import experiment_plots, experiment_report
from inference_recommender.experiment.result import PLAN as EXPERIMENT
from inference_recommender.experiment.result import ExperimentFolder, conclude
from inference_recommender.output import Commands, add_command
from inference_recommender.report import plots
from inference_recommender.report.document import Report, ReportKind
from inference_recommender.report.inputs import read_inputs
from inference_recommender.report.markdown import markdown
from inference_recommender.report.page import page, render
from inference_recommender.report.run_report import draw, proof_report, run_report
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


def add(commands: Commands) -> None:
    parser = add_command(commands, "report runs/NAME", DESCRIPTION)
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="a folder below runs/")
    parser.add_argument(
        "--all",
        type=Path,
        nargs="?",
        const=ROOT / "runs",
        metavar="DIR",
        help="write an index of all runs; default: runs/",
    )
    parser.add_argument(
        "--format", choices=("html", "text", "markdown", "json"), default="html", help="default: html, a file"
    )
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
            print(write_page(options.run))
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
    name, run_folder, inputs = path.resolve().name, RunFolder(path), read_inputs(path)
    match kind_of(path):
        case "experiment":
            return experiment_report(name, conclude(ExperimentFolder(path)), inputs)
        case "simulation":
            return Simulation.from_json(path / SIMULATION).report
        case "tune":
            return TuneFolder(path).result()
        case "proof":
            workload = run_folder.workload() if (path / "workload.json").exists() else None
            return proof_report(name, Proof.from_json(path / PROOF), workload, inputs)
        case _:
            measured = run_folder.measurements() if (path / "measurements.json").exists() else ()
            return run_report(name, run_folder.workload(), run_folder.recommendation(), inputs, measured)


def write_page(path: Path) -> Path:
    """Writes a folder's report.html and returns its path. Raises `UsageError` or `InvalidDocument`."""
    run_folder = RunFolder(path)
    match kind_of(path):
        case "experiment":
            write_experiment(ExperimentFolder(path))
        case "run":
            draw(run_folder)
        case "tune":
            report = TuneFolder(path).result()
            run_folder.keep_report(page(report, tune_figures(report)))
        case "simulation":
            simulation = Simulation.from_json(path / SIMULATION)
            day = simulation.day
            figures = {"Worst day": plots.worst_day(day.start, day.serving, day.desired, day.ideal)}
            run_folder.keep_report(page(simulation.report, figures))
        case _:
            figures = {"Latency by load": plots.of_proof(Proof.from_json(path / PROOF))}
            run_folder.keep_report(page(read_report(path), figures))
    return run_folder.report


def write_experiment(folder: ExperimentFolder) -> Report:
    """Sizes and compares the cells measured so far, and writes result.json and the page."""
    result = conclude(folder)
    report = experiment_report(folder.path.resolve().name, result, read_inputs(folder.path))
    report.write_json(folder.path / "result.json")
    folder.keep_report(page(report, experiment_plots(result)))
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
            write_page(path)
            report = read_report(path)
        except ProjectError as error:
            yield {"name": path.name, "report": None, "problem": str(error), "made_at": ""}
            continue
        facts = report.environment
        made_at = facts.get("simulated at") or facts.get("measured at", "unknown")
        yield {"name": path.name, "report": report, "made_at": made_at.replace("unknown", "")}
