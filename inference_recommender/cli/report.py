"""`report`: the evidence of a run, proof, search, simulation or experiment, drawn from its folder without AWS."""

import argparse
import json
from pathlib import Path

from rich.console import Console

from inference_recommender.experiment.evidence import experiment_report
from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.page import conclude, concluded_from
from inference_recommender.experiment.page import page as experiment_page
from inference_recommender.measure.prove import PROOF
from inference_recommender.output import Commands, add_command
from inference_recommender.report import plots
from inference_recommender.report.document import Kind, Report, as_json
from inference_recommender.report.found import found
from inference_recommender.report.markdown import markdown
from inference_recommender.report.of_run import capacity_report, proof_report, run_report
from inference_recommender.report.of_simulation import simulation_report
from inference_recommender.report.of_tune import tune_figures, tune_report
from inference_recommender.report.page import page_of, simulation_page, summary_page
from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate.kept import SIMULATION, read_simulation
from inference_recommender.sizing.open_loop import NAME as CAPACITY
from inference_recommender.sizing.open_loop import CapacityFound
from inference_recommender.tune.folder import PLAN, TuneFolder
from workloads import Proof

DESCRIPTION = """Draws what a folder below runs/ holds: a run, a proof, a search of a capacity or of a configuration
(tune), a simulation or an experiment. html writes report.html into the folder and prints its
path. markdown prints the body of a pull request, json the same as a document; see docs/measuring.md."""


FILES: dict[str, Kind] = {
    SIMULATION: "simulation",
    PLAN: "tune",
    "recommendation.json": "run",
    PROOF: "proof",
    CAPACITY: "capacity",
}
"""A file of a folder → its kind; the first that is there says it."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands, "report", "draw the report of a run again, without AWS", "report runs/NAME", DESCRIPTION
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a folder below runs/, of any kind")
    parser.add_argument(
        "--format", choices=("html", "markdown", "json"), default="html", help="default: html, which is written"
    )
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace, stderr: Console) -> int:
    match options.format:
        case "html":
            print(write_page(options.run))
        case "markdown":
            print(markdown(report(options.run)), end="")
        case _:
            print(json.dumps(as_json(report(options.run)), indent=2, ensure_ascii=False))
    return 0


def kind_of(path: Path) -> Kind:
    """Returns the kind of a folder by its files; the default is a run."""
    if ExperimentFolder(path).begun:
        return "experiment"
    for name, kind in FILES.items():
        if (path / name).exists():
            return kind
    return "run"


def report(path: Path) -> Report:
    """Reads a folder of any kind. Raises `UsageError` or `InvalidDocument`."""
    name, run_folder = path.resolve().name, RunFolder(path)
    workload = run_folder.workload() if (path / "workload.json").exists() else None
    match kind_of(path):
        case "experiment":
            folder = ExperimentFolder(path)
            return experiment_report(name, concluded_from(folder), folder.workload(), found(path))
        case "simulation":
            return simulation_report(name, read_simulation(path), run_folder.workload(), found(path))
        case "tune":
            return tune_report(name, TuneFolder(path), found(path))
        case "proof":
            return proof_report(name, Proof.from_json(path / PROOF), workload, found(path))
        case "capacity":
            return capacity_report(name, CapacityFound.from_json(path / CAPACITY), workload, found(path))
        case _:
            measured = run_folder.measurements() if (path / "measurements.json").exists() else ()
            return run_report(name, run_folder.workload(), run_folder.recommendation(), found(path), measured)


def write_page(path: Path) -> Path:
    """Writes a folder's report.html and returns where it is. Raises what `report` raises."""
    run_folder = RunFolder(path)
    if kind_of(path) == "experiment":
        conclude(ExperimentFolder(path))
    else:
        run_folder.keep_report(page_text(path))
    return run_folder.report


def page_text(path: Path) -> str:
    """Draws a folder's page and writes nothing. Raises what `report` raises."""
    match kind_of(path):
        case "experiment":
            folder = ExperimentFolder(path)
            return experiment_page(concluded_from(folder), folder.workload(), found(path))
        case "run":
            return page_of(RunFolder(path))
        case "simulation":
            return simulation_page(report(path), read_simulation(path), RunFolder(path).workload())
        case "tune":
            return summary_page(report(path), tune_figures(TuneFolder(path)))
        case "proof":
            return summary_page(
                report(path), {"Latency under each load": plots.of_proof(Proof.from_json(path / PROOF))}
            )
        case _:
            searched = CapacityFound.from_json(path / CAPACITY).open_loop()
            return summary_page(report(path), {"Latency against load": plots.of_search(searched)})
