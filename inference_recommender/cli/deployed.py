"""`invoke` and `register`: ask a workload's deployed endpoint; make its model a version in the model registry, ready
for a job and for approval.
"""

import argparse
import json

from rich.console import Console

from inference_recommender.client import InferenceClient, SageMakerEndpoint
from inference_recommender.measure.aws import Aws
from inference_recommender.measure.job_requests import group_request, package_request
from inference_recommender.output import Commands, add_command, tell
from inference_recommender.payloads import answer, check_payloads, payload_archive, row_of, tensors
from workloads import load_workload
from workloads.program import printable

LONGEST_S = 60.0
"""SageMaker gives an invocation up after this many seconds."""


def add_invoke(commands: Commands) -> None:
    parser = add_command(
        commands,
        "invoke",
        "send texts to a workload's deployed endpoint, print its answers",
        'invoke spellcheck "runing sheos" "waterprof jacket"',
    )
    parser.add_argument("workload", metavar="WORKLOAD")
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="a JSON object where the model has several fields")
    parser.add_argument("--endpoint", metavar="NAME", help="default: the one that the workload's stack deployed")
    parser.set_defaults(command=_invoke)


def _invoke(options: argparse.Namespace, stderr: Console) -> int:
    workload = load_workload(options.workload).workload
    rows = [row_of(text, workload.model.fields) for text in options.texts]
    endpoint = options.endpoint or Aws().endpoint_name(workload.stack_name, "--endpoint NAME")
    with SageMakerEndpoint(endpoint, timeout_s=LONGEST_S) as server:
        client = InferenceClient(server, deadline_s=LONGEST_S)
        for text, row in zip(options.texts, rows, strict=True):
            print(printable(f"{text} -> {answer(client.infer(tensors(row)))}"))
    return 0


def add_register(commands: Commands) -> None:
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
    from inference_recommender.measure.job import payload_key  # reports and their plots, which `invoke` does without

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
