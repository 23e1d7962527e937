"""`register`: a workload's deployed model as a version in the model registry, ready for a job and for approval."""

import argparse
import json

from rich.console import Console

from inference_recommender.jobs.aws import Aws
from inference_recommender.jobs.job_run import payload_key
from inference_recommender.jobs.requests import group_request, package_request
from inference_recommender.output import Commands, add_command, tell
from inference_recommender.payloads import check_payloads, payload_archive
from workloads import load_workload


def add(commands: Commands) -> None:
    parser = add_command(
        commands, "register", "register the deployed model in the model registry", "register spellcheck"
    )
    parser.add_argument("workload", nargs="?", default="spellcheck", metavar="WORKLOAD", help="default: spellcheck")
    parser.add_argument("--model-name", metavar="NAME", help="SageMaker model; default: the one the stack deployed")
    parser.add_argument("--payload-bucket", metavar="BUCKET", help="default: SageMaker's bucket of account and region")
    parser.add_argument("--description", metavar="TEXT", help="of the version; default: the workload's")
    parser.add_argument("--json", action="store_true", help="print the version's ARN as one JSON document")
    parser.set_defaults(command=_register)


def _register(options: argparse.Namespace, stderr: Console) -> int:
    aws, folder = Aws(), load_workload(options.workload)
    workload, rows = folder.workload, folder.payloads()
    of_each = workload.latency_objective.rows_per_invocation
    check_payloads(workload.name, rows, of_each)
    model = aws.model(options.model_name or aws.stack_outputs(workload.stack_name).model_name)
    url = f"s3://{options.payload_bucket or aws.default_bucket()}/{payload_key(workload.name)}"
    package = package_request(workload, model, url, options.description or workload.description)
    aws.upload(url, payload_archive(rows, of_each))
    arn = aws.register(group_request(workload), package)
    print(json.dumps({"model_package_arn": arn}) if options.json else arn)
    tell(
        stderr,
        f"Test it by `python -m inference_recommender run {workload.name} --job advanced --model-package {arn}`.",
    )
    return 0
