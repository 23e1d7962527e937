"""The account answers only its owner: no web page, no foreign host, nothing without a signature or a bound."""

import io
import logging
import time
from typing import Any

import boto3
import pytest
from botocore.config import Config

from local_aws.signature import MAX_SKEW_S
from tests.local_aws.wsgi_calls import HOST, KEYS, Spy, ask, environ_of, guarded, of_url, signed, signed_headers

INVOKE = "/endpoints/e/invocations"


def refused(environ: dict[str, Any], **options: Any) -> tuple[int, str]:
    """Returns the status and the code of a refusal, and makes sure that nothing got past the guard."""
    spy = Spy()
    answer = ask(guarded(spy, **options), environ)
    assert spy.environs == []
    return answer.status, answer.headers["x-amzn-errortype"]


def test_a_request_of_the_owner_is_passed_on_whole() -> None:
    spy = Spy()
    assert ask(guarded(spy), signed("POST", INVOKE, b"the body")).body == b"answered"
    assert spy.bodies == [b"the body"]


PAGE = {"Origin": "https://evil.example"}
UNSIGNED = {"Host": HOST}
REFUSED: list[tuple[str, str, dict[str, str] | None, str]] = [
    *(("POST", INVOKE, signed_headers("POST", INVOKE) | {"Origin": each}, "AccessDenied") for each in ("null", HOST)),
    ("POST", INVOKE, signed_headers("POST", INVOKE) | PAGE, "AccessDenied"),
    ("POST", INVOKE, signed_headers("POST", INVOKE) | {"Sec-Fetch-Site": "cross-site"}, "AccessDenied"),
    ("OPTIONS", "/bucket/key", UNSIGNED | PAGE | {"Access-Control-Request-Method": "PUT"}, "AccessDenied"),
    *(
        ("GET", "/", signed_headers("GET", "/") | {"Host": host}, "AccessDenied")
        for host in ("evil.example", "localhost.evil.example", "127.0.0.2", "", "localhost, evil", "[::2]", "a@b")
    ),
    *(
        ("GET", "/", {"Host": host}, "MissingAuthenticationToken")  # the name is no reason to refuse
        for host in ("localhost", "127.0.0.1:80", "[::1]:5055", "a-bucket.localhost:5055", "LOCALHOST:1")
    ),
    *(
        ("POST", path, signed_headers("POST", path), "AccessDenied")
        for path in ("/moto-api/reset", "/moto-api/", "/moto-api/seed?a=1")
    ),
    *(("POST", path, UNSIGNED, "MissingAuthenticationToken") for path in ("/", "/favicon.ico", INVOKE)),
]


@pytest.mark.parametrize(("method", "path", "headers", "code"), REFUSED)
def test_a_web_page_a_foreign_host_motos_api_and_an_unsigned_request_are_refused(
    method: str, path: str, headers: dict[str, str], code: str
) -> None:
    assert refused(environ_of(method, path, headers)) == (403, code)
    answer = ask(guarded(Spy()), environ_of(method, path, headers))
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"secret": "another"}, "SignatureDoesNotMatch"),
        ({"key": "AKIAIOSFODNN7EXAMPLE"}, "InvalidClientTokenId"),
        ({"key": "AKIAIOSFODNN7EXAMPLE", "service": "s3"}, "InvalidAccessKeyId"),
    ],
)
def test_another_key_is_refused(options: dict[str, Any], code: str) -> None:
    assert refused(signed("GET", "/", **options)) == (403, code)


def test_a_body_is_not_read_for_a_key_that_is_none_of_the_accounts() -> None:
    headers = {**signed_headers("PUT", "/bucket/key", service="s3", key="AKIAIOSFODNN7EXAMPLE"), "Content-Length": "9"}
    unread = Failing(AssertionError("the body was read"))
    assert refused(environ_of("PUT", "/bucket/key", headers, stream=unread))[0] == 403


@pytest.mark.parametrize("service", ["s3", "sts"])
@pytest.mark.parametrize(
    "changed",
    [
        {"method": "PUT"},
        {"target": "/a/c?x=1"},
        {"target": "/a/b?x=2"},
        {"body": b"bode"},
        {"X-Amz-Target": "Undo"},
        {"Host": "127.0.0.1:5055"},
    ],
)
def test_a_request_that_was_changed_on_its_way_is_refused(changed: dict[str, Any], service: str) -> None:
    sent: dict[str, Any] = {"method": "POST", "target": "/a/b?x=1", "body": b"body"}
    headers = signed_headers(*sent.values(), service=service, headers={"X-Amz-Target": "Do"})
    sent |= {name: changed[name] for name in sent if name in changed}
    headers |= {name: value for name, value in changed.items() if name in headers}
    _, code = refused(environ_of(sent["method"], sent["target"], headers, sent["body"]))
    assert code in ("SignatureDoesNotMatch", "XAmzContentSHA256Mismatch")


