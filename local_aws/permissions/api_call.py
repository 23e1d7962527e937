"""Reads which operation of which service a verified HTTP request asks for, and with which parameters.

moto's own routing and parsing over botocore's service models is used, on a request that `wire_form` has reduced to one
reading, so that moto executes the call that is checked.
The bodies of uploads are not read: who may upload depends on the address alone. It knows no permissions.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.utils import get_service_model
from werkzeug.exceptions import NotFound

SERVICES: Mapping[str, tuple[str, ...]] = {
    "application-autoscaling": ("application-autoscaling",),
    "autoscaling": ("autoscaling",),
    "budgets": ("budgets",),
    "cloudformation": ("cloudformation",),
    "codebuild": ("codebuild",),
    "codeconnections": ("codeconnections",),
    "codestar-connections": ("codestar-connections",),
    "codepipeline": ("codepipeline",),
    "ec2": ("ec2",),
    "ecr": ("ecr",),
    "ecs": ("ecs",),
    "elasticloadbalancing": ("elbv2",),
    "events": ("events",),
    "iam": ("iam",),
    "kms": ("kms",),
    "logs": ("logs",),
    "monitoring": ("cloudwatch",),
    "s3": ("s3",),
    "sagemaker": ("sagemaker", "sagemaker-runtime"),
    "scheduler": ("scheduler",),
    "servicequotas": ("service-quotas",),
    "sns": ("sns",),
    "ssm": ("ssm",),
    "states": ("stepfunctions",),
    "sts": ("sts",),
}
"""The names of botocore's models by the service's name in signatures."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    service: str
    """botocore's name."""
    operation: str
    parameters: Mapping[str, Any]


class UnknownCall(Exception):
    """A request that is no operation of a service whose permissions are known here."""


def read(environ: Mapping[str, Any], signed_for: str) -> ApiCall:
    """Reads a request with a whole body, which can be read again afterwards. Raises `UnknownCall`."""
    body: io.BytesIO = environ["wsgi.input"]
    request = Request({**environ, "wsgi.input": body})
    try:
        for service in SERVICES.get(signed_for, ()):
            if call := _read(request, service, body):
                return call
    finally:
        body.seek(0)
    path = environ.get("PATH_INFO", "")
    raise UnknownCall(f"{environ['REQUEST_METHOD']} {path} of the service {signed_for}")


def _read(request: Request, service: str, body: io.BytesIO) -> ApiCall | None:
    try:
        operation, in_path = get_service_router(service).match(request)
        protocol = determine_request_protocol(get_service_model(service), request.content_type)
    except (NotFound, NotImplementedError):
        return None
    parser = PROTOCOL_PARSERS[protocol](operation)
    parameters = parser.parse(
        {
            "method": request.method,
            "values": request.values,
            "headers": request.headers,
            "body": b"" if operation.has_streaming_input else body.getvalue(),
            "url_path": request.path,
            "url_params": in_path,
        }
    )
    return ApiCall(service, operation.name, parameters)
