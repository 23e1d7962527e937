"""Cases that re-express moto's own tests as calls of boto3 and expected answers.

`CASES` of a module has the calls for each of moto's test functions. moto_tests.json names every test function. It gives
the reason where AWS documents another answer than moto's test expects; the case then has the documented answer. Its
source is the newest public commit when it was written: those tests equal the source distribution's of its version.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = object()
"""The expectation of a member that is not in the answer."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call and its expected answer, or the beginning of the expected error: `CODE: MESSAGE`."""

    service: str
    operation: str
    parameters: Mapping[str, Any]
    answer: Mapping[str, Any]
    error: str = ""
    eventually: bool = False
    """Whether the call is repeated until the answer is the expected one."""


def differences(answer: Any, expected: Any, path: str = "answer") -> Iterator[str]:
    """Yields what differs. Expected mappings may leave members out; an empty mapping fits everything."""
    if isinstance(expected, Mapping) and isinstance(answer, Mapping):
        for key, value in expected.items():
            yield from differences(answer.get(key, ABSENT), value, f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(answer, list) and len(answer) == len(expected):
        for number, (item, value) in enumerate(zip(answer, expected, strict=True)):
            yield from differences(item, value, f"{path}[{number}]")
    elif isinstance(expected, re.Pattern):
        if not expected.fullmatch(str(answer)):
            yield f"{path} is {answer!r}, which does not match {expected.pattern}"
    elif answer != expected and not (isinstance(expected, type) and isinstance(answer, expected)):
        yield f"{path} is {answer!r}, expected {expected!r}"
