"""`report`: draw a run's report again from its folder, without AWS."""

import argparse
from pathlib import Path

from rich.console import Console

from inference_recommender.commands import Commands
from inference_recommender.report import page
from inference_recommender.run_folder import RunFolder


def add(commands: Commands) -> None:
    parser = commands.add_parser("report", help="draw a run's report.html again, without AWS")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, as `run` names it")
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace, people: Console) -> int:
    kept = RunFolder(options.run)
    kept.keep_report(page(kept.workload(), kept.recommendation(), kept.measurements(), kept.request()))
    print(kept.report)
    return 0
