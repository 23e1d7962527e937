"""The account as a process: it leaves nothing behind, whichever way it ends, and refuses in one sentence."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
import requests
from botocore.session import Session

from local_aws.process.local_account import LocalAccount, role_session
from local_aws.process.triton import TritonServer, container_flags
from local_aws.process.triton_toolchain import TritonToolchain
from tests.builders import known, message_of
from tests.local_aws.conftest import REPLAYING, Endpoints, clients, gone, make_role, upload, wait_until
from tests.local_aws.sagemaker.test_recommendation_jobs import request, under_load
from tests.quick_triton import EXTRA, FLAGS, over_tcp
from workloads import ROOT, Unavailable

integration = pytest.mark.integration


def busy_account(state: Path, toolchain: Path) -> tuple[LocalAccount, list[int]]:
    """Starts an account with an endpoint in service and a job at work; returns it with the ids of all its processes."""
    account = LocalAccount.start(state=state, toolchain=toolchain, pace="quick", program=REPLAYING)
    upload(account)
    client = clients(account)
    sagemaker = client("sagemaker")
    made = Endpoints(sagemaker)
    made.settled(made.create("kept", config=made.config("kept")))
    sagemaker.create_inference_recommendations_job(**request("running", made.model("measured"), seconds=120))
    under_load(sagemaker, client, "running")
    return account, processes(account)


def processes(account: LocalAccount) -> list[int]:
    root = psutil.Process(account.pid)
    return [root.pid, *(child.pid for child in root.children(recursive=True))]


def leftovers(pids: list[int]) -> list[Path]:
    """Returns the shared memory and scratch files of the Tritons among `pids`."""
    arguments = [argument for pid in pids for argument in psutil.Process(pid).cmdline()]
    names = {each.split("=")[-1] for each in arguments if "shm-region-prefix-name=" in each}
    folders = [Path(folder) for folder in ("/dev/shm", tempfile.gettempdir())]
    return [path for name in names for folder in folders for path in folder.glob(f"{name}*")]


@integration
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        signal.SIGKILL,
    ],
)
def test_no_process_is_left_behind(number: signal.Signals, tmp_path: Path, toolchain: Path) -> None:
    account, pids = busy_account(tmp_path, toolchain)
    try:
        # the account, two Tritons with a guard and a stub each, and the generator
        assert len(pids) >= 8
        files = leftovers(pids)
        assert len(files) == 4
        os.kill(account.pid, number)
        wait_until(lambda: all(gone(pid) for pid in pids))
        wait_until(lambda: not any(path.exists() for path in files))
        if number != signal.SIGKILL:
            assert account.log_file.read_text().endswith("local_aws: stopped; nothing is left running\n")
            (records,) = tmp_path.glob("jobs/running/*/summary.json")
            assert '"reason": "stopped"' in records.read_text(), "the measurements are kept"
    finally:
        account.stop()


@integration
def test_an_interrupt_ends_it_in_order_and_it_says_how_to_use_it(tmp_path: Path, toolchain: Path) -> None:
    account = LocalAccount.start(state=tmp_path, toolchain=toolchain)
    try:
        os.kill(account.pid, signal.SIGINT)
        wait_until(lambda: gone(account.pid))
        told = account.log_file.read_text()
        assert f"local_aws: use it: `source {tmp_path}/exports` in another terminal" in told
        assert "See docs/local-account.md" in told
        assert told.endswith("local_aws: stopped; nothing is left running\n")
    finally:
        account.stop()


@integration
def test_the_account_ends_with_the_process_that_started_it(tmp_path: Path, toolchain: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from local_aws.process.local_account import LocalAccount\n"
        "account = LocalAccount.start(state=Path(sys.argv[1])); print(account.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
    )
    with known(parent.stdout):
        pid = int(known(parent.stdout).readline())
    assert not gone(pid)
    parent.kill()
    parent.wait()
    wait_until(lambda: gone(pid))


@integration
def test_a_port_that_is_taken_is_one_sentence_and_exit_3(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = (
            f"Port {port} of localhost is taken by another process. Stop that process, or choose another port with "
            f"`python -m local_aws --port N` (0 picks a free one)."
        )
        assert message_of(Unavailable, LocalAccount.start, state=tmp_path, port=port) == (
            f"The local account did not start: it ended with exit status 3. Its last lines:\n{sentence}"
        )


@integration
def test_it_listens_on_loopback_only_and_prints_its_exports(account: LocalAccount) -> None:
    assert account.environment["AWS_ENDPOINT_URL"] == f"http://localhost:{account.endpoint_url.rsplit(':', 1)[1]}"
    assert account.environment["AWS_REGION"] == account.environment["AWS_DEFAULT_REGION"] == "us-east-1"
    listening = [c for c in psutil.Process(account.pid).net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert {connection.laddr.ip for connection in listening} <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize(
    ("system", "machine", "reason"),
    [
        ("Darwin", "arm64", "Triton's wheel exists for Linux x86-64 only, and this is Darwin arm64"),
        ("Linux", "x86_64", "{venv} is not a virtual environment"),
    ],
)
def test_a_missing_toolchain_says_what_to_do(system: str, machine: str, reason: str, tmp_path: Path) -> None:
    assert message_of(Unavailable, TritonToolchain.locate, tmp_path, system, machine) == (
        f"There is no Triton server to answer for an endpoint: {reason.format(venv=tmp_path)}. On Linux x86-64, "
        f"`make triton` installs one; elsewhere, use a running endpoint of a real AWS account (unset AWS_ENDPOINT_URL)."
    )


@integration
def test_tritons_own_load_api_is_closed_on_its_socket_too(
    echo_repository: Path, toolchain: Path, tmp_path: Path
) -> None:
    opening = "--model-control-mode=explicit --allow-metrics=true --allow-grpc=true --http-address=0.0.0.0"
    environment = {EXTRA: f"{FLAGS} {opening}"}
    with (
        TritonServer.start(
            echo_repository,
            default_model="echo",
            environment=environment,
            log_file=tmp_path / "log",
            toolchain=toolchain,
        ) as server,
        over_tcp(server) as url,
    ):
        for path in (
            "repository/index",
            "repository/models/evil/load",
            "systemsharedmemory/region/a/register",
            "logging",
        ):
            answer = requests.post(f"{url}/v2/{path}", data="{}", timeout=60)
            assert (answer.status_code, path) == (403, path)
        ports = [at for at in psutil.Process(server.pid).net_connections("inet") if at.status == psutil.CONN_LISTEN]
        assert ports == [], "no flag of a model's opens one"


@integration
def test_a_model_that_takes_too_long_is_stopped(echo_repository: Path, toolchain: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(Unavailable) as late:
        TritonServer.start(
            echo_repository, default_model="echo", log_file=log, toolchain=toolchain, start_timeout_s=0.2
        )
    assert str(late.value).startswith(
        f"Triton was not ready with the model 'echo' after 0.2 s and was stopped. Its whole log is {log}."
    )


def test_the_containers_variables_become_tritons_flags() -> None:
    given = {
        "SAGEMAKER_TRITON_LOG_VERBOSE": "true",
        "SAGEMAKER_TRITON_THREAD_COUNT": "4",
        "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE": "1000",
        "SAGEMAKER_TRITON_ADDITIONAL_ARGS": "--cache-config=local,size=1048576",
        "OTHER": "x",
    }
    assert container_flags(given) == [
        "--log-verbose=1",
        "--http-thread-count=4",
        "--backend-config=python,shm-default-byte-size=1000",
        "--backend-config=python,shm-growth-byte-size=1048576",
        "--cache-config=local,size=1048576",
    ]


@pytest.mark.integration
def test_boto3_calls_the_account_as_the_role(account: LocalAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    iam = boto3.client("iam", **account.client_arguments())
    arn = make_role(iam, "step", trusted={"AWS": "*"})
    variables = role_session(account.environment, arn)
    assert account.environment["AWS_SECRET_ACCESS_KEY"] not in variables.values(), "the owner's key stays out"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    sts: Any = Session().create_client("sts")
    identity = sts.get_caller_identity()
    assert identity["Arn"] == "arn:aws:sts::123456789012:assumed-role/step/AWSCodeBuild"


@pytest.mark.integration
def test_an_account_that_refuses_its_key_is_reported(account: LocalAccount) -> None:
    other = {**account.environment, "AWS_ACCESS_KEY_ID": "LOCAL0000000000OTHER"}
    with pytest.raises(Unavailable, match=r"^arn:aws:iam::123456789012:role/step cannot be assumed at the local "):
        role_session(other, "arn:aws:iam::123456789012:role/step")
