"""Attacks that once ran code in the account or in its Tritons are replayed, and none gets in.

Each returns how it got in, or None.
"""

import contextlib
import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import BUCKET, ECHO_CONFIG, IMAGE, ROLE, Endpoints, clients, tar_gz, upload

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EVIL_MODEL = """
import pathlib
pathlib.Path({mark!r}).touch()
class TritonPythonModel:
    def execute(self, requests):
        return []
"""
Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The account with an endpoint in service. Code of the attacker's that runs leaves the file `mark`."""

    account: LocalAccount
    mark: Path

    def listening(self) -> set[tuple[str, int]]:
        root = psutil.Process(self.account.pid)
        sockets = [each for process in (root, *root.children(recursive=True)) for each in process.net_connections()]
        return {(each.laddr.ip, each.laddr.port) for each in sockets if each.status == psutil.CONN_LISTEN}

    def call(self, method: str, path: str, body: bytes, service: str, key: Key | None, **headers: str) -> int:
        """Returns the status of a call that is signed with `key`, or not signed."""
        request = AWSRequest(method, self.account.endpoint_url + path, headers, body)
        if key is not None:
            S3SigV4Auth(Credentials(*key), service, "us-east-1").add_auth(request)
        port = int(self.account.endpoint_url.rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(request.headers.items()))
            return connection.getresponse().status


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("attacked")
    with LocalAccount.start(state=folder / "account") as account:
        upload(account)
        made = Endpoints(clients(account)("sagemaker"))
        assert made.settled(made.create("attacked", config=made.config("attacked")))["EndpointStatus"] == "InService"
        yield Target(account=account, mark=folder / "mark")


def run_a_model(target: Target, key: Key | None, headers: Mapping[str, str]) -> str | None:
    """Makes the calls that lead from a bucket to an endpoint whose code leaves the mark."""
    archive = tar_gz({"evil/config.pbtxt": ECHO_CONFIG, "evil/1/model.py": EVIL_MODEL.format(mark=str(target.mark))})
    container = {"Image": IMAGE, "ModelDataUrl": "s3://evil/evil.tar.gz"}
    variant = {"VariantName": "v", "ModelName": "evil", "InstanceType": "ml.c5.large", "InitialInstanceCount": 1}
    calls = {
        "CreateModel": {"ModelName": "evil", "ExecutionRoleArn": ROLE, "PrimaryContainer": container},
        "CreateEndpointConfig": {"EndpointConfigName": "evil", "ProductionVariants": [variant]},
        "CreateEndpoint": {"EndpointName": "evil", "EndpointConfigName": "evil"},
    }
    objects = [("PUT", "/evil", b""), ("PUT", "/evil/evil.tar.gz", archive), ("GET", f"/{BUCKET}/echo.tar.gz", b"")]
    answers = {path: target.call(method, path, body, "s3", key, **headers) for method, path, body in objects}
    for action, request in calls.items():
        about = {**headers, "X-Amz-Target": f"SageMaker.{action}"}
        answers[action] = target.call("POST", "/", json.dumps(request).encode(), "sagemaker", key, **about)
    return next((f"{call}: {status}" for call, status in answers.items() if status < 400), None)


def as_a_web_page(target: Target) -> str | None:
    origins: list[dict[str, str]] = [
        {"Origin": "https://evil.example"},
        {"Origin": "null", "Host": "evil.example"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"},
    ]
    return next(filter(None, (run_a_model(target, ("local", "local"), each) for each in origins)), None)


def with_keys_that_everybody_knows(target: Target) -> str | None:
    known: list[Key | None] = [
        ("local", "local"),
        ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY"),
        (target.account.environment["AWS_ACCESS_KEY_ID"], "a guess"),
        None,
    ]
    if target.call("POST", "/moto-api/reset", b"", "", None) < 400:
        return "moto's own API reset the account"
    return next(filter(None, (run_a_model(target, each, {}) for each in known)), None)


def in_a_million_chunks(target: Target) -> str | None:
    before = target.listening()
    for _, port in before:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            head = "POST /invocations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head.encode() + b"1\r\n \r\n" * 1_000_000 + b"0\r\n\r\n")
            connection.recv(1024)
    gone = before - target.listening()
    return f"{gone} do not listen any more" if gone else None


@pytest.mark.parametrize(
    "attack",
    [
        as_a_web_page,
        with_keys_that_everybody_knows,
        in_a_million_chunks,
    ],
)
def test_no_attack_gets_in(attack: Callable[[Target], str | None], target: Target) -> None:
    assert attack(target) is None
    assert not target.mark.exists(), "code of the attacker's ran in a Triton"
