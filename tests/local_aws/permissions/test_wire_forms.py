"""The account executes exactly the call that it checked, or none."""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest
import requests
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local_aws.permissions.enforced import CALLS_FILE
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import BUCKET
from tests.local_aws.permissions.test_enforced import ACCOUNT, Clients, Roles, allow, roles  # noqa: F401  a fixture

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
def world(roles: Roles, client: Clients) -> Iterator[None]:  # noqa: F811
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


def calls_of(roles: Roles, name: str) -> list[str]:  # noqa: F811
    if not (roles.account.log_file.parent / CALLS_FILE).exists():  # the first call makes it
        return []
    role = f"arn:aws:iam::{ACCOUNT}:role/{name}"
    return [call["operation"] for call in roles.calls() if call["role"] == role]


def as_role(roles: Roles, sent: Sent) -> Mapping[str, str]:  # noqa: F811
    arn = roles.role("wire", allow(sent.allowed, resource=sent.resource))
    keys: Mapping[str, str] = roles.sts.assume_role(RoleArn=arn, RoleSessionName="session")["Credentials"]
    return keys


TWO_READINGS = {
    "query, an action in the URL and another in the form": (
        Sent(service="sts", path=f"/?{urlencode(FREE)}", headers=FORM, body=urlencode(ASSUME).encode()),
        400,
    ),
    "query, an action in the URL and another in a multipart form": (
        Sent(service="sts", path=f"/?{urlencode(FREE)}", headers=MULTIPART, body=PARTS + b"--b--\r\n"),
        400,
    ),
    "query, multipart alone": (Sent(service="sts", headers=MULTIPART, body=PARTS + b"--b--\r\n"), 400),
    "query, the action twice": (
        Sent(service="sts", headers=FORM, body=f"{urlencode(FREE)}&{urlencode(ASSUME)}".encode()),
        400,
    ),
    "query, by GET": (Sent(service="sts", method="GET", path=f"/?{urlencode(FREE)}"), 400),
    "JSON, an action in the URL": (
        Sent(
            service="sagemaker",
            path="/?Action=ListEndpoints",
            headers=target("ListModels"),
            allowed="sagemaker:ListModels",
        ),
        400,
    ),
    "JSON, an action with parameters in the URL": (
        Sent(
            service="logs",
            path="/?Action=CreateLogGroup&logGroupName=smuggled",
            headers=target("DescribeLogGroups"),
            body=b"{}",
            allowed="logs:DescribeLogGroups",
        ),
        400,
    ),
    "JSON, a path of another API": (
        Sent(
            service="sagemaker", path="/BatchPutMetrics", headers=target("ListModels"), allowed="sagemaker:ListModels"
        ),
        501,
    ),
    "JSON, a form in place of the object": (
        Sent(
            service="logs",
            headers={**target("DescribeLogGroups"), **FORM},
            body=b"Action=CreateLogGroup&logGroupName=smuggled",
            allowed="logs:DescribeLogGroups",
        ),
        400,
    ),
    "an invocation, signed for another service": (
        Sent(service="sts", path="/endpoints/e/invocations", headers=FORM, body=urlencode(FREE).encode()),
        400,
    ),
    "an invocation, with the target of another call": (
        Sent(
            service="sagemaker",
            path="/endpoints/e/invocations",
            headers=target("ListModels"),
            allowed="sagemaker:ListModels",
        ),
        501,
    ),
    "an invocation, presigned for S3": (
        Sent(service="s3", path="/endpoints/e/invocations?uploads", presigned=True, allowed="s3:*"),
        404,
    ),
    "presigned for S3, a call of STS in the form": (
        Sent(service="s3", headers=FORM, body=urlencode(WEB_IDENTITY).encode(), presigned=True, allowed="s3:*"),
        400,
    ),
    "presigned for STS": (Sent(service="sts", method="GET", path=f"/?{urlencode(FREE)}", presigned=True), 400),
    "S3, a parameter in a form": (
        Sent(
            service="s3",
            method="DELETE",
            path=f"/{BUCKET}/kept",
            headers=FORM,
            body=b"versionId=null",
            allowed="s3:DeleteObject",
        ),
        400,
    ),
    "REST, an action in the URL": (
        Sent(
            service="scheduler",
            method="GET",
            path="/schedules/kept?Action=DeleteSchedule",
            allowed="scheduler:GetSchedule",
        ),
        400,
    ),
}


