"""`stop`: end an Inference Recommender job; the service keeps what it measured."""

import argparse
import json

from rich.console import Console

from inference_recommender.jobs.aws import Aws
from inference_recommender.jobs.service import TERMINAL, stop_and_wait
from inference_recommender.output import Commands, add_command


def add(commands: Commands) -> None:
    parser = add_command(commands, "stop", "stop a job and wait until it has ended", "stop spellcheck-production-1")
    parser.add_argument("job", metavar="NAME", help="as `list` shows it")
    parser.add_argument("--json", action="store_true", help="print name and status as one JSON document")
    parser.set_defaults(command=_stop)


def _stop(options: argparse.Namespace, stderr: Console) -> int:
    aws = Aws()
    aws.existing_job(options.job)
    status = stop_and_wait(aws, options.job)["Status"]
    if options.json:
        print(json.dumps({"job_name": options.job, "status": status}))
    else:
        print(f"{options.job}: {status}")
    if status not in TERMINAL:
        stderr.print("It has been told to stop and takes its time: `describe` shows when it has.", style="yellow")
    return 0
