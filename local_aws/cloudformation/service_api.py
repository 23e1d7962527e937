"""The account's own API, called from within it: botocore builds and checks the request, moto answers, no network.

CloudFormation's handlers call the API of the service whose resource they make; so do ours. A refusal is botocore's
`ClientError` or `ParamValidationError`.
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore.client import Config
from botocore.model import Shape
from moto.core.botocore_stubber import BotocoreStubber

# The account is its own world: no profile or file of the person who started it.
_NO_FILES = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
_CONFIG: dict[str, Any] = {"ignore_configured_endpoint_urls": True, "retries": {"total_max_attempts": 1}}


@cache
def client(service: str, region: str) -> Any:
    """A client whose requests never leave this process. botocore's clients may be shared by threads."""
    session: Any = botocore.session.Session(session_vars=_NO_FILES)
    made = session.create_client(
        service,
        region_name=region,
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(**_CONFIG),
    )
    stubber = BotocoreStubber()
    stubber.enabled = True
    made.meta.events.register("before-send", stubber)
    return made


def call(service: str, operation: str, request: Mapping[str, Any], region: str) -> dict[str, Any]:
    """One call. `operation` is the API's name for it, as CreateCluster."""
    found = client(service, region)
    python_name = next(name for name, api in found.meta.method_to_api_mapping.items() if api == operation)
    answer: dict[str, Any] = getattr(found, python_name)(**request)
    answer.pop("ResponseMetadata", None)
    return answer


def input_shape(service: str, operation: str, region: str) -> Shape:
    shape: Shape = client(service, region).meta.service_model.operation_model(operation).input_shape
    return shape
