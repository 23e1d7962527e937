"""Policies are evaluated as AWS documents it: a Deny decides, an Allow allows, and anything unknown is an error."""

from typing import Any

import pytest

from local_aws.permissions.policy import (
    Permission,
    PolicyContext,
    PolicyDecision,
    PolicyError,
    decide,
    parsed,
    trusts,
)
from tests.builders import message_of
from tests.local_aws.conftest import policy_document as document

MODEL = "arn:aws:sagemaker:us-east-1:123456789012:model/m"
ROLE = "arn:aws:iam::123456789012:role/deploy"


def statement(effect: str = "Allow", **elements: Any) -> dict[str, Any]:
    whole = {"Effect": effect, **elements}
    if not {"Action", "NotAction"} & set(whole):
        whole["Action"] = "sagemaker:CreateModel"
    if not {"Resource", "NotResource", "Principal"} & set(whole):
        whole["Resource"] = "*"
    return whole


def answer(*statements: dict[str, Any]) -> PolicyDecision:
    return decide(Permission("sagemaker:CreateModel", MODEL, {}), [parsed(document(*statements))])


def holds(condition: dict[str, Any], context: PolicyContext) -> bool:
    asked = Permission("sagemaker:CreateModel", MODEL, context)
    return decide(asked, [parsed(document(statement(Condition=condition)))]) is PolicyDecision.ALLOWED


def test_an_explicit_deny_wins_in_any_order_and_without_an_allow_the_answer_is_no() -> None:
    allow, deny = statement(), statement("Deny", Action="sagemaker:*")
    assert answer(allow, deny) is answer(deny, allow) is PolicyDecision.EXPLICIT_DENY
    assert answer(allow) is PolicyDecision.ALLOWED
    assert answer(statement(Action="sagemaker:DeleteModel")) is answer() is PolicyDecision.NOT_ALLOWED


@pytest.mark.parametrize(
    ("elements", "allowed"),
    [
        ({"Action": "*"}, True),
        ({"Action": "SageMaker:createmodel"}, True),
        ({"Action": "sagemaker:CreateMode?"}, True),
        ({"Action": "sagemaker:CreateModel?"}, False),
        ({"NotAction": ["iam:*", "sagemaker:CreateModel"]}, False),
        ({"Resource": MODEL}, True),
        ({"Resource": MODEL.upper()}, False),
        ({"Resource": "arn:aws:sagemaker:*:123456789012:model/*"}, True),
        ({"NotResource": MODEL}, False),
        ({"Resource": ["arn:aws:s3:::*", MODEL]}, True),
        ({"Resource": MODEL.replace("m", "[a-z]", 1)}, False),
    ],
)
def test_actions_and_resources(elements: dict[str, Any], allowed: bool) -> None:
    assert (answer(statement(**elements)) is PolicyDecision.ALLOWED) == allowed


def test_a_boundary_and_a_sessions_policy_limit_what_is_allowed() -> None:
    asked = Permission("sagemaker:CreateModel", MODEL, {})
    own, other = [parsed(document(statement()))], [parsed(document(statement(Action="s3:*")))]
    assert decide(asked, own, boundary=own, session=own) is PolicyDecision.ALLOWED
    assert decide(asked, own, boundary=other) is PolicyDecision.BOUNDARY
    assert decide(asked, own, session=other) is PolicyDecision.SESSION
    assert decide(asked, own, boundary=[]) is PolicyDecision.BOUNDARY
    assert decide(asked, other, boundary=own) is PolicyDecision.NOT_ALLOWED
    assert decide(asked, own, session=[parsed(document(statement("Deny")))]) is PolicyDecision.EXPLICIT_DENY


