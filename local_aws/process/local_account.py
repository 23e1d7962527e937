"""A local account in a process of its own, for tests and for `make run`. It ends with this process.

with LocalAccount.start(state=folder) as account:
    boto3.client("s3", **account.client_arguments())
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE
from typing import Any, Self

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN
from workloads import CODE, ROOT, Unavailable

SESSION_S = 43_200
PASSED_ON = ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_EC2_METADATA_DISABLED")


def role_session(account: Mapping[str, str], role_arn: str, name: str = "AWSCodeBuild") -> dict[str, str]:
    """Returns the variables of a new session of the role. `account` is the account's exports. Raises `Unavailable`."""
    sts: Any = botocore.session.Session().create_client("sts", **client_arguments(account))
    request = {"RoleArn": role_arn, "RoleSessionName": name, "DurationSeconds": SESSION_S}
    try:
        session = sts.assume_role(**request)["Credentials"]
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(f"{role_arn} cannot be assumed at the local account: {error}") from error
    return {name: account[name] for name in PASSED_ON if name in account} | session_variables(session)


def session_variables(credentials: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of a session from the answer of AssumeRole."""
    return {
        "AWS_ACCESS_KEY_ID": credentials["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": credentials["SecretAccessKey"],
        "AWS_SESSION_TOKEN": credentials["SessionToken"],
    }


def client_arguments(account: Mapping[str, str]) -> dict[str, Any]:
    """Returns the arguments of a client that reaches the account, from its exports or a session's variables."""
    return {
        "endpoint_url": account["AWS_ENDPOINT_URL"],
        "region_name": account["AWS_REGION"],
        "aws_access_key_id": account["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": account["AWS_SECRET_ACCESS_KEY"],
        "aws_session_token": account.get("AWS_SESSION_TOKEN"),
    }


class LocalAccount:
    def __init__(self, process: GuardedProcess, environment: Mapping[str, str], log_file: Path) -> None:
        self._process = process
        self.environment = environment
        self.log_file = log_file

    @classmethod
    def start(
        cls,
        *,
        state: Path,
        port: int = 0,
        region: str = "us-east-1",
        toolchain: Path = DEFAULT_TOOLCHAIN,
        servers: int = 1,
        pace: str = "aws",
        quotas: str = "none",
        program: str = "local_aws",
        code: Path = CODE,
    ) -> "LocalAccount":
        """Starts the account that module `program` in `code` serves, and waits for it. Raises `Unavailable`."""
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        log_file = state / "account.log"
        log_file.touch(mode=0o600)
        options = ["--port", str(port), "--state", str(state), "--region", region, "--servers", str(servers)]
        options += ["--pace", pace, "--quotas", quotas]
        with log_file.open("ab") as log:
            began_at = log.tell()
            process = GuardedProcess.start(
                [sys.executable, "-m", program, *options],
                environment={
                    "PATH": "/usr/local/bin:/usr/bin:/bin",
                    "PYTHONPATH": str(code),
                    "LOCAL_AWS_TRITON_VENV": str(toolchain),
                },
                stdout=PIPE,
                stderr=log,
                working_directory=ROOT,
                grace_s=30,
            )
        exported: dict[str, str] = {}
        for line in process.stdout:
            name, _, value = line.decode().strip().removeprefix("export ").partition("=")
            if value:
                exported[name] = value
            if name == "AWS_EC2_METADATA_DISABLED":  # the last export
                break
        if not exported:
            status = process.wait()
            last_lines = log_file.read_bytes()[began_at:].decode("utf-8", "replace").strip()
            raise Unavailable(
                f"The local account did not start: it ended with exit status {status}."
                + (f" Its last lines:\n{last_lines}" if last_lines else "")
            )
        return cls(process, exported, log_file)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def endpoint_url(self) -> str:
        return self.environment["AWS_ENDPOINT_URL"]

    def client_arguments(self) -> dict[str, Any]:
        """Returns the arguments of boto3.client that reach the account, whatever the environment says."""
        return client_arguments(self.environment)

    def stop(self) -> None:
        self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
