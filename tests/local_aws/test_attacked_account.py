"""A running account: its owner's tools work, and other users and web pages can neither reach nor read it."""

import http.client
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import BUCKET, Clients, Endpoints, refused

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def endpoint(sagemaker: Any) -> Iterator[str]:
    made = Endpoints(sagemaker)
    yield made.settled(made.create("attacked", config=made.config("attacked-config")))["EndpointName"]
    made.delete_all()


def signed(
    account: LocalAccount, service: str, method: str, path: str, keys: Any = "own", **headers: str
) -> AWSRequest:
    """Returns a request with the body {}, signed by the owner's keys or by others; None: not signed."""
    request = AWSRequest(method, account.endpoint_url + path, headers, b"{}")
    known = account.client_arguments()
    own = (known["aws_access_key_id"], known["aws_secret_access_key"])
    if keys is not None:
        SigV4Auth(Credentials(*(own if keys == "own" else keys)), service, "us-east-1").add_auth(request)
    return request


def open_to_others(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def test_nothing_that_the_account_keeps_is_readable_for_others(account: LocalAccount, endpoint: str) -> None:
    state = account.log_file.parent
    assert not open_to_others(state)
    # Below models/ are the modes that archives carry; the folder itself is closed.
    kept = [state / "models", *(path for path in state.rglob("*") if "models" not in path.parts)]
    assert {path.name for path in kept} >= {"models", "logs", "exports", "lock", "account.log"}
    assert [path for path in kept if open_to_others(path)] == []


def test_the_secret_is_in_no_command_line_no_childs_environment_and_no_log(
    account: LocalAccount, endpoint: str
) -> None:
    secret = account.environment["AWS_SECRET_ACCESS_KEY"]
    root = psutil.Process(account.pid)
    for process in (root, *root.children(recursive=True)):
        assert not [argument for argument in process.cmdline() if secret in argument]
        assert secret not in process.environ().values()
    logs = [account.log_file, *account.log_file.parent.glob("logs/*")]
    assert not [log for log in logs if secret in log.read_text("utf-8", "replace")]


@pytest.mark.parametrize(
    ("keys", "headers"),
    [
        ("own", {"Origin": "https://evil.example"}),
        ("own", {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}),
        ("own", {"Host": "evil.example"}),
        (("local", "local"), {}),
        (("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY"), {}),
        (None, {}),
    ],
)
def test_no_web_page_and_no_known_key_reaches_the_way_to_a_model(
    keys: Any, headers: dict[str, str], account: LocalAccount, client: Clients
) -> None:
    """These calls lead from a bucket to an endpoint that runs code."""
    calls = [("s3", "PUT", "/evil", ""), ("s3", "GET", f"/{BUCKET}/echo.tar.gz", "")]
    calls += [("sagemaker", "POST", "/", f"SageMaker.{name}") for name in ("CreateModel", "CreateEndpoint")]
    for service, method, path, target in [*calls, ("s3", "POST", "/moto-api/reset", "")]:
        request = signed(account, service, method, path, keys, **({"X-Amz-Target": target} if target else {}))
        sent = {**dict(request.headers.items()), **headers}
        assert requests.request(method, str(request.url), data=b"{}", headers=sent, timeout=60).status_code == 403
    assert "evil" not in [bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"]]


def test_no_answer_invites_web_pages(account: LocalAccount) -> None:
    """moto's own layer would allow every origin on every answer."""
    request = signed(account, "sagemaker", "POST", "/", **{"X-Amz-Target": "SageMaker.ListModels"})
    answer = requests.post(account.endpoint_url, b"{}", headers=dict(request.headers.items()), timeout=60)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_the_session_for_which_moto_hands_out_a_key_that_everybody_knows_is_refused(client: Clients) -> None:
    told = "This local account cannot do this: GetSessionToken; use AssumeRole."
    assert refused(client("sts").get_session_token)[1:] == ("NotImplemented", told)


def test_a_presigned_url_opens_one_object(account: LocalAccount) -> None:
    s3 = boto3.client("s3", **account.client_arguments(), config=Config(signature_version="s3v4"))
    url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "payloads.tar.gz"})
    assert requests.get(url, timeout=60).content[:2] == b"\x1f\x8b"
    assert requests.get(url.replace("payloads", "echo"), timeout=60).status_code == 403


def test_an_upload_in_signed_headers_with_its_checksum_at_the_end_arrives_whole(
    account: LocalAccount, client: Clients
) -> None:
    body = b"5\r\nhello\r\n6\r\n world\r\n0\r\nx-amz-checksum-crc32:DUoRhQ==\r\n\r\n"
    headers = {
        "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "x-amz-trailer": "x-amz-checksum-crc32",
        "x-amz-decoded-content-length": "11",
        "content-encoding": "aws-chunked",
    }
    path = f"/{BUCKET}/chunked"
    request = signed(account, "s3", "PUT", path, **headers)  # S3's own signer would hash the body
    port = int(account.endpoint_url.rpartition(":")[2])
    connection = http.client.HTTPConnection("localhost", port, timeout=60)
    connection.request("PUT", path, iter([body[:20], body[20:]]), dict(request.headers), encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    assert client("s3").get_object(Bucket=BUCKET, Key="chunked")["Body"].read() == b"hello world"
