"""`invoke`: ask a workload's deployed endpoint."""

import argparse

from rich.console import Console

from inference_recommender.client import InferenceClient, SageMakerEndpoint
from inference_recommender.jobs.aws import Aws
from inference_recommender.output import Commands, add_command
from inference_recommender.payloads import answer, row_of, tensors
from workloads import load_workload

LONGEST_S = 60.0
"""SageMaker gives an invocation up after this many seconds."""


def add(commands: Commands) -> None:
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
    endpoint = options.endpoint or Aws().stack_outputs(workload.stack_name).endpoint_name
    with SageMakerEndpoint(endpoint, timeout_s=LONGEST_S) as server:
        client = InferenceClient(server, deadline_s=LONGEST_S)
        for text, row in zip(options.texts, rows, strict=True):
            print(f"{text} -> {answer(client.infer(tensors(row)))}")
    return 0
