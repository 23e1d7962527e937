"""A copy of the repository and an AWS account to deploy it to, for tests that run the real commands."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest

from local_aws.process.local_account import LocalAccount
from workloads import ROOT, NoVerdict

LEFT_OUT = (
    ".*",
    "node_modules",
    "build",
    "runs",
    "cdk.out",
    "__pycache__",
    "*.egg-info",
    "recommendation.json",
    "tests",
)


@dataclass
class RepositoryCopy:
    root: Path
    account: LocalAccount
    packages: str = "."
    """The folder that the packages are imported from."""

    def environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        tools = f"{self.packages}/bin:{Path(sys.executable).parent}:{ROOT / 'node_modules' / '.bin'}"
        return {
            **inherited,
            **self.account.environment,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": self.packages,
        }

    def start(self, *command: str, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """Starts a command in the copy; `variables` are of its environment, besides the account's."""
        return subprocess.Popen(
            command,
            cwd=self.root,
            env={**self.environment(), **(variables or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, expect: int = 0, variables: Mapping[str, str] | None = None) -> str:
        """Returns standard output, or standard error where the command is expected to fail."""
        process = self.start(*command, variables=variables)
        stdout, stderr = process.communicate(timeout=900)
        assert process.returncode == expect, f"{' '.join(command)} ended with {process.returncode}\n{stdout}\n{stderr}"
        return stdout if expect == 0 else stderr

    def measure(self, *command: str, variables: Mapping[str, str] | None = None) -> str:
        """Returns standard output, or skips the test where this machine is too busy for a verdict."""
        process = self.start(*command, variables=variables)
        stdout, stderr = process.communicate(timeout=900)
        if process.returncode == NoVerdict.exit_code or "No verdict" in stderr:
            pytest.skip(f"this machine is too busy to measure: {stderr.splitlines()[-1]}")
        assert process.returncode == 0, stderr
        return stdout

    def deploy(self, *options: str, stack: str = "SpellcheckStack") -> None:
        self.run("cdk", "deploy", stack, "--require-approval", "never", "--ci", *options)

    def client(self, service: str) -> Any:
        make: Any = boto3.client
        return make(service, **self.account.client_arguments())

    def outputs(self, stack: str = "SpellcheckStack") -> dict[str, str]:
        (described,) = self.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}

    def tritons(self) -> list[psutil.Process]:
        """Servers that the account has started, oldest first."""
        children = psutil.Process(self.account.pid).children(recursive=True)
        servers = (child for child in children if child.name() == "tritonserver")
        return sorted(servers, key=lambda server: server.create_time())

    def misspelt(self) -> dict[str, str]:
        """A row of the evaluation that the model has to correct."""
        lines = (self.root / "workloads" / "spellcheck" / "evaluation.jsonl").read_text("utf-8").splitlines()
        return next(row for row in map(json.loads, lines) if row["text"] != row["label"])


@contextmanager
def repository_copy(root: Path, program: str = "local_aws") -> Iterator[RepositoryCopy]:
    """Copies the repository to `root` and starts an account, by its program, which ends with the block."""
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*LEFT_OUT))
    with LocalAccount.start(
        state=root / ".local_aws", toolchain=ROOT / ".venv-triton", pace="quick", program=program
    ) as account:
        yield RepositoryCopy(root, account)
