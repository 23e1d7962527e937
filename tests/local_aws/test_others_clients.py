"""Clients that were not written here work against the account as they are. others/ has what their users write.

Each runs in an environment of its own, which a make target installs from a lock, and says which version it is. Their
pauses between two looks at a job are shortened; nothing else of them is changed. The account's jobs replay figures.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import BUCKET, IMAGE, ROLE, Clients, allow, make_role
from tests.locks import pins
from workloads import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.integration]

OTHERS = Path(__file__).parent / "others"


def installed(environment: str, program: str) -> str:
    file = ROOT / f".venv-{environment}" / "bin" / program
    if not file.exists():
        pytest.skip(
            f"There is no {file.relative_to(ROOT)}: `make {environment}` installs it, where PyPI can be reached."
        )
    return str(file)


def run(account: LocalAccount, folder: Path, *command: str) -> str:
    environment = {**os.environ, **account.environment, "HOME": str(folder), "SAGEMAKER_SUPPRESS_V2_WARNING": "1"}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-6000:]}"
    return ran.stdout


def results(account: LocalAccount, folder: Path, environment: str, program: str, role: str = ROLE) -> tuple[str, Any]:
    """Returns what a program printed before its last line, and that line, which is JSON."""
    python = installed(environment, "python")
    printed = run(account, folder, python, str(OTHERS / program), role, IMAGE, BUCKET)
    *before, last = printed.strip().splitlines()
    return "\n".join(before), json.loads(last)


def test_the_sagemaker_sdk_2_and_tritonclient(account: LocalAccount, tmp_path: Path) -> None:
    """right_size has its default log level, which waits for the job's log stream."""
    printed, told = results(account, tmp_path, "clients", "sagemaker_sdk_2.py")
    assert "Retrieved logStream: sdk-2-job/execution" in printed
    assert "test on ml.c5.xlarge: COMPLETED" in printed
    locked = pins(ROOT / "requirements" / "clients.txt")
    assert told == {
        "sagemaker": locked["sagemaker"],
        "tritonclient": locked["tritonclient"],
        "recommended": "ml.c5.xlarge",
        "model_latency": 10,
        "json": ["got hello"],
        "binary": ["got one", "got two"],
    }


def test_sagemaker_cores_resources(account: LocalAccount, tmp_path: Path) -> None:
    _, told = results(account, tmp_path, "clients-3", "sagemaker_core_2.py")
    assert told == {
        "sagemaker-core": pins(ROOT / "requirements" / "clients-3.txt")["sagemaker-core"],
        "json": ["got hello"],
        "recommended": "ml.c5.xlarge",
        "steps": ["COMPLETED"],
    }


@pytest.fixture
def serving_role(client: Clients) -> str:
    """A role as the SDK 3 wants it: it simulates the role's policies before it makes a model."""
    services = ("cloudwatch", "ecr", "iam", "logs", "s3", "sagemaker")
    return make_role(client("iam"), "serving-3", allow(*(f"{service}:*" for service in services)))


def test_the_sagemaker_sdk_3(account: LocalAccount, tmp_path: Path, serving_role: str) -> None:
    printed, told = results(account, tmp_path, "clients-3", "sagemaker_sdk_3.py", serving_role)
    assert "test on ml.c5.xlarge: COMPLETED" in printed
    assert told == {
        "sagemaker-serve": pins(ROOT / "requirements" / "clients-3.txt")["sagemaker-serve"],
        "model": "sdk-3",
        "recommended": "ml.c5.xlarge",
        "json": ["got hello"],
    }


def test_the_aws_cli(account: LocalAccount, tmp_path: Path) -> None:
    aws = installed("aws-cli", "aws")
    version = run(account, tmp_path, aws, "--version").split()[0]
    assert version == f"aws-cli/{pins(ROOT / 'requirements' / 'aws-cli.txt')['awscli']}"
    assert run(account, tmp_path, "bash", str(OTHERS / "aws_cli.sh"), aws, ROLE, IMAGE, BUCKET).splitlines() == [
        "123456789012",
        "two",
        "cli/below/two.txt cli/one.txt",
        "cli",
        "InService",
        "application/json",
        "['got hello']",
        "COMPLETED",
        "COMPLETED",
        "0",
    ]
