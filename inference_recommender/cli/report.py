"""`report`: draw a run's or an experiment's report again from its folder, without AWS."""

import argparse
from pathlib import Path

from rich.console import Console

from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.page import conclude
from inference_recommender.output import Commands, add_command
from inference_recommender.report.page import page
from inference_recommender.run_folder import RunFolder


def add(commands: Commands) -> None:
    parser = add_command(commands, "report", "draw a run's report.html again, without AWS", "report runs/NAME")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, or an experiment's")
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace, stderr: Console) -> int:
    experiment = ExperimentFolder(options.run)
    if experiment.begun:
        conclude(experiment)
        print(experiment.report)
        return 0
    run_folder = RunFolder(options.run)
    run_folder.keep_report(
        page(run_folder.workload(), run_folder.recommendation(), run_folder.measurements(), run_folder.request())
    )
    print(run_folder.report)
    return 0
