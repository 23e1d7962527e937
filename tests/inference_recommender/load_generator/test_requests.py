"""Where the generator sends to: any URL over http and https, and SageMaker endpoints by name with signed requests."""

import asyncio
import datetime
import ipaddress
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from inference_recommender.load_generator import signing
from inference_recommender.load_generator.load_run import Run
from inference_recommender.load_generator.outgoing import Outgoing
from inference_recommender.load_generator.plan import Arrivals, LoadPlan, SageMakerEndpoint
from inference_recommender.load_generator.process import Outcome, generate
from inference_recommender.load_generator.signing import Signer
from inference_recommender.load_generator.requests import Target
from inference_recommender.payloads import payload_archive
from tests.inference_recommender.server import Server, serving
from workloads.errors import InvalidDocument

ARRIVALS = Arrivals(invocations_per_minute=6000, duration_in_seconds=1.5, connections=4)
KEY, SECRET, TOKEN, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", "a/session+token=", "eu-west-1"
"""Of nobody: the first is the example of AWS's own documentation."""


def _payloads(folder: Path) -> Path:
    payloads = folder / "payloads.tar.gz"
    payloads.write_bytes(payload_archive([{"text": f"ünï {number}"} for number in range(20)]))
    return payloads


def _run(folder: Path, **members: Any) -> Outcome:
    return generate(LoadPlan(payloads=_payloads(folder), arrivals=ARRIVALS, **members), folder / "out")


def _is_well(outcome: Outcome, server: Server) -> bool:
    assert outcome.summary is not None
    assert (outcome.summary["errors"], outcome.summary["unfinished"]) == (0, 0)
    return bool(outcome.summary["invocations"] == len(server.seen) > 59)


@pytest.mark.integration
def test_a_kserve_url_gets_its_path_query_and_headers(tmp_path: Path) -> None:
    headers = {"Inference-Header-Content-Length": "100", "Authorization": "Bearer x"}
    with serving() as server:
        outcome = _run(tmp_path, url=f"{server.root}/v2/models/spellcheck/infer?a=1&b=2", headers=headers)
        assert _is_well(outcome, server)
    path, seen = server.heads[0]
    assert path == "/v2/models/spellcheck/infer?a=1&b=2"
    assert seen == {
        "Host": server.root.removeprefix("http://"),
        "Content-Type": "application/json",
        **headers,
        "Content-Length": str(len(server.seen[0])),
    }


@pytest.mark.integration
def test_errors_do_not_cost_a_connection(tmp_path: Path) -> None:
    """The answers to failures are read by the parser, the others are not: both leave the connection as it was."""
    with serving(lambda body: (500, b"no") if b" 3" in body else (200, b"{}")) as server:
        outcome = _run(tmp_path, url=server.url)
    assert outcome.summary is not None
    assert outcome.summary["errors"] > 5
    assert server.connections == ARRIVALS.connections


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """Self-signed, for 127.0.0.1, made now; its file and a server's context with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    later = now + datetime.timedelta(hours=1)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, later)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    file, key_file = tmp_path / "certificate.pem", tmp_path / "key.pem"
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key_file)
    return file, context


@pytest.mark.integration
def test_https_to_a_server_whose_certificate_is_trusted(
    tmp_path: Path, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    file, context = certificate
    with serving(tls=context) as server:
        outcome = _run(tmp_path, url=server.url, ca_file=file)
        assert _is_well(outcome, server)
    assert server.url.startswith("https://")
    assert server.connections == ARRIVALS.connections


@pytest.mark.integration
def test_https_to_a_server_nobody_vouches_for_fails_with_the_reason(
    tmp_path: Path, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    with serving(tls=certificate[1]) as server:
        arrivals = ARRIVALS.model_copy(update={"duration_in_seconds": 10.0})
        plan = LoadPlan(payloads=_payloads(tmp_path), arrivals=arrivals, url=server.url, window_s=0.3)
        outcome = generate(plan, tmp_path / "out")
    assert outcome.exit_code == 3
    assert outcome.reason.startswith(f"target failed: {server.root.removeprefix('https://')} refuses connections (")
    assert "CERTIFICATE_VERIFY_FAILED" in outcome.reason
    assert server.seen == []


def test_certificates_that_cannot_be_read_are_refused_in_a_sentence(tmp_path: Path) -> None:
    outcome = _run(tmp_path, url="https://127.0.0.1:9/", ca_file=tmp_path / "none.pem")
    assert outcome.exit_code == 2
    assert outcome.reason == (
        f"{tmp_path / 'none.pem'}: cannot be read as certificates: No such file or directory. "
        "Give ca_file a PEM file of those to trust."
    )


def _signature_of(path: str, headers: dict[str, str], body: bytes) -> str:
    """What the receiver of a request works out from what arrived, and compares with the request's Authorization."""
    request = AWSRequest(method="POST", url=f"http://{headers['Host']}{path}", data=body)
    names = headers["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    for name, value in headers.items():
        if name.lower() in names:
            request.headers[name] = value
    request.context["timestamp"] = headers["X-Amz-Date"]
    auth = SigV4Auth(Credentials(KEY, SECRET, TOKEN), "sagemaker", REGION)
    return str(auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request))


