"""Rejects requests that botocore's service model does not allow, as the service does."""

from collections.abc import Mapping, Sequence
from typing import Any

from moto.sagemaker.exceptions import ValidationError

from aws_api import service_model


def check(service: str, operation: str, request: Mapping[str, Any]) -> None:
    """Raises moto's `ValidationError` with every problem of `request`."""
    refuse(service_model.problems(service, operation, request))


def refuse(failures: Sequence[str], advice: str = "") -> None:
    """Raises moto's `ValidationError` with every failure, if there is one."""
    if failures:
        count = f"{len(failures)} validation error{'s' if len(failures) > 1 else ''} detected"
        raise ValidationError(f"{count}: {'; '.join(failures)}{advice}")


def page(name: str, items: Sequence[Any], request: Mapping[str, Any], most: int = 100) -> dict[str, Any]:
    """Returns the page of `items` that a list operation answers, `most` of them by default."""
    first, size = int(request.get("NextToken") or 0), int(request.get("MaxResults") or most)
    rest = {"NextToken": str(first + size)} if first + size < len(items) else {}
    return {name: items[first : first + size], **rest}