@pytest.mark.parametrize("off", [MAX_SKEW_S + 60, -MAX_SKEW_S - 60])
def test_an_old_signature_does_not_hold(off: float) -> None:
    environ = signed("GET", "/")
    assert refused(environ, clock=lambda: time.time() + off) == (403, "RequestTimeTooSkewed")


def presigned(operation: str, *, virtual: bool = False, **parameters: str) -> str:
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{HOST}",
        region_name="us-east-1",
        aws_access_key_id=KEYS.access_key_id,
        aws_secret_access_key=KEYS.secret_access_key,
        config=Config(signature_version="s3v4", s3={"addressing_style": "virtual" if virtual else "path"}),
    )
    known = {"Bucket": "models", "Key": "a b", **parameters}
    return str(client.generate_presigned_url(operation, Params=known, ExpiresIn=60))


def test_a_presigned_url_holds_until_it_expires_and_only_as_it_was_made() -> None:
    url, spy = presigned("get_object"), Spy()
    assert ask(guarded(spy), of_url("GET", url)).status == 200
    assert ask(guarded(spy), of_url("PUT", url)).status == 403
    assert ask(guarded(spy), of_url("GET", url.replace("models", "others"))).status == 403
    assert ask(guarded(spy, clock=lambda: time.time() + 61), of_url("GET", url)).status == 403
    assert len(spy.environs) == 1
    virtual = presigned("get_object", virtual=True)
    assert virtual.startswith("http://models.localhost:5055/a%20b?")
    assert ask(guarded(spy), of_url("GET", virtual)).status == 200


@pytest.mark.parametrize("name", ["x-amz-copy-source", "X-Amz-Acl", "x-amz-meta-a", "x-amz-security-token"])
def test_a_header_of_amazon_that_was_not_signed_is_refused(name: str) -> None:
    unsigned = {name: "/secret/s"}
    assert refused(of_url("PUT", presigned("put_object"), unsigned)) == (403, "AccessDenied")
    if name != "x-amz-security-token":  # of another session
        headers = signed_headers("PUT", "/bucket/key", service="s3") | unsigned
        assert refused(environ_of("PUT", "/bucket/key", headers)) == (403, "AccessDenied")


def test_a_presigned_url_takes_the_headers_that_were_signed_and_the_bodys_hash() -> None:
    url = presigned("put_object", ACL="public-read")
    hashed = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD", "Content-Type": "text/plain"}
    assert ask(guarded(Spy()), of_url("PUT", url, {"x-amz-acl": "public-read"} | hashed)).status == 200
    assert refused(of_url("PUT", url, {"x-amz-acl": "public-read-write"})) == (403, "SignatureDoesNotMatch")


def test_a_chunked_body_arrives_whole_and_with_its_length() -> None:
    spy, headers = Spy(), signed_headers("POST", INVOKE, b"in three chunks")
    del headers["Content-Length"]
    environ = environ_of("POST", INVOKE, {**headers, "Transfer-Encoding": "chunked"}, b"in three chunks")
    assert ask(guarded(spy), environ).status == 200
    assert spy.bodies == [b"in three chunks"]
    assert spy.environs[0]["CONTENT_LENGTH"] == "15"
    assert "HTTP_TRANSFER_ENCODING" not in spy.environs[0]


class Failing(io.BytesIO):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def read(self, *_: Any) -> bytes:
        raise self.error


@pytest.mark.parametrize(
    ("stream", "answer"),
    [
        (io.BytesIO(b"bo"), (400, "IncompleteBody")),
        (Failing(TimeoutError()), (408, "RequestTimeout")),
        (Failing(OSError("Missing chunk terminating newline")), (400, "IncompleteBody")),
    ],
)
def test_a_body_that_does_not_arrive_is_the_callers_mistake(stream: Any, answer: tuple[int, str]) -> None:
    headers = signed_headers("POST", INVOKE, b"body")
    assert refused(environ_of("POST", INVOKE, headers, stream=stream)) == answer


def test_refusals_have_the_form_that_clients_of_the_service_read() -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    for environ in (signed("GET", "/", service="s3", secret="x"), signed("POST", "/", headers=form, secret="x")):
        answer = ask(guarded(Spy()), environ)
        assert answer.headers["Content-Type"] == "text/xml"
        assert answer.body.startswith(b"<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>")
    assert ask(guarded(Spy()), environ_of("HEAD", "/", {"Host": HOST})).body == b""


def test_the_log_tells_the_first_refusal_of_a_kind_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    application = guarded(Spy())
    with caplog.at_level(logging.INFO, logger="local_aws"):
        for _ in range(100):
            ask(application, environ_of("GET", "/", {"Host": HOST, "Origin": "https://evil.example"}))
            ask(application, signed("GET", "/", secret="x"))
        ask(application, signed("GET", "/"))
    assert len(caplog.records) == 2
    assert KEYS.secret_access_key not in caplog.text + repr(KEYS)
