"""`report`: draw a run's or an experiment's report again from its folder, without AWS."""

import argparse
from pathlib import Path

from rich.console import Console

from inference_recommender.cli import Commands
from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.page import conclude
from inference_recommender.report.page import page
from inference_recommender.run_folder import RunFolder


def add(commands: Commands) -> None:
    parser = commands.add_parser("report", help="draw a run's report.html again, without AWS")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, or an experiment's")
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace, people: Console) -> int:
    experiment = ExperimentFolder(options.run)
    if experiment.begun:
        conclude(experiment)
        print(experiment.report)
        return 0
    kept = RunFolder(options.run)
    kept.keep_report(page(kept.workload(), kept.recommendation(), kept.measurements(), kept.request()))
    print(kept.report)
    return 0
