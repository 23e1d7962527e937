"""Where the generator sends to: any URL over http and https, and SageMaker endpoints by name with signed requests."""

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials

from aws_api.errors import NO_CREDENTIALS, NO_REGION, AwsUnavailable
from inference_recommender.load_generator.load_plan import Arrivals, LoadPlan, NamedEndpoint
from inference_recommender.load_generator.load_run import Run
from inference_recommender.load_generator.requests import CYCLE_S, Outgoing, Signer, Target, outgoing, read_payloads
from inference_recommender.payloads import payload_archive
from tests.builders import message_of
from tests.inference_recommender.load_generator.virtual_run import drive
from tests.inference_recommender.server import serving
from tests.virtual_time import Network, VirtualLoop, answering

ARRIVALS = Arrivals(invocations_per_minute=3000, duration_in_seconds=0.5, connections=4)
KEY, SECRET, TOKEN, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", "a/session+token=", "eu-west-1"
"""Credentials without an account: the first is the example of AWS's own documentation."""
BODY = b'{"text":"runing sheos"}'


def _plan(**members: Any) -> LoadPlan:
    return LoadPlan(**{"payloads": Path("payloads"), "arrivals": ARRIVALS, **members})


def _drive(plan: LoadPlan) -> tuple[str, Run]:
    """Drives a run in real time; returns why it ended, and the run."""

    async def drive() -> tuple[str, Run]:
        run = Run(plan, outgoing(plan, [BODY]), lambda window: None)
        return await run.drive(), run

    return asyncio.run(drive())


def test_a_kserve_url_gets_its_path_query_and_headers() -> None:
    headers = {"Inference-Header-Content-Length": "100", "Authorization": "Bearer x"}
    plan = _plan(url="http://server:8000/v2/models/spellcheck/infer?a=1&b=2", headers=headers)
    assert outgoing(plan, [BODY]).requests == [
        b"POST /v2/models/spellcheck/infer?a=1&b=2 HTTP/1.1\r\n"
        b"Host: server:8000\r\nContent-Type: application/json\r\nInference-Header-Content-Length: 100\r\n"
        b"Authorization: Bearer x\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
    ]


@pytest.mark.integration
def test_requests_reach_a_server_on_a_unix_socket(tmp_path: Path) -> None:
    with serving(socket_path=tmp_path / "Triton (1).sock") as server:
        ended, run = _drive(_plan(url=server.url))
    assert server.url.endswith("/Triton%20%281%29.sock".replace("/", "%2F") + "/invocations")
    assert (ended, run.log.requests().errors) == ("traffic ended", 0)
    assert len(server.seen) == len(run.log) > 0
    path, headers = server.heads[0]
    assert (path, headers["Host"]) == ("/invocations", "localhost")


@pytest.mark.integration
def test_a_unix_socket_without_a_server_is_reported_with_its_path(tmp_path: Path) -> None:
    socket = tmp_path / "none.sock"
    arrivals = ARRIVALS.model_copy(update={"duration_in_seconds": 60.0})
    ended, _ = _drive(_plan(url=f"http+unix://{quote(str(socket), safe='')}/infer", arrivals=arrivals, window_s=0.3))
    assert ended == f"target failed: {socket} refuses connections (No such file or directory)"


