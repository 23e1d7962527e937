"""Policies are answered as AWS documents it: a Deny decides, an Allow allows, and what is not known is an error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.iam.access_control import IAMPolicy, PermissionResult

from local_aws.permissions.policy import (
    Permission,
    PolicyContext,
    PolicyDecision,
    PolicyError,
    decide,
    glob,
    parsed,
    trusts,
)

MODEL = "arn:aws:sagemaker:us-east-1:123456789012:model/m"
ROLE = "arn:aws:iam::123456789012:role/deploy"


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


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


def test_without_an_allow_the_answer_is_no() -> None:
    assert decide(Permission("s3:GetObject", "arn:aws:s3:::b/k", {}), []) is PolicyDecision.NOT_ALLOWED
    assert answer(statement(Action="sagemaker:DeleteModel")) is PolicyDecision.NOT_ALLOWED


def test_an_explicit_deny_wins_in_any_order() -> None:
    allow, deny = statement(), statement("Deny", Action="sagemaker:*")
    assert answer(allow, deny) is answer(deny, allow) is PolicyDecision.EXPLICIT_DENY
    assert answer(allow) is PolicyDecision.ALLOWED


@pytest.mark.parametrize(
    ("elements", "allowed"),
    [
        ({"Action": "*"}, True),
        ({"Action": "SageMaker:createmodel"}, True),
        ({"Action": ["s3:*", "sagemaker:Create*"]}, True),
        ({"Action": "sagemaker:CreateMode?"}, True),
        ({"Action": "sagemaker:CreateModel?"}, False),
        ({"NotAction": "iam:*"}, True),
        ({"NotAction": ["iam:*", "sagemaker:CreateModel"]}, False),
        ({"Resource": MODEL}, True),
        ({"Resource": MODEL.upper()}, False),
        ({"Resource": "arn:aws:sagemaker:*:123456789012:model/*"}, True),
        ({"Resource": "arn:aws:sagemaker:us-east-1:123456789012:endpoint/*"}, False),
        ({"NotResource": "arn:aws:s3:::*"}, True),
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
    ("condition", "context", "expected"),
    [
        ({"StringEquals": {"iam:PassedToService": "a"}}, {"iam:passedtoservice": ("a",)}, True),
        ({"StringEquals": {"iam:PassedToService": ["b", "a"]}}, {"iam:passedtoservice": ("a",)}, True),
        ({"StringEquals": {"iam:PassedToService": "A"}}, {"iam:passedtoservice": ("a",)}, False),
        ({"StringEquals": {"iam:PassedToService": "a"}}, {}, False),
        ({"StringEqualsIfExists": {"iam:PassedToService": "a"}}, {}, True),
        ({"StringEqualsIfExists": {"iam:PassedToService": "a"}}, {"iam:passedtoservice": ("b",)}, False),
        ({"StringNotEquals": {"s3:ResourceAccount": "1"}}, {"s3:resourceaccount": ("1",)}, False),
        ({"StringNotEquals": {"s3:ResourceAccount": ["1", "2"]}}, {"s3:resourceaccount": ("2",)}, False),
        ({"StringNotEquals": {"s3:ResourceAccount": "1"}}, {"s3:resourceaccount": ("3",)}, True),
        ({"StringNotEquals": {"s3:ResourceAccount": "1"}}, {}, True),
        (
            {"StringEqualsIgnoreCase": {"s3:ExistingObjectTag/SageMaker": "true"}},
            {"s3:existingobjecttag/sagemaker": ("TRUE",)},
            True,
        ),
        (
            {"StringLike": {"cloudwatch:namespace": "Transformers/*"}},
            {"cloudwatch:namespace": ("Transformers/x",)},
            True,
        ),
        ({"StringLike": {"cloudwatch:namespace": "Transformers/*"}}, {"cloudwatch:namespace": ("AWS/x",)}, False),
        (
            {"ArnLike": {"aws:SourceArn": "arn:aws:states:*:1:stateMachine:*"}},
            {"aws:sourcearn": ("arn:aws:states:r:1:stateMachine:x:1",)},
            True,
        ),
        (
            {"ArnLike": {"aws:SourceArn": "arn:*:1:stateMachine:x"}},
            {"aws:sourcearn": ("arn:aws:states:r:1:stateMachine:x",)},
            False,
        ),
        (
            {"ArnEquals": {"ecs:cluster": "arn:aws:ecs:r:1:cluster/c"}},
            {"ecs:cluster": ("arn:aws:ecs:r:1:cluster/d",)},
            False,
        ),
        ({"Bool": {"aws:SecureTransport": "false"}}, {"aws:securetransport": ("true",)}, False),
        ({"Bool": {"aws:SecureTransport": True}}, {"aws:securetransport": ("true",)}, True),
        ({"Null": {"sts:ExternalId": "true"}}, {}, True),
        ({"Null": {"sts:ExternalId": "true"}}, {"sts:externalid": ("x",)}, False),
        ({"Null": {"sts:ExternalId": "false"}}, {"sts:externalid": ("x",)}, True),
        ({"ForAnyValue:StringEquals": {"aws:TagKeys": ["a", "b"]}}, {"aws:tagkeys": ("c", "b")}, True),
        ({"ForAnyValue:StringEquals": {"aws:TagKeys": "a"}}, {}, False),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a", "b"]}}, {"aws:tagkeys": ("c", "b")}, False),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a"]}}, {}, True),
        (
            {"ForAnyValue:StringEquals": {"iam:ResourceTag/aws-cdk:bootstrap-role": ["deploy"]}},
            {"iam:resourcetag/aws-cdk:bootstrap-role": ("deploy",)},
            True,
        ),
    ],
)
def test_conditions(condition: dict[str, Any], context: PolicyContext, expected: bool) -> None:
    assert holds(condition, context) == expected


def test_all_operators_and_all_keys_have_to_hold() -> None:
    both = {
        "StringEquals": {"iam:PassedToService": "a", "aws:RequestedRegion": "r"},
        "Bool": {"aws:SecureTransport": "true"},
    }
    context = {"iam:passedtoservice": ("a",), "aws:requestedregion": ("r",), "aws:securetransport": ("true",)}
    assert holds(both, context)
    for key in context:
        assert not holds(both, {**context, key: ("another",)})


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (
            {"IpAddress": {"aws:SourceArn": "10.0.0.0/8"}},
            "the condition operator IpAddress is not known to this local account",
        ),
        (
            {"ForSome:StringLike": {"aws:TagKeys": "a"}},
            "the condition operator ForSome:StringLike is not known to this local account",
        ),
        (
            {"StringEquals": {"aws:MultiFactorAuthPresent": "true"}},
            "the condition key aws:multifactorauthpresent is not known to this local account",
        ),
        (
            {"StringLike": {"aws:PrincipalArn": "${aws:username}"}},
            "the policy variable ${aws:username} is not known to this local account",
        ),
        ({"Null": {"sts:ExternalId": "maybe"}}, "Null has one value, true or false, and not ['maybe']"),
    ],
)
def test_what_is_not_known_is_an_error_and_no_answer(condition: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        holds(condition, {"aws:tagkeys": ("a",), "aws:principalarn": ("x",), "aws:sourcearn": ("y",)})
    assert str(caught.value) == message
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
    with pytest.raises(PolicyError) as caught:
        parsed(text)
    assert str(caught.value).startswith(message)


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


TEXTS = st.text("ab:/*?.[$", max_size=8)


@given(st.text("ab:/.[$\n", max_size=12), TEXTS)
def test_a_pattern_matches_as_the_slow_definition_says(text: str, pattern: str) -> None:
    def match(start: int, at: int) -> bool:
        if at == len(pattern):
            return start == len(text)
        if pattern[at] == "*":
            return any(match(end, at + 1) for end in range(start, len(text) + 1))
        return start < len(text) and pattern[at] in ("?", text[start]) and match(start + 1, at + 1)

    assert (glob(pattern).fullmatch(text) is not None) == match(0, 0)


ACTIONS = st.sampled_from(["s3:GetObject", "s3:PutObject", "s3:*", "*", "iam:PassRole", "s3:Get*"])
RESOURCES = st.sampled_from(["*", "arn:aws:s3:::b/k", "arn:aws:s3:::b/*", "arn:aws:s3:::other/*"])
STATEMENTS = st.builds(
    lambda effect, action, resource: {"Effect": effect, "Action": action, "Resource": resource},
    st.sampled_from(["Allow", "Deny"]),
    st.one_of(ACTIONS, st.lists(ACTIONS, min_size=1, max_size=3)),
    st.one_of(RESOURCES, st.lists(RESOURCES, min_size=1, max_size=2)),
)


@given(st.lists(STATEMENTS, min_size=1, max_size=5), st.sampled_from(["s3:GetObject", "iam:PassRole"]))
def test_moto_s_evaluator_agrees_where_it_can(statements: list[dict[str, Any]], action: str) -> None:
    """moto evaluates one policy's actions and resources, and no conditions of an identity's policy."""
    text, resource = document(*statements), "arn:aws:s3:::b/k"
    theirs = IAMPolicy(text).is_action_permitted(action, resource)
    expected = {
        PermissionResult.DENIED: PolicyDecision.EXPLICIT_DENY,
        PermissionResult.PERMITTED: PolicyDecision.ALLOWED,
        PermissionResult.NEUTRAL: PolicyDecision.NOT_ALLOWED,
    }
    assert decide(Permission(action, resource, {}), [parsed(text)]) is expected[theirs]
