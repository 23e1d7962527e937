"""Help, refusals in one sentence and exit codes of the command line. No AWS, no network."""

import json
import os
import subprocess
import sys

import pytest

from aws_api.errors import LocalAccountEnded
from aws_api.service_model import problems
from inference_recommender.output import COMMANDS
from tests.inference_recommender.conftest import Cli
from workloads import ROOT


def test_help_teaches_the_commands_and_the_exit_codes(cli: Cli) -> None:
    shown, bare = cli("--help"), cli()
    assert (shown.returncode, bare.returncode, bare.stderr) == (0, 0, "")
    assert bare.stdout == shown.stdout
    for taught in (
        "run spellcheck --job advanced",
        "size --from",
        "invoke spellcheck",
        "Exit codes",
        "docs/measuring.md",
    ):
        assert taught in shown.stdout
    for command in COMMANDS:
        assert f"\n    {command}" in shown.stdout
        assert f"example:\n  python -m inference_recommender {command}" in cli(command, "--help").stdout
    assert [cli(*wrong).returncode for wrong in (("run", "--job", "defualt"), ("walk",))] == [2, 2]


def test_an_unknown_workload_and_profile_are_refused(cli: Cli) -> None:
    unknown = cli("run", "speling", "--job", "advanced")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert (
        unknown.stderr == "There is no workload 'speling'. "
        "Known workloads: duplicates, query_intent, question_answering, spellcheck, text_classification.\n"
    )
    traffic = cli("run", "--job", "advanced", "--traffic", "peak")
    assert traffic.returncode == 2
    assert traffic.stderr.endswith("there is no traffic profile 'peak'. Known profiles: longer, production, quick.\n")


NEWER = ("--set", "hosting.triton_version=25.09")
"""Does not start with the default driver of ml.g4dn and ml.g5."""


def test_without_options_a_job_runs_or_the_stacks_endpoint_is_measured(cli: Cli) -> None:
    assert json.loads(cli("run", "text_classification", "--dry-run").stdout)["JobType"] == "Advanced"
    chosen = cli("run", "text_classification", "--dry-run", *NEWER)
    assert chosen.returncode == 3, "there is no AWS to ask for the stack's endpoint"
    assert chosen.stderr.splitlines()[0] == (
        "A job's hosts of ml.g4dn.xlarge, ml.g4dn.2xlarge, ml.g4dn.12xlarge, ml.g5.xlarge cannot start the model. "
        "Measuring the stack's endpoint instead."
    )


LOCAL = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
}


@pytest.mark.parametrize("kind", ["default", "advanced"])
def test_a_dry_run_prints_the_request_of_a_job_that_would_be_refused(cli: Cli, kind: str) -> None:
    shown = cli("run", "text_classification", "--job", kind, "--dry-run", *NEWER)
    assert shown.returncode == 0
    assert problems("sagemaker", "CreateInferenceRecommendationsJob", json.loads(shown.stdout)) == []
    assert "This job would be refused. hosting.triton_version: a job's hosts of ml.g4dn.xlarge" in shown.stderr


@pytest.mark.parametrize("workload", ["spellcheck", "text_classification", "question_answering"])
def test_a_dry_run_without_aws_prints_a_valid_request_with_placeholders(cli: Cli, workload: str) -> None:
    shown = cli("run", workload, "--job", "advanced", "--dry-run", "--json")
    assert problems("sagemaker", "CreateInferenceRecommendationsJob", json.loads(shown.stdout)) == []
    assert shown.returncode == 0
    assert shown.stderr == (
        "Warning: No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`. "
        "The requests below have placeholders for account, region, model and role.\n"
    )


def test_a_dry_run_of_a_default_job_of_a_package_is_a_valid_request(cli: Cli) -> None:
    arn = "arn:aws:sagemaker:us-east-1:123456789012:model-package/spellcheck/3"
    settings = (f"model={arn}", "role_arn=arn:aws:iam::123456789012:role/r", "bucket=b", "tags.team=search")
    shown = cli(
        *("run", "--job", "default", "--dry-run", "--target", "cpu", "--endpoint", "lives"),
        *(word for setting in settings for word in ("--set", f"recommender.{setting}")),
    )
    assert (shown.returncode, shown.stderr) == (
        0,
        "Warning: lives receives the whole test load. AWS advises against testing an endpoint in production.\n",
    )
    request = json.loads(shown.stdout)
    assert problems("sagemaker", "CreateInferenceRecommendationsJob", request) == []
    assert request["InputConfig"]["ModelPackageVersionArn"] == arn
    assert request["InputConfig"]["Endpoints"] == [{"EndpointName": "lives"}]
    assert {"Key": "team", "Value": "search"} in request["Tags"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("run", "--resume", "nowhere"),
            "--resume: nowhere has no jobs.json, so there is no job to continue. Name a run folder below --runs "
            "(default: runs/).\n",
        ),
        (
            ("run", "--job", "advanced", "--from-default", "nowhere"),
            "nowhere is not a run folder: it has no request.json.\n",
        ),
        (("report", "."), ". is not a run folder: it has no workload.json.\n"),
        (("jobs", "stop"), "jobs stop: needs the name of a job. `jobs list` shows the names.\n"),
        (("jobs", "explain"), "jobs explain: needs the name of a job. `jobs list` shows the names.\n"),
    ],
)
def test_what_cannot_be_measured_is_rejected_in_a_sentence(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    refused = cli(*arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.endswith(message)


NO_CREDENTIALS = (
    "No AWS credentials were found. Configure them with `aws configure`, or start an account on this machine with "
    "`python -m local_aws` and export what it prints."
)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`."),
        ({"AWS_DEFAULT_REGION": "us-east-1"}, NO_CREDENTIALS),
        (LOCAL, str(LocalAccountEnded("http://127.0.0.1:9"))),
    ],
)
def test_an_aws_that_is_not_there_says_what_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], message: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cli("invoke", "spellcheck", "a") == (3, "", f"{message}\n")


def test_a_reader_of_stdout_that_has_gone_is_no_traceback() -> None:
    """`… --json | head`."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as gone:
        command = [sys.executable, "-m", "inference_recommender", "size", "--explain", "--json"]
        done = subprocess.run(
            command, cwd=ROOT, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=300, check=False
        )
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr
