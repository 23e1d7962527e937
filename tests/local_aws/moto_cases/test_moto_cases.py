"""moto's own tests of Application Auto Scaling and SageMaker endpoints, re-expressed and run against the account."""

import json
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import REPLAYING, clients, upload, wait_until
from tests.local_aws.moto_cases import Call, differences, moto_endpoints, moto_scaling

pytestmark = [pytest.mark.slow, pytest.mark.integration]

CASES: dict[str, list[Call]] = moto_scaling.CASES | moto_endpoints.CASES
MOTO = json.loads((Path(__file__).parent / "moto_tests.json").read_text())
DIFFERS: dict[str, str] = {name: reason for each in MOTO["differs"].values() for name, reason in each.items()}
Client = Callable[[str], Any]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, toolchain: Any) -> Iterator[Client]:
    """An account of its own, because the cases list everything that it has."""
    state = tmp_path_factory.mktemp("moto-cases")
    with LocalAccount.start(state=state, toolchain=toolchain, program=REPLAYING) as running:
        upload(running)
        yield clients(running)


@pytest.fixture(autouse=True)
def emptied(client: Client) -> Iterator[None]:
    yield
    scaling, sagemaker = client("application-autoscaling"), client("sagemaker")
    wait_until(lambda: "ing'" not in str(sagemaker.list_endpoints()["Endpoints"]))  # Creating, Updating, Deleting
    keys = ("ServiceNamespace", "ResourceId", "ScalableDimension")
    for namespace in {each["ServiceNamespace"] for each in moto_scaling.TARGETS}:
        pages = scaling.get_paginator("describe_scalable_targets").paginate(ServiceNamespace=namespace)
        for each in pages.build_full_result()["ScalableTargets"]:
            scaling.deregister_scalable_target(**{key: each[key] for key in keys})
        for each in scaling.describe_scheduled_actions(ServiceNamespace=namespace)["ScheduledActions"]:
            scaling.delete_scheduled_action(**{key: each[key] for key in (*keys, "ScheduledActionName")})
    for kind, delete in (
        ("Endpoint", sagemaker.delete_endpoint),
        ("EndpointConfig", sagemaker.delete_endpoint_config),
        ("Model", sagemaker.delete_model),
    ):
        for page in sagemaker.get_paginator(f"list_{kind.lower().replace('tc', 't_c')}s").paginate():
            for each in page[f"{kind}s"]:
                delete(**{f"{kind}Name": each[f"{kind}Name"]})
    wait_until(lambda: not sagemaker.list_endpoints()["Endpoints"])


def problems(client: Client, call: Call) -> list[str]:
    try:
        answer = getattr(client(call.service), call.operation)(**call.parameters)
    except ClientError as error:
        text = f"{error.response['Error']['Code']}: {error.response['Error']['Message']}"
        return [] if call.error and text.startswith(call.error) else [text]
    return [f"no error {call.error}"] if call.error else list(differences(answer, call.answer))


@pytest.mark.parametrize("name", CASES)
def test_the_account_answers_a_case_of_moto_as_moto_or_as_aws_documents(
    client: Client, name: str, record_property: Callable[[str, object], None]
) -> None:
    if DIFFERS[name]:
        record_property("differs", DIFFERS[name])
    for number, call in enumerate(CASES[name]):
        if call.eventually:
            wait_until(lambda call=call: not problems(client, call), timeout_s=60.0)  # type: ignore[misc]
        found = problems(client, call)
        assert found == [], f"call {number}, {call.operation}. {DIFFERS[name] or MOTO['source']}"


def test_no_test_of_the_installed_moto_is_left_out() -> None:
    """After an update of moto: compare its tests with moto_tests.json, then change "version" there."""
    assert sorted(CASES) == sorted(DIFFERS)
    assert version("moto") == MOTO["version"]
