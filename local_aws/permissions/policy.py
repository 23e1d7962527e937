"""IAM policy documents, and the decision that they give together: allowed, denied by a statement, or allowed by none.

A statement applies if its Action, its Resource and its Condition match. One Deny that applies decides, otherwise one
Allow. A permissions boundary and a session policy must allow the call as well. Something unknown raises `PolicyError`.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-denyallow.html
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

Values = tuple[str, ...]
PolicyContext = Mapping[str, Values]
"""The values of each condition key of a request, by the key in lower case. A key of one value has a tuple of one."""

_ELEMENTS = {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition", "Principal"}
_KNOWN_KEYS = frozenset(
    {
        *(f"aws:{name}" for name in ("currenttime", "principalaccount", "principalarn", "requestedregion")),
        *(f"aws:{name}" for name in ("resourceaccount", "securetransport", "sourceaccount", "sourcearn", "tagkeys")),
        *("aws:viaawsservice", "cloudwatch:namespace", "ecs:cluster", "iam:awsservicename", "iam:passedtoservice"),
        *("kms:calleraccount", "kms:grantisforawsresource", "kms:viaservice", "s3:delimiter", "s3:prefix"),
        *("s3:resourceaccount", "sts:externalid", "sts:rolesessionname"),
    }
)
_KNOWN_TAGS = ("aws:requesttag/", "iam:resourcetag/", "s3:existingobjecttag/")
_UNKNOWN = "is not known to this local account"


class PolicyError(Exception):
    """A policy that cannot be evaluated: it is malformed, or has something unknown."""


class PolicyDecision(Enum):
    """The value is how AWS's message of a denial continues after the resource."""

    ALLOWED = ""
    EXPLICIT_DENY = "with an explicit deny in an identity-based policy"
    NOT_ALLOWED = "because no identity-based policy allows the {action} action"
    BOUNDARY = "because no permissions boundary allows the {action} action"
    SESSION = "because no session policy allows the {action} action"


@dataclass(frozen=True, slots=True)
class Permission:
    """One permission that a call needs."""

    action: str
    resource: str
    """An ARN, or `*` if the action supports no resource."""
    context: PolicyContext


@dataclass(frozen=True, slots=True)
class PolicyCondition:
    """One operator over one key. A missing key fails it, unless the operator negates, ends in IfExists, or is Null."""

    operator: str
    key: str
    values: Values

    def holds(self, context: PolicyContext) -> bool:
        """Raises `PolicyError` for an unknown operator or key."""
        if self.key not in _KNOWN_KEYS and not self.key.startswith(_KNOWN_TAGS):
            raise PolicyError(f"the condition key {self.key} {_UNKNOWN}")
        found = context.get(self.key)
        if self.operator == "Null":
            if self.values not in (("true",), ("false",)):
                raise PolicyError(f"Null has one value, true or false, and not {list(self.values)}")
            return (found is None) == (self.values == ("true",))
        of_set, _, name = self.operator.removesuffix("IfExists").rpartition(":")
        if of_set not in _IF_MISSING or name not in _OPERATORS:
            raise PolicyError(f"the condition operator {self.operator} {_UNKNOWN}")
        matches, negates = _OPERATORS[name]
        if found is None:
            return self.operator.endswith("IfExists") or _IF_MISSING[of_set](negates)
        each = (any(matches(value, other) for other in self.values) != negates for value in found)
        return any(each) if of_set == "ForAnyValue" else all(each)


@dataclass(frozen=True, slots=True)
class Patterns:
    """The values of Action or Resource; `inverted` for NotAction or NotResource."""

    values: Values
    inverted: bool
    ignore_case: bool

    def match(self, text: str) -> bool:
        found = any(glob(each, ignore_case=self.ignore_case).fullmatch(text) for each in self.values)
        return found != self.inverted


@dataclass(frozen=True, slots=True)
class Statement:
    allows: bool
    actions: Patterns
    resources: Patterns | None
    """None in a role's trust policy, whose resource is the role."""
    conditions: tuple[PolicyCondition, ...]
    principals: Mapping[str, Values]
    """By kind: AWS, Service, Federated. Empty in a policy of an identity."""

    def applies(self, permission: Permission) -> bool:
        """Raises `PolicyError` for an unknown condition, once action and resource match."""
        return (
            self.actions.match(permission.action)
            and (self.resources is None or self.resources.match(permission.resource))
            and all(condition.holds(permission.context) for condition in self.conditions)
        )