@pytest.mark.parametrize("form", TWO_READINGS)
def test_a_request_with_two_readings_is_refused_and_nothing_is_done(
    form: str,
    world: None,
    roles: Roles,  # noqa: F811
    account: LocalAccount,
    client: Clients,
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
    "query": (Sent(service="sts", headers=FORM, body=urlencode(FREE).encode()), None, "assumed-role/wire/session"),
    "query, gzip": (
        Sent(service="sts", headers={**FORM, "Content-Encoding": "gzip"}, body=gzip.compress(urlencode(FREE).encode())),
        None,
        "assumed-role/wire/session",
    ),
    "JSON": (
        Sent(service="sagemaker", headers=target("ListModels"), body=b"{}", allowed="sagemaker:ListModels"),
        "sagemaker:ListModels",
        '"Models"',
    ),
    "JSON, a form within a text": (
        Sent(
            service="sagemaker",
            headers=target("ListModels"),
            body=json.dumps({"NameContains": "&Action=ListEndpoints&"}).encode(),
            allowed="sagemaker:ListModels",
        ),
        "sagemaker:ListModels",
        '"Models"',
    ),
    "JSON, a parameter within a text": (
        Sent(
            service="sagemaker",
            headers=target("DescribeModel"),
            body=json.dumps({"ModelName": "open", "Other": "&ModelName=secret&"}).encode(),
            allowed="sagemaker:DescribeModel",
            resource=f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:model/open",
        ),
        "sagemaker:DescribeModel",
        "model/open",
    ),
    "JSON, an action in a header": (
        Sent(
            service="sagemaker",
            headers={**target("ListModels"), "Action": "ListEndpoints"},
            allowed="sagemaker:ListModels",
        ),
        "sagemaker:ListModels",
        '"Models"',
    ),
    "JSON, another region and account in headers": (
        Sent(
            service="sagemaker",
            headers={**target("ListModels"), "User-Agent": "region/eu-west-1", "x-moto-account-id": "999999999999"},
            allowed="sagemaker:ListModels",
        ),
        "sagemaker:ListModels",
        f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:model/open",
    ),
    "REST": (
        Sent(service="scheduler", method="GET", path="/schedules/kept", allowed="scheduler:GetSchedule"),
        "scheduler:GetSchedule",
        '"Name": "kept"',
    ),
    "REST, the target of another call": (
        Sent(
            service="scheduler",
            method="GET",
            path="/schedules/kept",
            headers={"X-Amz-Target": "Scheduler.DeleteSchedule"},
            allowed="scheduler:GetSchedule",
        ),
        "scheduler:GetSchedule",
        '"Name": "kept"',
    ),
    "S3": (
        Sent(service="s3", method="GET", path=f"/{BUCKET}/kept", allowed="s3:GetObject"),
        "s3:GetObject",
        "kept",
    ),
    "S3, presigned": (
        Sent(service="s3", method="GET", path=f"/{BUCKET}/kept", presigned=True, allowed="s3:GetObject"),
        "s3:GetObject",
        "kept",
    ),
}


@pytest.mark.parametrize("form", ONE_READING)
def test_the_call_that_was_checked_is_the_call_that_is_done_and_noted(
    form: str,
    world: None,
    roles: Roles,  # noqa: F811
    account: LocalAccount,
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
    assert (answer.status_code, "sts takes no parameters in the URL, and this one has Action." in answer.text) == (
        400,
        True,
    )


def test_the_name_of_an_endpoint_is_decoded_once(account: LocalAccount, roles: Roles) -> None:  # noqa: F811
    path, body = "/endpoints/a%2562/invocations", b"{}"
    sent = Sent(service="sagemaker", path=path, body=body, allowed="sagemaker:InvokeEndpoint")
    answer = send(account, as_role(roles, sent), sent)
    assert (answer.status_code, "Endpoint ab" in answer.text) == (400, False)


def test_a_large_metric_that_boto3_compresses_arrives(account: LocalAccount) -> None:
    arguments: Any = account.client_arguments()
    cloudwatch = boto3.client("cloudwatch", **arguments)
    data = [{"MetricName": f"m{number}", "Value": 1.0, "Dimensions": []} for number in range(900)]
    cloudwatch.put_metric_data(Namespace="Compressed", MetricData=data)
    assert cloudwatch.list_metrics(Namespace="Compressed", MetricName="m899")["Metrics"]