@pytest.mark.parametrize(
    ("operator", "values", "found", "expected"),
    [
        ("StringEquals", ["b", "a"], ("a",), True),
        ("StringEquals", "A", ("a",), False),
        ("StringEquals", "a", None, False),
        ("StringEqualsIfExists", "a", None, True),
        ("StringEqualsIfExists", "a", ("b",), False),
        ("StringNotEquals", ["1", "2"], ("2",), False),
        ("StringNotEquals", "1", ("3",), True),
        ("StringNotEquals", "1", None, True),
        ("StringEqualsIgnoreCase", "true", ("TRUE",), True),
        ("StringLike", "Transformers/*", ("Transformers/x",), True),
        ("StringLike", "Transformers/*", ("AWS/x",), False),
        ("ArnLike", "arn:aws:states:*:1:stateMachine:*", ("arn:aws:states:r:1:stateMachine:x:1",), True),
        ("ArnLike", "arn:*:1:stateMachine:x", ("arn:aws:states:r:1:stateMachine:x",), False),
        ("ArnEquals", "arn:aws:ecs:r:1:cluster/c", ("arn:aws:ecs:r:1:cluster/d",), False),
        ("Bool", "false", ("true",), False),
        ("Bool", True, ("true",), True),
        ("Null", "true", None, True),
        ("Null", "true", ("x",), False),
        ("Null", "false", ("x",), True),
        ("ForAnyValue:StringEquals", ["a", "b"], ("c", "b"), True),
        ("ForAnyValue:StringEquals", "a", None, False),
        ("ForAllValues:StringEquals", ["a", "b"], ("c", "b"), False),
        ("ForAllValues:StringEquals", ["a"], None, True),
    ],
)
def test_conditions(operator: str, values: Any, found: tuple[str, ...] | None, expected: bool) -> None:
    context = {} if found is None else {"aws:tagkeys": found}
    assert holds({operator: {"aws:TagKeys": values}}, context) == expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"IpAddress": {"aws:SourceArn": "10.0.0.0/8"}}, "the condition operator IpAddress is not known"),
        ({"ForSome:StringLike": {"aws:TagKeys": "a"}}, "the condition operator ForSome:StringLike is not known"),
        ({"StringEquals": {"aws:Strange": "true"}}, "the condition key aws:strange is not known"),
        ({"StringLike": {"aws:PrincipalArn": "${aws:username}"}}, "the policy variable ${aws:username} is not known"),
        ({"Null": {"sts:ExternalId": "maybe"}}, "Null has one value, true or false, and not ['maybe']"),
    ],
)
def test_what_is_not_known_is_an_error_and_no_answer(condition: dict[str, Any], message: str) -> None:
    context = {"aws:tagkeys": ("a",), "aws:principalarn": ("x",), "aws:sourcearn": ("y",)}
    assert message_of(PolicyError, holds, condition, context).startswith(message)
    elsewhere = statement(Condition=condition, Action="s3:*")
    assert answer(elsewhere, statement()) is PolicyDecision.ALLOWED  # a statement about something else does not matter


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a policy is malformed: JSONDecodeError: Expecting property name enclosed in double quotes: line 1"),
        ("{}", "a policy is malformed: KeyError: 'Statement'"),
        (document({"Effect": "allow", "Action": "*", "Resource": "*"}), "an Effect is Allow or Deny, and not 'allow'"),
        (document({"Effect": "Allow", "Resource": "*"}), "a statement has either Action or NotAction"),
        (document({"Effect": "Allow", "Action": "*"}), "a statement has either Resource or NotResource"),
        (document(statement(Action="*", NotAction="s3:*")), "a statement has either Action or NotAction"),
        (document(statement(NotPrincipal="*")), "the element NotPrincipal of a statement is not known to this local"),
        (document(statement(Condition=["a"])), "a policy is malformed: AttributeError: 'list' object has no attribute"),
    ],
)
def test_a_malformed_policy_is_an_error(text: str, message: str) -> None:
    assert message_of(PolicyError, parsed, text).startswith(message)


@pytest.mark.parametrize(
    ("principal", "trusted"),
    [
        ({"AWS": ROLE}, True),
        ({"AWS": ["arn:aws:iam::123456789012:role/other", ROLE]}, True),
        ({"AWS": "123456789012"}, False),
        ({"Service": ROLE}, False),
        ("*", True),
    ],
)
def test_a_trust_policy_names_who_may_assume_the_role(principal: Any, trusted: bool) -> None:
    trust = parsed(document(statement(Action="sts:AssumeRole", Principal=principal)))
    asked = Permission("sts:AssumeRole", "arn:aws:iam::123456789012:role/wanted", {})
    assert trusts(trust, asked, {"AWS": frozenset({ROLE})}) == trusted
    assert not trusts(trust, Permission("sts:TagSession", asked.resource, {}), {"AWS": frozenset({ROLE})})
