"""The account executes exactly the call that it checked, or none."""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local_aws.permissions.enforced import CALLS_FILE
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import BUCKET, Clients, allow
from tests.local_aws.permissions.conftest import ACCOUNT, Roles

pytestmark = pytest.mark.integration

JSON = {"Content-Type": "application/x-amz-json-1.1"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ADMIN = f"arn:aws:iam::{ACCOUNT}:role/wire-admin"
FREE = {"Action": "GetCallerIdentity", "Version": "2011-06-15"}
ASSUME = {"Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": ADMIN, "RoleSessionName": "s"}
WEB_IDENTITY = {**ASSUME, "Action": "AssumeRoleWithWebIdentity", "WebIdentityToken": "t"}
PARTS = b"".join(
    b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value.encode())
    for name, value in ASSUME.items()
)
MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}


@dataclass(frozen=True, kw_only=True)
class Sent:
    service: str
    method: str = "POST"
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    presigned: bool = False
    allowed: str = "sts:GetCallerIdentity"
    """The one action that the caller's role may do."""
    resource: str = "*"


def target(operation: str) -> dict[str, str]:
    prefix = "Logs_20140328" if "LogGroup" in operation else "SageMaker"
    return {**JSON, "X-Amz-Target": f"{prefix}.{operation}"}


def send(account: LocalAccount, keys: Mapping[str, str], sent: Sent) -> requests.Response:
    credentials = Credentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
    signed = b"" if sent.presigned else sent.body
    request = AWSRequest(sent.method, account.endpoint_url + sent.path, dict(sent.headers), signed)
    if sent.presigned:
        query: Any = S3SigV4QueryAuth if sent.service == "s3" else SigV4QueryAuth
        query(credentials, sent.service, "us-east-1").add_auth(request)
        return requests.request(sent.method, str(request.url), headers=dict(sent.headers), data=sent.body, timeout=60)
    header: Any = S3SigV4Auth if sent.service == "s3" else SigV4Auth
    header(credentials, sent.service, "us-east-1").add_auth(request)
    headers = dict(request.headers.items())
    return requests.request(sent.method, account.endpoint_url + sent.path, headers=headers, data=sent.body, timeout=60)


@pytest.fixture
def world(roles: Roles, client: Clients) -> Iterator[None]:
    """An admin that no role may assume, a model, a schedule and a versioned object."""
    roles.role("wire-admin", allow("*"), trusted={"Service": "ecs-tasks.amazonaws.com"})
    for name in ("open", "secret"):
        client("sagemaker").create_model(ModelName=name, ExecutionRoleArn=ADMIN)
    client("scheduler").create_schedule(
        Name="kept",
        ScheduleExpression="rate(1 day)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": "arn:aws:sqs:us-east-1:123456789012:q", "RoleArn": ADMIN},
    )
    client("s3").put_object(Bucket=BUCKET, Key="kept", Body=b"kept")
    yield
    for group in client("logs").describe_log_groups(logGroupNamePrefix="smuggled")["logGroups"]:
        client("logs").delete_log_group(logGroupName=group["logGroupName"])
    if client("scheduler").list_schedules()["Schedules"]:
        client("scheduler").delete_schedule(Name="kept")
    for name in ("open", "secret"):
        client("sagemaker").delete_model(ModelName=name)


def calls_of(roles: Roles, name: str) -> list[str]:
    if not (roles.account.log_file.parent / CALLS_FILE).exists():  # the first call makes it
        return []
    role = f"arn:aws:iam::{ACCOUNT}:role/{name}"
    return [call["operation"] for call in roles.calls() if call["role"] == role]


def as_role(roles: Roles, sent: Sent) -> Mapping[str, str]:
    arn = roles.role("wire", allow(sent.allowed, resource=sent.resource))
    keys: Mapping[str, str] = roles.sts.assume_role(RoleArn=arn, RoleSessionName="session")["Credentials"]
    return keys


def sts(path: str = "/", body: Mapping[str, str] | bytes = b"", **more: Any) -> Sent:
    content = body if isinstance(body, bytes) else urlencode(body).encode()
    return Sent(**{"service": "sts", "path": path, "headers": FORM, "body": content, **more})


def json_call(operation: str, path: str = "/", body: bytes = b"", headers: Mapping[str, str] | None = None) -> Sent:
    service = "logs" if "LogGroup" in operation else "sagemaker"
    about = {**target(operation), **(headers or {})}
    return Sent(service=service, path=path, headers=about, body=body, allowed=f"{service}:{operation}")


def on_s3(method: str, path: str, allowed: str = "s3:GetObject", **more: Any) -> Sent:
    return Sent(service="s3", method=method, path=path, allowed=allowed, **more)


def schedule(path: str = "/schedules/kept", **headers: str) -> Sent:
    return Sent(service="scheduler", method="GET", path=path, headers=headers, allowed="scheduler:GetSchedule")


