"""moto's tests of SageMaker endpoints: tests/test_sagemaker/test_sagemaker_endpoint.py.

An endpoint here is Creating at first, as on AWS, and has a real server. So each case waits until it is InService, and
its model is a Triton model; moto's have an image that nothing runs.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tests.local_aws.conftest import BUCKET, IMAGE, ROLE
from tests.local_aws.moto_cases import ABSENT, Call

ARN = "arn:aws:sagemaker:us-east-1:123456789012:"
TAGS = [{"Key": "team", "Value": "search"}, {"Key": "stage", "Value": "test"}]
NO_CONFIG = "ValidationException: Could not find endpoint configuration"
NO_ENDPOINT = "ValidationException: Could not find endpoint"
ADDRESS = {"Key": "local-aws:invocations-url", "Value": str}


def call(operation: str, answer: Any = None, error: str = "", eventually: bool = False, **parameters: Any) -> Call:
    return Call("sagemaker", operation, parameters, answer or {}, error, eventually)


def variant(name: str = "Main", model: str = "first", **more: Any) -> dict[str, Any]:
    instances = {"InstanceType": "ml.t2.medium", "InitialInstanceCount": 1}
    return {"VariantName": name, "ModelName": model, **(more or instances)}


def serverless(memory: int = 1024) -> dict[str, Any]:
    return variant(ServerlessConfig={"MemorySizeInMB": memory, "MaxConcurrency": 10})


def model(name: str = "first") -> Call:
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/echo.tar.gz"}
    return call("create_model", ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)


def config(*variants: dict[str, Any], name: str = "first", answer: Any = None, error: str = "", **more: Any) -> Call:
    about: dict[str, Any] = {"EndpointConfigName": name, "ProductionVariants": list(variants), **more}
    return call("create_endpoint_config", answer, error, **about)


def described(name: str, status: str = "InService", **more: Any) -> Call:
    expected = {"EndpointName": name, "EndpointArn": f"{ARN}endpoint/{name}", "EndpointStatus": status, **more}
    return call("describe_endpoint", expected, eventually=True, EndpointName=name)


def endpoint(name: str = "first", *variants: dict[str, Any]) -> Iterator[Call]:
    """Makes an endpoint with its model and its configuration, all of one name, and waits until it is in service."""
    yield model(name)
    yield config(*(variants or [variant(model=name)]), name=name)
    answer = {"EndpointArn": f"{ARN}endpoint/{name}"}
    yield call("create_endpoint", answer, EndpointName=name, EndpointConfigName=name)
    yield described(name)


def made(*variants: dict[str, Any], **more: Any) -> list[Call]:
    """A configuration without its model is refused; with it, its description has what it was made with."""
    about = {"EndpointConfigArn": f"{ARN}endpoint-config/first"}
    return [
        config(*variants, error="ValidationException: Could not find model", **more),
        model(),
        config(*variants, answer=about, **more),
        call(
            "describe_endpoint_config",
            {**about, "EndpointConfigName": "first", "ProductionVariants": list(variants), **more},
            EndpointConfigName="first",
        ),
    ]


def desired(*variants: str, error: str = "", name: str = "first") -> Call:
    changes = [{"VariantName": each, "DesiredWeight": 1.5, "DesiredInstanceCount": 123} for each in variants]
    about: dict[str, Any] = {"EndpointName": name, "DesiredWeightsAndCapacities": changes}
    answer = {} if error else {"EndpointArn": f"{ARN}endpoint/{name}"}
    return call("update_endpoint_weights_and_capacities", answer, error, **about)


def scaled(*variants: str) -> list[Call]:
    counts = {"DesiredInstanceCount": 123, "CurrentInstanceCount": 123, "DesiredWeight": 1.5, "CurrentWeight": 1.5}
    expected = [{"VariantName": each, **counts} for each in variants]
    described_now = described("first", EndpointConfigName="first", ProductionVariants=expected)
    return [*endpoint("first", *map(variant, variants)), desired(*variants), described_now]


def unscaled(change: Call) -> list[Call]:
    unchanged = [{"VariantName": "Main", "DesiredInstanceCount": 1, "CurrentInstanceCount": 1}]
    return [*endpoint(), change, described("first", ProductionVariants=unchanged, FailureReason=ABSENT)]


def tags(*expected: dict[str, Any]) -> Call:
    return call("list_tags", {"Tags": list(expected)}, ResourceArn=FIRST)


FIRST = f"{ARN}endpoint/first"
MANY_TAGS = [{"Key": f"key-{number}", "Value": "any"} for number in range(80)]


def add_tags(*added: dict[str, str], error: str = "") -> Call:
    return call("add_tags", error=error, ResourceArn=FIRST, Tags=list(added))


def listed(kind: str, *names: str, **filters: Any) -> Call:
    status = {} if kind == "EndpointConfig" else {"EndpointStatus": "InService", "LastModifiedTime": datetime}
    expected = [
        {f"{kind}Name": name, f"{kind}Arn": re.compile(f"{ARN}endpoint.*/{name}"), "CreationTime": datetime, **status}
        for name in names
    ]
    operation = "list_endpoints" if kind == "Endpoint" else "list_endpoint_configs"
    return call(operation, {f"{kind}s": expected}, **filters)


def by_default(kind: str) -> list[Call]:
    return [*endpoint(), *endpoint("second"), listed(kind, "second", "first")]


def filtered(kind: str, **more: Any) -> list[Call]:
    by_name = {"SortBy": "Name", "SortOrder": "Ascending", "NameContains": "s"}
    created = {"CreationTimeAfter": LONG_AGO, "CreationTimeBefore": FAR_AHEAD}
    making = [call for name in ("first", "other", "second") for call in endpoint(name)]
    operation = "list_endpoints" if kind == "Endpoint" else "list_endpoint_configs"
    refused = call(operation, SortBy="name", error="ValidationException: 1 validation error detected: Value 'name'")
    found = listed(kind, "first", "second", **by_name, **created, **more)
    return [*making, found, refused]


LONG_AGO, FAR_AHEAD = datetime(2021, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)
ASYNC = {
    "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 3},
    "OutputConfig": {"S3OutputPath": "s3://models/answers", "NotificationConfig": {}},
}
MEMORY = "[1024, 2048, 3072, 4096, 5120, 6144]"
FAILED = "failed to satisfy constraint: Member must satisfy enum value set: "

CASES = {
    "test_create_endpoint_config": made(variant()),
    "test_create_endpoint_config_serverless": made(serverless()),
    "test_create_endpoint_config_async": made(serverless(), AsyncInferenceConfig=ASYNC),
    "test_delete_endpoint_config": [
        model(),
        config(variant(), answer={"EndpointConfigArn": f"{ARN}endpoint-config/first"}),
        call("delete_endpoint_config", EndpointConfigName="first"),
        call("describe_endpoint_config", error=NO_CONFIG, EndpointConfigName="first"),
        call("delete_endpoint_config", error=NO_CONFIG, EndpointConfigName="first"),
    ],
    "test_create_endpoint_invalid_instance_type": [
        model(),
        config(
            variant(InstanceType="Invalid", InitialInstanceCount=1),
            error="ValidationException: 1 validation error detected: Value 'Invalid' at "
            f"'productionVariants.1.member.instanceType' {FAILED}",
        ),
    ],
    "test_create_endpoint_invalid_memory_size": [
        model(),
        config(
            serverless(1111),
            error="ValidationException: 1 validation error detected: Value '1111' at "
            f"'productionVariants.1.member.serverlessConfig.memorySizeInMB' {FAILED}{MEMORY}",
        ),
    ],
    "test_create_endpoint": [
        call("create_endpoint", error=NO_CONFIG, EndpointName="first", EndpointConfigName="none"),
        model(),
        config(variant()),
        call("create_endpoint", EndpointName="first", EndpointConfigName="first", Tags=TAGS),
        described(
            "first",
            EndpointConfigName="first",
            CreationTime=datetime,
            LastModifiedTime=datetime,
            ProductionVariants=[{"VariantName": "Main"}],
        ),
        tags(*TAGS, ADDRESS),
    ],
    "test_delete_endpoint": [
        *endpoint(),
        call("delete_endpoint", EndpointName="first"),
        call("describe_endpoint", error=NO_ENDPOINT, eventually=True, EndpointName="first"),
        call("delete_endpoint", error=NO_ENDPOINT, EndpointName="first"),
    ],
    "test_add_tags_endpoint": [*endpoint(), add_tags(*TAGS), tags(ADDRESS, *TAGS)],
    "test_delete_tags_endpoint": [
        *endpoint(),
        add_tags(*TAGS),
        call("delete_tags", ResourceArn=FIRST, TagKeys=["team", "stage"]),
        tags(ADDRESS),
    ],
    "test_list_tags_endpoint": [
        *endpoint(),
        add_tags(*MANY_TAGS, error="ValidationException: 1 validation error detected: Value"),
        add_tags(*MANY_TAGS[:49]),
        call("list_tags", {"Tags": [ADDRESS, *MANY_TAGS[:49]], "NextToken": ABSENT}, ResourceArn=FIRST),
    ],
    "test_update_endpoint_weights_and_capacities_one_variant": scaled("Main"),
    "test_update_endpoint_weights_and_capacities_two_variants": scaled("Main", "Other"),
    "test_update_endpoint_weights_and_capacities_should_throw_clienterror_no_variant": unscaled(
        desired(
            "Strange",
            error='ValidationException: The variant name(s) "Strange" is/are not present within endpoint configuration '
            '"first".',
        )
    ),
    "test_update_endpoint_weights_and_capacities_should_throw_clienterror_no_endpoint": unscaled(
        desired("Main", error=f'{NO_ENDPOINT} "{ARN}endpoint/strange".', name="strange")
    ),
    "test_update_endpoint_weights_and_capacities_should_throw_clienterror_nonunique_variant": unscaled(
        desired("Main", "Main", error='ValidationException: The variant name "Main" was non-unique within the request.')
    ),
    "test_list_endpoints": by_default("Endpoint"),
    "test_list_endpoints_filters": filtered(
        "Endpoint", LastModifiedTimeAfter=LONG_AGO, LastModifiedTimeBefore=FAR_AHEAD, StatusEquals="InService"
    ),
    "test_list_endpoint_configs": by_default("EndpointConfig"),
    "test_list_endpoint_configs_filters": filtered("EndpointConfig"),
}
