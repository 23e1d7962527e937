"""`invoke` and `register`: send texts to a deployed endpoint, and register its model in the model registry."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli import arguments
from inference_recommender.client import HttpServer, InferenceClient, SageMakerEndpoint
from inference_recommender.measure.job_requests import DOMAIN, TASKS, container_facts
from inference_recommender.output import Commands, add_command, tell
from inference_recommender.payloads import answer, check_payloads, content_type_of, payload_archive, row_of, tensors
from workloads import ROOT, Unavailable, UsageError, Workload, load_artifact, load_workload
from workloads.folder import with_settings
from workloads.program import printable

TIMEOUT_S = 60.0
"""SageMaker's limit of an invocation, in seconds."""


def add_invoke(commands: Commands) -> None:
    parser = add_command(commands, 'invoke spellcheck "runing sheos" "waterprof jacket"')
    parser.add_argument("workload", metavar="WORKLOAD")
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="a JSON object if the model has several fields")
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--endpoint", metavar="NAME", help="default: the endpoint of the workload's stack")
    server.add_argument("--url", metavar="URL", help="KServe v2 server that has the build's model")
    parser.add_argument("--model", metavar="NAME", help="another workload of the archive's [[models]] that answers")
    parser.set_defaults(command=_invoke)


def _invoke(options: argparse.Namespace, stderr: Console) -> int:
    workload = load_workload(options.workload).workload
    if options.model and options.model not in (known := [each.workload for each in workload.models]):
        raise UsageError(
            f"--model: got '{options.model}'. Allowed: the [[models]] of workloads/{workload.name}/workload.toml, "
            f"{', '.join(known) or 'of which there are none'}. Leave it out for the workload's own model."
        )
    answering = load_workload(options.model).workload if options.model else workload
    parameters = {"model": options.model} if options.model else None
    rows = [row_of(text, answering.model.fields) for text in options.texts]
    with _server(options, workload) as server:
        client = InferenceClient(server, deadline_s=TIMEOUT_S)
        for text, row in zip(options.texts, rows, strict=True):
            print(printable(f"{text} -> {answer(client.infer(tensors(row), parameters=parameters))}"))
    return 0


def _server(options: argparse.Namespace, workload: Workload) -> HttpServer | SageMakerEndpoint:
    if options.url:
        model = load_artifact(ROOT, workload.name, workload.hosting.target).default_model
        return HttpServer(options.url, model, timeout_s=TIMEOUT_S)
    endpoint = options.endpoint or SageMakerAccount().endpoint_name(workload.stack_name)
    return SageMakerEndpoint(endpoint, timeout_s=TIMEOUT_S)


def add_register(commands: Commands) -> None:
    parser = add_command(commands, "register spellcheck")
    parser.add_argument("workload", nargs="?", default="spellcheck", metavar="WORKLOAD", help="default: spellcheck")
    arguments.add_settings(parser)
    parser.add_argument("--json", action="store_true", help="print the version's ARN as one JSON document")
    parser.set_defaults(command=_register)


def _register(options: argparse.Namespace, stderr: Console) -> int:
    from inference_recommender.measure.job import payload_key  # reports and plots, which `invoke` does not need

    account, folder = SageMakerAccount(), with_settings(load_workload(options.workload), options.settings)
    workload, payloads = folder.workload, folder.payloads()
    objective = workload.latency_objective
    check_payloads(workload.name, payloads, objective)
    model = account.model(workload.recommender.model or account.stack_output(workload.stack_name, "ModelName"))
    url = f"s3://{workload.recommender.bucket or account.default_bucket()}/{payload_key(workload)}"
    package = package_request(workload, model, url)
    account.upload(url, payload_archive(payloads, objective))
    arn = account.register(group_request(workload), package)
    print(json.dumps({"model_package_arn": arn}) if options.json else arn)
    tell(
        stderr,
        f"Test it with `python -m inference_recommender run {workload.name} --job advanced --set "
        f"recommender.model={arn}`.",
    )
    return 0


def group_request(workload: Workload) -> dict[str, Any]:
    """Returns the request of CreateModelPackageGroup."""
    return {
        "ModelPackageGroupName": workload.package_group,
        "ModelPackageGroupDescription": workload.description,
        "Tags": [{"Key": "workload", "Value": workload.name}],
    }


def package_request(workload: Workload, model: Mapping[str, Any], payload_url: str) -> dict[str, Any]:
    """Returns the request of CreateModelPackage for a version that awaits approval. `model` is a response of
    DescribeModel. Raises `Unavailable` if the model is not one container with an image.
    """
    return {
        "ModelPackageGroupName": workload.package_group,
        "ModelPackageDescription": workload.description,
        "ModelApprovalStatus": "PendingManualApproval",
        "Domain": DOMAIN,
        "Task": TASKS[workload.model.task],
        "SamplePayloadUrl": payload_url,
        "InferenceSpecification": {
            "Containers": [{**_package_container(model), **container_facts(workload)}],
            "SupportedContentTypes": [content_type_of(workload)],
            "SupportedResponseMIMETypes": [content_type_of(workload)],
            "SupportedRealtimeInferenceInstanceTypes": list(workload.instance_types),
        },
    }


def _package_container(model: Mapping[str, Any]) -> dict[str, Any]:
    containers = [model["PrimaryContainer"]] if model.get("PrimaryContainer") else model.get("Containers", [])
    if len(containers) != 1 or "Image" not in containers[0]:
        raise Unavailable(
            f"Model {model['ModelName']} cannot be registered: a model package needs one container with an image. Set "
            "another with --set recommender.model=NAME."
        )
    copied = ("Image", "ModelDataUrl", "ModelDataSource", "Environment")
    return {name: containers[0][name] for name in copied if containers[0].get(name)}
