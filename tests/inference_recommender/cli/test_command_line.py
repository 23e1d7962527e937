"""Help, refusals in one sentence and exit codes of the command line. No AWS, no network."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import botocore.session
import pytest
from botocore.validate import ParamValidator

from aws_api.errors import LocalAccountEnded
from aws_api.service_model import validation_error
from inference_recommender.__main__ import COMMANDS, main
from tests.artifacts import an_artifact
from workloads import ROOT


@dataclass(frozen=True, slots=True)
class Ended:
    """A command's output and exit code."""

    returncode: int
    stdout: str
    stderr: str


Cli = Callable[..., Ended]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in this process, with no AWS configuration but the keywords, which are environment variables."""

    def run(*arguments: str, **environment: str) -> Ended:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        try:
            code = main([*arguments])
        except SystemExit as ended:  # of argparse
            code = int(ended.code or 0)
        shown = capsys.readouterr()
        return Ended(code, shown.out, shown.err)

    return run


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


@pytest.mark.parametrize("arguments", [("run", "--job", "defualt"), ("walk",)])
def test_usage_errors_exit_with_2(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli(*arguments).returncode == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"example:\n  python -m inference_recommender {command}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("run", "--with", "harness")])
def test_the_old_name_of_a_load_test_is_answered_with_the_new(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments]) == 2
    assert capsys.readouterr().err == "--with harness: is called --with load-test now.\n"


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


def test_without_a_word_a_job_runs_where_one_can_and_else_the_generator_asks_the_stacks_endpoint(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job's hosts of ml.g4dn start with driver 470; text_classification is served by TensorRT on them."""
    assert json.loads(cli("run", "spellcheck", "--target", "cpu", "--dry-run").stdout)["JobType"] == "Advanced"
    monkeypatch.setattr("inference_recommender.cli.load_test.load_artifact", lambda *named: an_artifact())
    chosen = cli("run", "text_classification", "--dry-run")
    assert chosen.returncode == 3, "there is no AWS to ask for the stack's endpoint"
    assert chosen.stderr.splitlines()[0] == (
        "Measuring with --with load-test: a job's hosts of ml.g4dn.xlarge, ml.g4dn.2xlarge, ml.g4dn.12xlarge, "
        "ml.g5.xlarge cannot start it."
    )
    url = cli("run", "spellcheck", "--url", "http://h:8000", "--dry-run")
    assert url.stderr == "Measuring with --with load-test: --url names a server.\n"
    assert json.loads(url.stdout)["plan"]["url"].startswith("http://h:8000/v2/models/")


@pytest.mark.parametrize("kind", ["default", "advanced"])
def test_a_job_that_could_not_start_on_aws_is_refused_when_it_is_planned(cli: Cli, kind: str) -> None:
    refused = cli("run", "text_classification", "--job", kind, "--dry-run")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.endswith(
        "on an endpoint that does: `python -m inference_recommender run text_classification --with load-test`.\n"
    )
    here = cli(
        *("run", "text_classification", "--job", kind, "--dry-run"),
        AWS_ENDPOINT_URL="http://127.0.0.1:9",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ACCESS_KEY_ID="x",
        AWS_SECRET_ACCESS_KEY="x",
    )
    assert here.returncode == 0, here.stderr


def test_a_dry_run_without_aws_prints_a_valid_request_and_says_what_stands_in(cli: Cli) -> None:
    shown = cli("run", "--job", "advanced", "--dry-run", "--target", "cpu")
    assert shown.returncode == 0
    request = json.loads(shown.stdout)
    shape = (
        botocore.session.get_session()
        .get_service_model("sagemaker")
        .shape_for("CreateInferenceRecommendationsJobRequest")
    )
    assert ParamValidator().validate(request, shape).generate_report() == ""
    assert shown.stderr == (
        "Warning: No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`. "
        "Until then ACCOUNT, REGION and the names of model and role stand for the real ones.\n"
    )


def test_a_dry_run_of_a_default_job_of_a_package_is_a_valid_request(cli: Cli) -> None:
    arn = "arn:aws:sagemaker:us-east-1:123456789012:model-package/spellcheck/3"
    role = "arn:aws:iam::123456789012:role/recommender"
    shown = cli(
        *("run", "--job", "default", "--dry-run", "--target", "cpu", "--model-package", arn, "--role-arn", role),
        *("--payload-bucket", "b"),
        *("--endpoint", "lives", "--subnet", "subnet-1", "--security-group", "sg-1", "--tag", "team=search"),
    )
    assert (shown.returncode, shown.stderr) == (
        0,
        "Warning: lives gets the whole load of the test: AWS advises against testing an endpoint that serves "
        "anybody.\n",
    )
    request = json.loads(shown.stdout)
    assert validation_error("sagemaker", "CreateInferenceRecommendationsJob", request) is None
    assert request["InputConfig"]["ModelPackageVersionArn"] == arn
    assert request["InputConfig"]["Endpoints"] == [{"EndpointName": "lives"}]
    assert {"Key": "team", "Value": "search"} in request["Tags"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("run", "--job", "advanced", "--dry-run", "--tag", "team"),
            "--tag: got 'team'. Allowed: KEY=VALUE.\n",
        ),
        (
            ("run", "--job", "default", "--dry-run", "--role-arn", "recommender", "--model-name", "m"),
            "--role-arn: got 'recommender'. Allowed: an IAM role's ARN, arn:aws:iam::ACCOUNT:role/NAME.\n",
        ),
        (
            ("run", "--job", "default", "--traffic", "quick", "--from-default", "runs/x"),
            "--traffic: is of an advanced job: say --job advanced.\n"
            "--from-default: is of an advanced job: say --job advanced.\n",
        ),
        (
            ("run", "--resume", "nowhere"),
            "--resume: nowhere holds no run that can be continued: it has no jobs.json. Runs are in the folder that "
            "--runs names, runs/ by default.\n",
        ),
        (
            ("run", "--job", "advanced", "--from-default", "nowhere"),
            "nowhere is no run folder: it has no request.json.\n",
        ),
    ],
)
def test_what_cannot_be_a_job_is_refused_in_a_sentence(cli: Cli, arguments: tuple[str, ...], told: str) -> None:
    refused = cli(*arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.endswith(told)


def test_no_region_says_how_to_set_one(cli: Cli) -> None:
    refused = cli("invoke", "spellcheck", "a")
    assert refused.returncode == 3
    assert refused.stderr == "No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`.\n"


def test_no_credentials_says_how_to_start_an_account(cli: Cli) -> None:
    refused = cli("invoke", "spellcheck", "a", AWS_DEFAULT_REGION="us-east-1")
    assert refused.returncode == 3
    assert refused.stderr == (
        "No AWS credentials were found. Configure them with `aws configure`, or start an account on this machine "
        "with `python -m local_aws` and export what it prints.\n"
    )


def test_an_account_that_is_not_running_says_how_to_start_it(cli: Cli) -> None:
    account = {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_ENDPOINT_URL": "http://localhost:9",
    }
    refused = cli("invoke", "spellcheck", "a", **account)
    assert refused.returncode == 3
    assert refused.stderr == f"{LocalAccountEnded('http://localhost:9')}\n"


def test_a_folder_that_is_no_run_is_refused(cli: Cli, tmp_path: Path) -> None:
    refused = cli("report", str(tmp_path))
    assert refused.returncode == 2
    assert refused.stderr == f"{tmp_path} is no run folder: it has no workload.json.\n"


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
