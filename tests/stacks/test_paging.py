"""What reaches a person: the budget of a stage, and the alarm that pages with its encrypted topic."""

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk.assertions import Template

from stacks.budget import NAME, STAGE_TAG, WORKLOAD_TAG
from stacks.context import Options, read_options
from stacks.paging import Paging
from tests.stacks.miniature import Synthesis, make_ec2_repository, make_repository, synthesis_of
from tests.stacks.templates import filled, lint_matches, make_app, nag_findings
from workloads import UsageError


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


@pytest.fixture(scope="module")
def budgeted(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    app = make_repository(tmp_path_factory.mktemp("budget")).app(options=Options(budget_usd=500))
    return synthesis_of(app, NAME)


def request(budgeted: Synthesis) -> dict[str, Any]:
    properties = filled(budgeted.only("AWS::Budgets::Budget"))
    limit = properties["Budget"]["BudgetLimit"]
    budget = {**properties["Budget"], "BudgetLimit": {**limit, "Amount": str(limit["Amount"])}}
    return {**properties, "Budget": budget, "AccountId": "123456789012"}


def test_a_budget_notifies_at_80_percent_and_at_a_forecast_of_the_limit(budgeted: Synthesis) -> None:
    made = budgeted.only("AWS::Budgets::Budget")
    assert made["Budget"]["BudgetLimit"] == {"Amount": 500, "Unit": "USD"}
    assert made["Budget"]["TimeUnit"] == "MONTHLY"
    told = made["NotificationsWithSubscribers"]
    assert [(each["Notification"]["NotificationType"], each["Notification"]["Threshold"]) for each in told] == [
        ("ACTUAL", 80),
        ("FORECASTED", 100),
    ]
    (topic,) = budgeted.of_type("AWS::SNS::Topic")
    assert {each["Subscribers"][0]["Address"]["Ref"] for each in told} == {topic}
    _, allowed = budgeted.only("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    assert allowed["Principal"] == {"Service": "budgets.amazonaws.com"}


def test_a_budget_filters_by_the_stage_tag_of_every_stack(tmp_path: Path) -> None:
    make_ec2_repository(tmp_path, "duplicates")
    make_ec2_repository(tmp_path, "query_intent")
    app = make_repository(tmp_path).app(options=Options(budget_usd=500))
    stacks = {child.node.id: child for child in app.node.children if isinstance(child, Stack)}
    assert set(stacks) == {"DuplicatesStack", "QueryIntentStack", "SharedNetworkStack", "SpellcheckStack", NAME}
    assert {stack.tags.tag_values()[STAGE_TAG] for stack in stacks.values()} == {"beta"}
    workloads = {name: stack.tags.tag_values().get(WORKLOAD_TAG) for name, stack in stacks.items()}
    assert workloads["SpellcheckStack"] == "spellcheck"
    assert workloads["SharedNetworkStack"] is None
    budget = synthesis_of(app, NAME).only("AWS::Budgets::Budget")["Budget"]
    assert budget["CostFilters"] == {"TagKeyValue": [f"user:{STAGE_TAG}$beta"]}


def test_without_a_limit_there_is_no_budget(tmp_path: Path) -> None:
    assert make_repository(tmp_path).app().node.try_find_child(NAME) is None


@pytest.mark.parametrize("value", ["none", "0", "-1", "inf", "nan"])
def test_an_invalid_amount_is_rejected(value: str) -> None:
    with pytest.raises(UsageError) as refusal:
        read_options({"beta-budget-usd": value}.get)
    assert str(refusal.value) == f"-c beta-budget-usd: got '{value}'. Allowed: USD a month, more than 0."


def test_each_stage_reads_its_own_limit() -> None:
    context = {"stage": "production", "production-budget-usd": "9000.5", "beta-budget-usd": 70}
    assert read_options(context.get).budget_usd == 9000.5


@pytest.mark.slow
def test_cdk_nag_and_cfn_lint_have_no_findings(budgeted: Synthesis) -> None:
    assert nag_findings(budgeted.app) == []
    assert [str(match) for match in lint_matches(budgeted.json, "us-east-1")] == []
