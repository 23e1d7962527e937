"""The Condition block of an IAM policy: operators over the context of a request.

All operators of a block hold together, and all keys of an operator; of a key's values one is enough, or none may match
where the operator negates. A key that the request does not have fails an operator, except one that negates, one that
ends in IfExists, and Null. Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition.html

An operator or a key that is not known here is an error and never an answer. It knows no statements.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Values = tuple[str, ...]
Context = Mapping[str, Values]
"""The values of each key of a request, by the key in lower case. A key of one value has a tuple of one."""

_KNOWN_KEYS = frozenset(
    {
        "aws:currenttime",
        "aws:principalaccount",
        "aws:principalarn",
        "aws:requestedregion",
        "aws:resourceaccount",
        "aws:securetransport",
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:tagkeys",
        "aws:viaawsservice",
        "cloudwatch:namespace",
        "ecs:cluster",
        "iam:awsservicename",
        "iam:passedtoservice",
        "kms:calleraccount",
        "kms:grantisforawsresource",
        "kms:viaservice",
        "s3:delimiter",
        "s3:prefix",
        "s3:resourceaccount",
        "sts:externalid",
        "sts:rolesessionname",
    }
)
_KNOWN_TAGS = ("aws:requesttag/", "iam:resourcetag/", "s3:existingobjecttag/")
"""Beginnings of keys that end in the key of a tag."""
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_ARN_PARTS = 6


class PolicyError(Exception):
    """A policy that cannot be evaluated: it has something that is not known here, or is malformed."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One operator over one key."""

    operator: str
    key: str
    wanted: Values

    def holds(self, context: Context) -> bool:
        """Raises `PolicyError` for an operator or a key that is not known."""
        if self.key not in _KNOWN_KEYS and not self.key.startswith(_KNOWN_TAGS):
            raise PolicyError(f"the condition key {self.key} is not known to this local account")
        found = context.get(self.key)
        name = self.operator
        if name == "Null":
            return (found is None) == (self._one_boolean() == "true")
        if optional := name.endswith("IfExists"):
            name = name.removesuffix("IfExists")
        of_set, _, name = name.rpartition(":")
        if of_set not in _OF_A_SET or name not in _OPERATORS:
            raise PolicyError(f"the condition operator {self.operator} is not known to this local account")
        matches, negates = _OPERATORS[name]
        if found is None:
            return optional or _OF_A_SET[of_set](negates)
        each = (any(matches(value, want) for want in self.wanted) != negates for value in found)
        return any(each) if of_set == "ForAnyValue" else all(each)

    def _one_boolean(self) -> str:
        if len(self.wanted) != 1 or self.wanted[0].lower() not in ("true", "false"):
            raise PolicyError(f"Null has one value, true or false, and not {list(self.wanted)}")
        return self.wanted[0].lower()


def parse(block: Any) -> tuple[Condition, ...]:
    """Reads a Condition block. Raises `PolicyError`."""
    if not isinstance(block, Mapping) or not all(isinstance(keys, Mapping) for keys in block.values()):
        raise PolicyError("a Condition is a map of operators to maps of keys")
    return tuple(
        Condition(operator, key.lower(), tuple(_text(each) for each in as_list(values)))
        for operator, keys in block.items()
        for key, values in keys.items()
    )


def as_list(value: Any) -> Sequence[Any]:
    """Returns the elements of a policy's list, for which one element can stand alone."""
    return value if isinstance(value, list) else [value]


@lru_cache(maxsize=4096)
def glob(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """Returns a pattern of IAM as a regular expression: `*` is any characters, also none, and `?` is one.

    Raises `PolicyError` for a policy variable, which this local account does not fill in.
    """
    for name in _VARIABLE.findall(pattern):
        if name not in ("*", "?", "$"):
            raise PolicyError(f"the policy variable ${{{name}}} is not known to this local account")
    pieces = re.split(r"(\$\{[*?$]\}|[*?])", pattern)
    wild = {"*": ".*", "?": "."}
    text = "".join(wild.get(each) or re.escape(each[2] if each.startswith("${") else each) for each in pieces)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignore_case else re.NOFLAG))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise PolicyError(f"a condition's value is a text, a number or a boolean, and not {type(value).__name__}")


def _like(value: str, pattern: str) -> bool:
    return glob(pattern).fullmatch(value) is not None


def _arn_like(value: str, pattern: str) -> bool:
    """Compares part by part, so that `*` does not reach over a colon, except in the last part."""
    parts, patterns = value.split(":", _ARN_PARTS - 1), pattern.split(":", _ARN_PARTS - 1)
    return len(parts) == len(patterns) and all(map(_like, parts, patterns))


_OPERATORS: Mapping[str, tuple[Callable[[str, str], bool], bool]] = {
    "StringEquals": (str.__eq__, False),
    "StringNotEquals": (str.__eq__, True),
    "StringEqualsIgnoreCase": (lambda value, want: value.lower() == want.lower(), False),
    "StringNotEqualsIgnoreCase": (lambda value, want: value.lower() == want.lower(), True),
    "StringLike": (_like, False),
    "StringNotLike": (_like, True),
    "ArnEquals": (_arn_like, False),
    "ArnLike": (_arn_like, False),
    "ArnNotEquals": (_arn_like, True),
    "ArnNotLike": (_arn_like, True),
    "Bool": (lambda value, want: value.lower() == want.lower(), False),
}
"""How a value of the request is compared with one of the policy, and whether the operator negates that."""
_OF_A_SET: Mapping[str, Callable[[bool], bool]] = {
    "": lambda negates: negates,
    "ForAllValues": lambda negates: True,
    "ForAnyValue": lambda negates: False,
}
"""The answer for a key that the request does not have, by the operator's prefix."""