@pytest.mark.integration
@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"])
def test_an_endpoint_by_name_gets_requests_that_are_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    _credentials(monkeypatch)
    with serving() as server:
        monkeypatch.setenv(variable, server.root)
        outcome = _run(tmp_path, endpoint=SageMakerEndpoint(name="spellcheck-endpoint", variant="Blue"))
        assert _is_well(outcome, server)
    assert server.connections == ARRIVALS.connections
    for (path, headers), body in zip(server.heads[:30], server.seen, strict=False):
        assert path == "/endpoints/spellcheck-endpoint/invocations"
        assert headers["X-Amzn-SageMaker-Target-Variant"] == "Blue"
        assert headers["X-Amz-Security-Token"] == TOKEN
        assert (
            f"Credential={KEY}/{headers['X-Amz-Date'][:8]}/{REGION}/sagemaker/aws4_request" in headers["Authorization"]
        )
        assert headers["Authorization"].endswith(f"Signature={_signature_of(path, headers, body)}")


def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_SESSION_TOKEN", TOKEN),
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_CONFIG_FILE", "/dev/null"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(name, value)


def test_an_endpoint_without_credentials_or_region_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _credentials(monkeypatch)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION", raising=False)
    outcome = _run(tmp_path, endpoint=SageMakerEndpoint(name="e"))
    assert (outcome.exit_code, outcome.reason) == (
        3,
        "No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`.",
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    outcome = _run(tmp_path, endpoint=SageMakerEndpoint(name="e"))
    assert outcome.exit_code == 3
    assert outcome.reason.startswith("No AWS credentials were found. ")


TARGET = Target.of("http://127.0.0.1:9/endpoints/e/invocations")


def _signer(credentials: Callable[[], ReadOnlyCredentials], url: Target = TARGET) -> Signer:
    return Signer(url, {"Content-Type": "application/json"}, [b"one", b"two"], REGION, credentials)


def test_requests_are_signed_again_before_they_are_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "CYCLE_S", 0.1)
    keys = iter(["FIRST", "SECOND", *["THIRD"] * 1000])
    signer = _signer(lambda: ReadOnlyCredentials(next(keys), SECRET, None))
    requests = signer.sign_all()
    assert all(b"Credential=FIRST/" in request for request in requests)

    async def for_a_while() -> None:
        task = asyncio.create_task(signer.keep_fresh(requests))
        await asyncio.sleep(0.5)
        task.cancel()

    asyncio.run(for_a_while())
    assert all(b"Credential=THIRD/" in request for request in requests)
    assert [request[-3:] for request in requests] == [b"one", b"two"]


def test_a_signature_lives_well_below_the_five_minutes_it_holds() -> None:
    assert signing.CYCLE_S * 2 < 300


@pytest.mark.integration
def test_credentials_that_cannot_be_had_any_more_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def once() -> ReadOnlyCredentials:
        if asked:
            raise RuntimeError("the role may not be assumed")
        asked.append(1)
        return ReadOnlyCredentials(KEY, SECRET, None)

    asked: list[int] = []
    with serving() as server:
        target = Target.of(server.url)
        signer = _signer(once, target)
        outgoing = Outgoing(target=target, requests=signer.sign_all(), signer=signer)
        plan = LoadPlan(url=server.url, payloads=Path(), arrivals=ARRIVALS, window_s=0.2)
        reason = asyncio.run(Run(plan, outgoing, lambda window: None).drive())
    assert reason == "target failed: its requests can no longer be signed: the role may not be assumed"


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


def test_a_plan_has_one_target(tmp_path: Path) -> None:
    arrivals = {"invocations_per_minute": 60.0, "duration_in_seconds": 1.0}
    (tmp_path / "plan.json").write_text(json.dumps({"payloads": "p", "arrivals": arrivals}), "utf-8")
    with pytest.raises(InvalidDocument) as refused:
        LoadPlan.from_json(tmp_path / "plan.json")
    assert str(refused.value) == (
        f"{tmp_path / 'plan.json'}: (document): give exactly one of url and endpoint (of SageMaker, by name)."
    )