IN_URL = f"/?{urlencode(FREE)}"
INVOCATION = "/endpoints/e/invocations"
GROUP = "Action=CreateLogGroup&logGroupName=smuggled"
TWO_READINGS = {
    "query, an action in the URL and another in the form": (sts(IN_URL, ASSUME), 400),
    "query, an action in the URL and another in a multipart form": (
        sts(IN_URL, PARTS + b"--b--\r\n", headers=MULTIPART),
        400,
    ),
    "query, only multipart": (sts(body=PARTS + b"--b--\r\n", headers=MULTIPART), 400),
    "query, the action twice": (sts(body=f"{urlencode(FREE)}&{urlencode(ASSUME)}".encode()), 400),
    "query, by GET": (sts(IN_URL, method="GET", headers={}), 400),
    "JSON, an action in the URL": (json_call("ListModels", "/?Action=ListEndpoints"), 400),
    "JSON, an action with parameters in the URL": (json_call("DescribeLogGroups", f"/?{GROUP}", b"{}"), 400),
    "JSON, a path of another API": (json_call("ListModels", "/BatchPutMetrics"), 501),
    "JSON, a form in place of the object": (json_call("DescribeLogGroups", "/", GROUP.encode(), FORM), 400),
    "an invocation, signed for another service": (sts(INVOCATION, FREE), 400),
    "an invocation, with the target of another call": (json_call("ListModels", INVOCATION), 501),
    "an invocation, presigned for S3": (on_s3("POST", f"{INVOCATION}?uploads", "s3:*", presigned=True), 404),
    "presigned for S3, a call of STS in the form": (
        on_s3("POST", "/", "s3:*", headers=FORM, body=urlencode(WEB_IDENTITY).encode(), presigned=True),
        400,
    ),
    "presigned for STS": (sts(IN_URL, method="GET", headers={}, presigned=True), 400),
    "S3, a parameter in a form": (
        on_s3("DELETE", f"/{BUCKET}/kept", "s3:DeleteObject", headers=FORM, body=b"versionId=null"),
        400,
    ),
    "REST, an action in the URL": (schedule("/schedules/kept?Action=DeleteSchedule"), 400),
}


@pytest.mark.parametrize("form", TWO_READINGS)
def test_a_request_with_two_readings_is_refused_and_nothing_is_done(
    form: str, world: None, roles: Roles, account: LocalAccount, client: Clients
) -> None:
    sent, status = TWO_READINGS[form]
    answer = send(account, as_role(roles, sent), sent)
    assert answer.status_code == status, answer.text
    assert "SecretAccessKey" not in answer.text
    assert "Endpoint e of account" not in answer.text  # the words of an invocation
    assert client("logs").describe_log_groups(logGroupNamePrefix="smuggled")["logGroups"] == []
    client("scheduler").get_schedule(Name="kept")
    client("s3").head_object(Bucket=BUCKET, Key="kept")


ONE_READING = {
    "query": (sts(body=FREE), None, "assumed-role/wire/session"),
    "query, gzip": (
        sts(body=gzip.compress(urlencode(FREE).encode()), headers={**FORM, "Content-Encoding": "gzip"}),
        None,
        "assumed-role/wire/session",
    ),
    "JSON, a form within a text": (
        json_call("ListModels", body=json.dumps({"NameContains": "&Action=ListEndpoints&"}).encode()),
        "sagemaker:ListModels",
        '"Models"',
    ),
    "JSON, a parameter within a text": (
        replace(
            json_call("DescribeModel", body=b'{"ModelName": "open", "Other": "&ModelName=secret&"}'),
            resource=f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:model/open",
        ),
        "sagemaker:DescribeModel",
        "model/open",
    ),
    "JSON, an action in a header": (
        json_call("ListModels", headers={"Action": "ListEndpoints"}),
        "sagemaker:ListModels",
        '"Models"',
    ),
    "JSON, another region and account in headers": (
        json_call("ListModels", headers={"User-Agent": "region/eu-west-1", "x-moto-account-id": "999999999999"}),
        "sagemaker:ListModels",
        f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:model/open",
    ),
    "REST, the target of another call": (
        schedule(**{"X-Amz-Target": "Scheduler.DeleteSchedule"}),
        "scheduler:GetSchedule",
        '"Name": "kept"',
    ),
    "S3, presigned": (on_s3("GET", f"/{BUCKET}/kept", presigned=True), "s3:GetObject", "kept"),
}


@pytest.mark.parametrize("form", ONE_READING)
def test_the_call_that_was_checked_is_the_call_that_is_done_and_noted(
    form: str, world: None, roles: Roles, account: LocalAccount
) -> None:
    sent, noted, answered = ONE_READING[form]
    before = len(calls_of(roles, "wire"))
    answer = send(account, as_role(roles, sent), sent)
    assert (answer.status_code, answered in answer.text) == (200, True), answer.text
    assert calls_of(roles, "wire")[before:] == ([noted] if noted else [])


def test_the_owner_is_refused_a_second_reading_too(account: LocalAccount) -> None:
    keys = account.client_arguments()
    owner = {"AccessKeyId": keys["aws_access_key_id"], "SecretAccessKey": keys["aws_secret_access_key"]}
    sent = Sent(service="sts", path="/?Action=GetCallerIdentity", headers=FORM, body=urlencode(FREE).encode())
    answer = send(account, {**owner, "SessionToken": ""}, sent)
    assert answer.status_code == 400
    assert "sts takes no parameters in the URL, and this one has Action." in answer.text


def test_the_name_of_an_endpoint_is_decoded_once(account: LocalAccount, roles: Roles) -> None:
    path, body = "/endpoints/a%2562/invocations", b"{}"
    sent = Sent(service="sagemaker", path=path, body=body, allowed="sagemaker:InvokeEndpoint")
    answer = send(account, as_role(roles, sent), sent)
    assert (answer.status_code, "Endpoint ab" in answer.text) == (400, False)
