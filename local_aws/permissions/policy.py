"""IAM policy documents, and the answer that they give together: allowed, denied by a statement, or allowed by none.

A statement applies where its Action (or NotAction), its Resource (or NotResource) and its Condition all match. One
Deny that applies decides; else one Allow that applies does; else the answer is no. A permissions boundary and a
session's own policy limit the rest: each has to allow the call as well. Source:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-denyallow.html

It is pure, and knows neither requests nor where policies are kept.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from local_aws.permissions.conditions import Condition, Context, PolicyError, as_list, glob, parse

_ELEMENTS = {
    "Sid",
    "Effect",
    "Action",
    "NotAction",
    "Resource",
    "NotResource",
    "Condition",
    "Principal",
    "NotPrincipal",
}
_EFFECTS = ("Allow", "Deny")


class Decision(Enum):
    """The answer to one call. The value is how AWS's message of refusal goes on after "because"."""

    ALLOWED = ""
    EXPLICIT_DENY = "with an explicit deny in an identity-based policy"
    NOT_ALLOWED = "because no identity-based policy allows the {action} action"
    BOUNDARY = "because no permissions boundary allows the {action} action"
    SESSION = "because no session policy allows the {action} action"


@dataclass(frozen=True, slots=True)
class Asked:
    """One permission that a call needs."""

    action: str
    resource: str
    """An ARN, or `*` where the action supports no resource."""
    context: Context


@dataclass(frozen=True, slots=True)
class Patterns:
    """The values of Action or Resource; `inverted` where the element is NotAction or NotResource."""

    values: tuple[str, ...]
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
    conditions: tuple[Condition, ...]
    principals: Mapping[str, tuple[str, ...]] | None
    """By kind: AWS, Service, Federated. None in a policy of an identity."""

    def applies(self, asked: Asked) -> bool:
        """Raises `PolicyError` for a condition that is not known, once action and resource match."""
        return (
            self.actions.match(asked.action)
            and (self.resources is None or self.resources.match(asked.resource))
            and all(condition.holds(asked.context) for condition in self.conditions)
        )


@lru_cache(maxsize=1024)
def parsed(text: str) -> tuple[Statement, ...]:
    """Returns the statements of a document of JSON. Raises `PolicyError`. The same text is parsed once."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PolicyError(f"a policy is no JSON: {error}") from error
    if not isinstance(document, Mapping) or "Statement" not in document:
        raise PolicyError("a policy has a Statement")
    return tuple(_statement(each) for each in as_list(document["Statement"]))


def decide(
    asked: Asked,
    policies: Sequence[tuple[Statement, ...]],
    *,
    boundary: Sequence[tuple[Statement, ...]] | None = None,
    session: Sequence[tuple[Statement, ...]] | None = None,
) -> Decision:
    """Answers by an identity's policies, within its boundary and its session's policy where it has them."""
    layers = [(policies, Decision.NOT_ALLOWED), (boundary, Decision.BOUNDARY), (session, Decision.SESSION)]
    answer = Decision.ALLOWED
    for layer, refusal in layers:
        if layer is None:
            continue
        applying = [each for policy in layer for each in policy if each.applies(asked)]
        if not all(each.allows for each in applying):
            return Decision.EXPLICIT_DENY
        if not applying and answer is Decision.ALLOWED:
            answer = refusal
    return answer


def trusts(policy: tuple[Statement, ...], asked: Asked, principals: Mapping[str, frozenset[str]]) -> bool:
    """Tells whether a role's trust policy lets somebody assume it.

    `principals` are the names of who asks, by kind: an assumed role is also its role, and its account.
    """
    named = [each for each in policy if _names(each.principals or {}, principals) and each.applies(asked)]
    return bool(named) and all(each.allows for each in named)


def _names(trusted: Mapping[str, tuple[str, ...]], principals: Mapping[str, frozenset[str]]) -> bool:
    return any(
        value == "*" or value in principals.get(kind, frozenset())
        for kind, values in trusted.items()
        for value in values
    )


def _statement(raw: Any) -> Statement:
    if not isinstance(raw, Mapping):
        raise PolicyError("a Statement is a map")
    if unknown := sorted(set(raw) - _ELEMENTS):
        raise PolicyError(f"the element {unknown[0]} of a statement is not known to this local account")
    if raw.get("Effect") not in _EFFECTS:
        raise PolicyError(f"an Effect is Allow or Deny, and not {raw.get('Effect')!r}")
    if "NotPrincipal" in raw:
        raise PolicyError("NotPrincipal is not known to this local account")
    actions = _patterns(raw, "Action", ignore_case=True)
    if actions is None:
        raise PolicyError("a statement has an Action or a NotAction")
    resources = _patterns(raw, "Resource", ignore_case=False)
    if resources is None and "Principal" not in raw:
        raise PolicyError("a statement of an identity's policy has a Resource or a NotResource")
    return Statement(
        allows=raw["Effect"] == "Allow",
        actions=actions,
        resources=resources,
        conditions=parse(raw.get("Condition") or {}),
        principals=_principals(raw["Principal"]) if "Principal" in raw else None,
    )


def _patterns(raw: Mapping[str, Any], element: str, *, ignore_case: bool) -> Patterns | None:
    inverse = f"Not{element}"
    if element in raw and inverse in raw:
        raise PolicyError(f"a statement has {element} or {inverse}, and not both")
    name = inverse if inverse in raw else element
    if name not in raw:
        return None
    values = as_list(raw[name])
    if not values or not all(isinstance(each, str) for each in values):
        raise PolicyError(f"{name} is a text, or a list of texts")
    return Patterns(tuple(values), inverted=name == inverse, ignore_case=ignore_case)


def _principals(raw: Any) -> dict[str, tuple[str, ...]]:
    if raw == "*":
        return {"AWS": ("*",)}
    if not isinstance(raw, Mapping):
        raise PolicyError("a Principal is '*', or a map of kinds to names")
    return {kind: tuple(str(each) for each in as_list(names)) for kind, names in raw.items()}
