"""The account verifies the signatures of botocore, with the keys that it has given out, and no others."""

import hashlib
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from local_aws.owner_only import AccountKeys
from local_aws.signature import ReceivedRequest, RequestRefused, RequestSignature
from tests.local_aws.wsgi_calls import unsent

KEY, SECRET = "LOCAL0123456789ABCDE", "a-secret_key"


def request_of(service: str, operation: str, **parameters: Any) -> tuple[ReceivedRequest, bytes]:
    make: Any = boto3.client
    client = make(
        service,
        endpoint_url="http://localhost:5055",
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        aws_session_token="a+token/==",
    )
    method, target, headers, body = unsent(client, operation, **parameters)
    lower = {name.lower(): value for name, value in headers.items()}
    return ReceivedRequest(method=method, target=target, headers=lower), body


@pytest.mark.parametrize(
    ("service", "operation", "parameters"),
    [
        ("s3", "PutObject", {"Bucket": "bucket", "Key": "a b/ü+c//d/..", "Body": b"x", "Metadata": {"a_b": "c  d"}}),
        ("s3", "ListObjectsV2", {"Bucket": "bucket", "Prefix": "a b&c=+"}),
        ("sts", "AssumeRole", {"RoleArn": "arn:aws:iam::123456789012:role/x", "RoleSessionName": "session"}),
        ("sagemaker", "ListModels", {}),
        ("sagemaker-runtime", "InvokeEndpoint", {"EndpointName": "e", "Body": b"\x00\xff"}),
        ("lambda", "GetFunction", {"FunctionName": "arn:aws:lambda:us-east-1:123456789012:function:f"}),
        ("cloudformation", "ListStacks", {}),
    ],
    ids=["S3", "S3 query", "query", "json", "rest-json", "encoded path", "form"],
)
def test_what_botocore_signs_is_verified(service: str, operation: str, parameters: dict[str, Any]) -> None:
    call, body = request_of(service, operation, **parameters)
    claim, digest = RequestSignature.read(call), hashlib.sha256(body).hexdigest()
    assert (claim.access_key, claim.token) == (KEY, "a+token/==")
    claim.check(call, SECRET, digest, time.time())
    with pytest.raises(RequestRefused, match="was not signed with the secret key"):
        claim.check(call, SECRET + "x", digest, time.time())


def test_an_upload_in_chunks_of_unknown_hash_is_verified_by_its_headers() -> None:
    def checked(change: Callable[[dict[str, str]], object]) -> None:
        call, body = request_of("s3", "PutObject", Bucket="bucket", Key="key", Body=b"x")
        headers = dict(call.headers)
        change(headers)
        changed = ReceivedRequest(method=call.method, target=call.target, headers=headers)
        RequestSignature.read(changed).check(changed, SECRET, hashlib.sha256(body).hexdigest(), time.time())

    checked(lambda headers: None)
    # The claim that a body was not hashed must be signed.
    with pytest.raises(RequestRefused, match="was not signed"):
        checked(lambda headers: headers.update({"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"}))


SCOPE = f"{KEY}/20260101/us-east-1/s3/aws4_request"
GOOD = f"AWS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders=host, Signature={'a' * 64}"


@pytest.mark.parametrize(
    ("target", "headers", "code"),
    [
        ("/", {}, "MissingAuthenticationToken"),
        ("/", {"authorization": ""}, "IncompleteSignature"),
        ("/", {"authorization": f"AWS {KEY}:signature"}, "IncompleteSignature"),
        ("/", {"authorization": GOOD}, "IncompleteSignature"),
        ("/", {"authorization": GOOD, "x-amz-date": "20260102T000000Z"}, "IncompleteSignature"),
        ("/?X-Amz-Algorithm=AWS4-HMAC-SHA256", {}, "AuthorizationQueryParametersError"),
        (f"/?X-Amz-Algorithm=none&X-Amz-Credential={SCOPE}&X-Amz-Expires=9", {}, "AuthorizationQueryParametersError"),
        (f"/?AWSAccessKeyId={KEY}&Expires=1&Signature=x", {}, "InvalidRequest"),
        ("/?X-Amz-Algorithm=AWS4-HMAC-SHA256", {"authorization": GOOD}, "InvalidArgument"),
    ],
)
def test_what_is_no_signature_is_refused(target: str, headers: dict[str, str], code: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        RequestSignature.read(ReceivedRequest(method="GET", target=target, headers={"host": "localhost", **headers}))
    assert refused.value.code == code
    if "AWSAccessKeyId" in target:
        assert refused.value.message.endswith("presign with signature_version='s3v4'.")


@pytest.mark.parametrize("signed", ["x-amz-date", "host;x-not-sent"])
def test_a_signature_covers_the_host_and_only_what_was_sent(signed: str) -> None:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{KEY}/{moment[:8]}/us-east-1/s3/aws4_request"
    authorization = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={signed}, Signature={'a' * 64}"
    headers = {"host": "localhost", "authorization": authorization, "x-amz-date": moment}
    call = ReceivedRequest(method="GET", target="/", headers=headers)
    with pytest.raises(RequestRefused, match="SignedHeaders has to name the host, and headers that were sent"):
        RequestSignature.read(call).check(call, SECRET, "", time.time())


@pytest.fixture
def role() -> Any:
    arn = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/deploy"
    return sts_backends[DEFAULT_ACCOUNT_ID]["aws"].assume_role("us-east-1", "session", arn, "", 3600, "")


def test_every_account_has_a_key_of_its_own() -> None:
    one, other = AccountKeys(), AccountKeys()
    assert len(one.secret_access_key) == 40
    assert len(one.access_key_id) == 20
    assert one.secret_of(one.access_key_id, None) == one.secret_access_key
    assert one.secret_of(other.access_key_id, None) is None


def test_the_session_of_an_assumed_role_needs_its_token(role: Any) -> None:
    keys = AccountKeys()
    assert keys.secret_of(role.access_key_id, role.session_token) == role.secret_access_key
    assert keys.secret_of(role.access_key_id, None) is None
    assert keys.secret_of(role.access_key_id, role.session_token + "x") is None
    role.expiration -= timedelta(hours=2)
    assert keys.secret_of(role.access_key_id, role.session_token) is None


def test_a_users_key_holds_while_it_is_active() -> None:
    iam = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    iam.create_user("us-east-1", "developer")
    key = iam.create_access_key("developer")
    try:
        assert AccountKeys().secret_of(key.access_key_id, None) == key.secret_access_key
        key.status = "Inactive"
        assert AccountKeys().secret_of(key.access_key_id, None) is None
    finally:
        iam.delete_access_key(key.access_key_id, "developer")
        iam.delete_user("developer")
