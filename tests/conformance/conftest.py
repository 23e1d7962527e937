"""The local account, and endpoints that answer."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.local_aws.conftest import Endpoints
from tests.local_aws.conftest import account as account
from tests.local_aws.conftest import client as client
from tests.local_aws.conftest import endpoints as endpoints
from tests.local_aws.conftest import runtime as runtime
from tests.local_aws.conftest import sagemaker as sagemaker
from tests.local_aws.conftest import toolchain as toolchain

Invoke = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def start_endpoint(sagemaker: Any, runtime: Any) -> Iterator[Callable[..., Invoke]]:
    """Starts an endpoint from an archive in the bucket of models; returns a function that invokes it."""
    endpoints = Endpoints(sagemaker)

    def start(name: str, archive: str = "echo.tar.gz") -> Invoke:
        endpoints.create(name, config=endpoints.config(name, archive=archive))
        assert endpoints.settled(name)["EndpointStatus"] == "InService"
        return lambda body, content_type="application/json": runtime.invoke_endpoint(
            EndpointName=name, Body=body, ContentType=content_type
        )

    yield start
    endpoints.delete_all()
