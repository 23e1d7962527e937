"""The alarm that pages, and its topic: over TLS, open to this account's alarms alone, encrypted where that is asked."""

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk.assertions import Template

from stacks.context import Options
from stacks.paging import Paging
from tests.stacks.templates import make_app


def paging(root: Path, options: Options | None = None, *, own_key: bool = False) -> App:
    app = make_app(root)
    stack = Stack(app, "Stack")
    alarms = [
        cloudwatch.Alarm(
            stack, name, metric=cloudwatch.Metric(namespace="N", metric_name=name), threshold=1, evaluation_periods=1
        )
        for name in ("Latency", "Errors")
    ]
    Paging(stack, "Paging", workload="spellcheck", alarms=alarms, options=options or Options(), own_key=own_key)
    return app


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return template_of(paging(tmp_path_factory.mktemp("paging"), own_key=True))


def template_of(app: App) -> Template:
    stack = app.node.find_child("Stack")
    assert isinstance(stack, Stack)
    return Template.from_stack(stack)


def only(template: Template, kind: str) -> dict[str, Any]:
    (resource,) = template.find_resources(kind).values()
    return dict(resource["Properties"])


def test_the_composite_alarm_notifies_of_every_alarm_and_of_its_end(template: Template) -> None:
    alarm = only(template, "AWS::CloudWatch::CompositeAlarm")
    (topic,) = template.find_resources("AWS::SNS::Topic")
    names = list(template.find_resources("AWS::CloudWatch::Alarm"))
    rule = alarm["AlarmRule"]["Fn::Join"][1]
    assert [part["Fn::GetAtt"][0] for part in rule if isinstance(part, dict)] == names
    assert " OR " in "".join(part for part in rule if isinstance(part, str))
    assert alarm["AlarmActions"] == alarm["OKActions"] == [{"Ref": topic}]


def test_the_topic_accepts_only_tls_from_this_accounts_alarms(template: Template) -> None:
    statements = only(template, "AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    denied, allowed = sorted(statements, key=lambda statement: statement["Effect"], reverse=True)
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allowed["Action"] == "sns:Publish"
    assert allowed["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_a_kms_key_is_created_only_on_request(tmp_path: Path) -> None:
    """Each costs 1 USD a month."""
    template = template_of(paging(tmp_path))
    assert template.find_resources("AWS::KMS::Key") == {}
    (topic,) = template.find_resources("AWS::SNS::Topic").values()
    assert "KmsMasterKeyId" not in topic.get("Properties", {})


def test_cloudwatch_may_use_the_topics_key(template: Template) -> None:
    (topic,) = template.find_resources("AWS::SNS::Topic").values()
    (key,) = template.find_resources("AWS::KMS::Key")
    assert topic["Properties"]["KmsMasterKeyId"]["Fn::GetAtt"] == [key, "Arn"]
    statements = only(template, "AWS::KMS::Key")["KeyPolicy"]["Statement"]
    (grant,) = [item for item in statements if item["Principal"] == {"Service": "cloudwatch.amazonaws.com"}]
    assert grant["Action"] == ["kms:Decrypt", "kms:GenerateDataKey*"]
    assert grant["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_an_address_is_subscribed_to_the_topic(tmp_path: Path) -> None:
    template = template_of(paging(tmp_path, Options(alarm_email="team@example.com")))
    (topic,) = template.find_resources("AWS::SNS::Topic")
    assert only(template, "AWS::SNS::Subscription") == {
        "Endpoint": "team@example.com",
        "Protocol": "email",
        "TopicArn": {"Ref": topic},
    }


def test_a_topic_replaces_the_stacks_own(tmp_path: Path) -> None:
    arn = "arn:aws:sns:eu-west-1:123456789012:pages"
    template = template_of(paging(tmp_path, Options(alarm_topic=arn), own_key=True))
    assert only(template, "AWS::CloudWatch::CompositeAlarm")["AlarmActions"] == [arn]
    assert template.find_resources("AWS::SNS::Topic") == template.find_resources("AWS::KMS::Key") == {}