@lru_cache(maxsize=1024)
def parsed(text: str) -> tuple[Statement, ...]:
    """Returns the statements of a JSON document. Raises `PolicyError`."""
    try:
        return tuple(_statement(each) for each in as_list(json.loads(text)["Statement"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PolicyError(f"a policy is malformed: {type(error).__name__}: {error}") from error


def decide(
    permission: Permission,
    policies: Sequence[tuple[Statement, ...]],
    *,
    boundary: Sequence[tuple[Statement, ...]] | None = None,
    session: Sequence[tuple[Statement, ...]] | None = None,
) -> PolicyDecision:
    """Decides by an identity's policies, within its boundary and its session's policy, if any."""
    layers = (
        (policies, PolicyDecision.NOT_ALLOWED),
        (boundary, PolicyDecision.BOUNDARY),
        (session, PolicyDecision.SESSION),
    )
    decision = PolicyDecision.ALLOWED
    for layer, denial in layers:
        if layer is None:
            continue
        applying = [each for policy in layer for each in policy if each.applies(permission)]
        if not all(each.allows for each in applying):
            return PolicyDecision.EXPLICIT_DENY
        if not applying and decision is PolicyDecision.ALLOWED:
            decision = denial
    return decision


def trusts(policy: tuple[Statement, ...], permission: Permission, principals: Mapping[str, frozenset[str]]) -> bool:
    """Returns whether a role's trust policy lets a caller assume it. `principals` are the caller's names by kind."""

    def named(statement: Statement) -> bool:
        kinds = statement.principals.items()
        return any(value == "*" or value in principals.get(kind, ()) for kind, values in kinds for value in values)

    applying = [each for each in policy if named(each) and each.applies(permission)]
    return bool(applying) and all(each.allows for each in applying)


def as_list(value: Any) -> Sequence[Any]:
    """Returns the elements of a policy's list, which may be a single element."""
    return value if isinstance(value, list) else [value]


@lru_cache(maxsize=4096)
def glob(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """Returns a pattern of IAM (`*`, `?`) as a regular expression. Raises `PolicyError` for a policy variable."""
    for name in re.findall(r"\$\{([^}]*)\}", pattern):
        if name not in ("*", "?", "$"):
            raise PolicyError(f"the policy variable ${{{name}}} {_UNKNOWN}")
    pieces = re.split(r"(\$\{[*?$]\}|[*?])", pattern)
    wild = {"*": ".*", "?": "."}
    text = "".join(wild.get(each) or re.escape(each[2] if each.startswith("${") else each) for each in pieces)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignore_case else re.NOFLAG))


def _statement(raw: Mapping[str, Any]) -> Statement:
    if unknown := sorted(set(raw) - _ELEMENTS):
        raise PolicyError(f"the element {unknown[0]} of a statement {_UNKNOWN}")
    if raw["Effect"] not in ("Allow", "Deny"):
        raise PolicyError(f"an Effect is Allow or Deny, and not {raw['Effect']!r}")
    return Statement(
        allows=raw["Effect"] == "Allow",
        actions=_patterns(raw, "Action", ignore_case=True),
        resources=None if "Principal" in raw else _patterns(raw, "Resource", ignore_case=False),
        conditions=tuple(
            PolicyCondition(operator, key.lower(), tuple(map(_text, as_list(values))))
            for operator, keys in (raw.get("Condition") or {}).items()
            for key, values in keys.items()
        ),
        principals=_principals(raw.get("Principal", {})),
    )


def _patterns(raw: Mapping[str, Any], element: str, *, ignore_case: bool) -> Patterns:
    names = [name for name in (element, f"Not{element}") if name in raw]
    if len(names) != 1:
        raise PolicyError(f"a statement has either {element} or Not{element}")
    values = tuple(str(each) for each in as_list(raw[names[0]]))
    return Patterns(values, inverted=names[0] != element, ignore_case=ignore_case)


def _principals(raw: Any) -> dict[str, Values]:
    kinds = {"AWS": "*"} if raw == "*" else raw
    return {kind: tuple(str(each) for each in as_list(names)) for kind, names in kinds.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _like(value: str, pattern: str) -> bool:
    return glob(pattern).fullmatch(value) is not None


def _arn_like(value: str, pattern: str) -> bool:
    """Compares part by part, so that `*` matches no colon, except in the last of the six parts."""
    parts, patterns = value.split(":", 5), pattern.split(":", 5)
    return len(parts) == len(patterns) and all(map(_like, parts, patterns))


def _equal_ignoring_case(value: str, other: str) -> bool:
    return value.lower() == other.lower()


_COMPARISONS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": str.__eq__,
    "StringEqualsIgnoreCase": _equal_ignoring_case,
    "StringLike": _like,
    "ArnEquals": _arn_like,
    "ArnLike": _arn_like,
}
_OPERATORS: Mapping[str, tuple[Callable[[str, str], bool], bool]] = {
    "Bool": (_equal_ignoring_case, False),
    **{name: (compare, False) for name, compare in _COMPARISONS.items()},
    **{re.sub("^(String|Arn)", r"\1Not", name): (compare, True) for name, compare in _COMPARISONS.items()},
}
"""How a value of the request is compared with one of the policy, and whether the operator negates that."""
_IF_MISSING: Mapping[str, Callable[[bool], bool]] = {
    "": lambda negates: negates,
    "ForAllValues": lambda negates: True,
    "ForAnyValue": lambda negates: False,
}