@pytest.mark.integration
def test_https_to_a_server_whose_certificate_is_trusted(
    certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, context = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with serving(tls=context) as server:
        ended, run = _drive(_plan(url=server.url))
    assert server.url.startswith("https://")
    assert ended == "traffic ended"
    assert len(run.log) > 0
    assert run.log.requests().errors == 0
    assert set(server.seen) == {BODY}
    assert server.connections == ARRIVALS.connections


@pytest.mark.integration
def test_https_to_a_server_with_an_unknown_certificate_fails_with_the_reason(
    certificate: tuple[Path, ssl.SSLContext],
) -> None:
    with serving(tls=certificate[1]) as server:
        arrivals = ARRIVALS.model_copy(update={"duration_in_seconds": 60.0})
        ended, _ = _drive(_plan(url=server.url, arrivals=arrivals, window_s=0.3))
    assert ended.startswith(f"target failed: {server.root.removeprefix('https://')} refuses connections (")
    assert "CERTIFICATE_VERIFY_FAILED" in ended
    assert server.seen == []


def _signature_of(path: str, headers: dict[str, str], body: bytes) -> str:
    """Returns the signature that the receiver of a request computes and compares with its Authorization."""
    request = AWSRequest(method="POST", url=f"http://{headers['Host']}{path}", data=body)
    names = headers["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    for name, value in headers.items():
        if name.lower() in names:
            request.headers[name] = value
    request.context["timestamp"] = headers["X-Amz-Date"]
    auth = SigV4Auth(Credentials(KEY, SECRET, TOKEN), "sagemaker", REGION)
    return str(auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request))


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"])
def test_an_endpoint_by_name_gets_requests_that_are_signed(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    _credentials(monkeypatch)
    monkeypatch.setenv(variable, "http://127.0.0.1:9090")
    endpoint = NamedEndpoint(name="spellcheck-endpoint")
    bodies = [BODY, b'{"text":"another"}']
    sent = outgoing(_plan(endpoint=endpoint), bodies)
    assert sent.signer is not None
    for request, body in zip(sent.requests, bodies, strict=True):
        head, _, sent_body = request.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        assert first == "POST /endpoints/spellcheck-endpoint/invocations HTTP/1.1"
        assert sent_body == body
        assert headers["Host"] == "127.0.0.1:9090"
        assert headers["X-Amz-Security-Token"] == TOKEN
        assert (
            f"Credential={KEY}/{headers['X-Amz-Date'][:8]}/{REGION}/sagemaker/aws4_request" in headers["Authorization"]
        )
        signature = _signature_of("/endpoints/spellcheck-endpoint/invocations", headers, body)
        assert headers["Authorization"].endswith(f"Signature={signature}")


def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "SESSION_TOKEN": TOKEN, "DEFAULT_REGION": REGION}
    for name, value in values.items():
        monkeypatch.setenv(f"AWS_{name}", value)


def test_an_endpoint_without_credentials_or_region_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _credentials(monkeypatch)
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    plan = _plan(endpoint=NamedEndpoint(name="e"))
    assert message_of(AwsUnavailable, outgoing, plan, [BODY]) == NO_REGION
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert message_of(AwsUnavailable, outgoing, plan, [BODY]) == NO_CREDENTIALS


TARGET = Target.of("http://127.0.0.1:9/endpoints/e/invocations")


def _signer(credentials: Callable[[], ReadOnlyCredentials], url: Target = TARGET) -> Signer:
    return Signer(url, {"Content-Type": "application/json"}, [b"one", b"two"], REGION, credentials)


def test_requests_are_signed_again_one_by_one_before_they_are_too_old() -> None:
    keys = iter(["FIRST", "SECOND", "THIRD"])
    signer = _signer(lambda: ReadOnlyCredentials(next(keys), SECRET, None))
    requests = signer.sign_all()
    signed_with: list[tuple[str, ...]] = []

    async def look_every_minute() -> None:
        task = asyncio.create_task(signer.keep_fresh(requests))
        for _ in range(4):
            signed_with.append(tuple(str(request).split("Credential=")[1].split("/")[0] for request in requests))
            await asyncio.sleep(CYCLE_S / 2 + 0.001)
        task.cancel()

    VirtualLoop(Network(answering())).run(look_every_minute())
    assert signed_with == [("FIRST", "FIRST"), ("SECOND", "FIRST"), ("SECOND", "SECOND"), ("THIRD", "SECOND")]
    assert [request[-3:] for request in requests] == [b"one", b"two"]


def test_credentials_that_cannot_be_fetched_any_more_end_the_run() -> None:
    def fetch() -> ReadOnlyCredentials:
        if requests:
            raise RuntimeError("the role may not be assumed")
        return ReadOnlyCredentials(KEY, SECRET, None)

    requests: list[bytes] = []
    signer = _signer(fetch)
    requests += signer.sign_all()
    sent = Outgoing(target=TARGET, requests=requests, signer=signer)
    virtual = drive(ARRIVALS, answering(), outgoing=sent, window_s=0.2)
    assert virtual.ended == "target failed: its requests can no longer be signed: the role may not be assumed"
    assert virtual.windows[-1].end_s == 0.2


@pytest.mark.parametrize(
    ("url", "authority", "port"),
    [
        ("http://h/", "h", 80),
        ("https://h/", "h", 443),
        ("https://h:8443/", "h:8443", 8443),
        ("https://h:443/", "h", 443),
        ("http://[::1]:8000/", "[::1]:8000", 8000),
    ],
)
def test_the_host_header_leaves_a_scheme_s_own_port_out(url: str, authority: str, port: int) -> None:
    assert (Target.of(url).authority, Target.of(url).port) == (authority, port)


def test_payloads_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    archive = tmp_path / "payloads.tar.gz"
    archive.write_bytes(payload_archive([{"text": f"ünï {number}"} for number in range(12)]))
    bodies = read_payloads(archive)
    assert [json.loads(body)["inputs"][0]["data"] for body in bodies] == [[f"ünï {number}"] for number in range(12)]
