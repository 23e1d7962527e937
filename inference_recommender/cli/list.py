"""`list`: the Inference Recommender jobs of the account and region, newest first."""

import argparse

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.jobs.aws import Aws
from inference_recommender.output import Commands, add_command, stdout_console
from inference_recommender.run_folder import as_json


def add(commands: Commands) -> None:
    parser = add_command(commands, "list", "the jobs of this account and region, the newest first", "list spellcheck")
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD", help="only jobs whose name contains the workload's")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="how many at most; default: 20")
    parser.add_argument("--json", action="store_true", help="print them as one JSON document")
    parser.set_defaults(command=_list)


def _list(options: argparse.Namespace, stderr: Console) -> int:
    jobs = Aws().jobs(options.workload and options.workload.replace("_", "-"), options.limit)
    if options.json:
        print(as_json(jobs))
        return 0
    table = Table(box=SIMPLE_HEAD)
    for head in ("job", "kind", "status", "created, UTC", "model"):
        table.add_column(head, overflow="fold")
    for job in jobs:
        model = job.get("ModelName") or job.get("ModelPackageVersionArn", "").rpartition("model-package/")[2]
        created = f"{job['CreationTime']:%Y-%m-%d %H:%M}"
        table.add_row(job["JobName"], job["JobType"], job["Status"], created, model)
    stdout_console().print(table)
    return 0
