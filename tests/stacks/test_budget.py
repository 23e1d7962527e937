"""A stage's budget: one for all of its stacks, found by the tag that each of them has."""

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack

from stacks.budget import NAME, STAGE_TAG, WORKLOAD_TAG
from stacks.context import Options, read_options
from tests.stacks.miniature import Synthesis, make_ec2_repository, make_repository, synthesis_of
from tests.stacks.templates import filled, lint_matches, nag_findings
from workloads import UsageError


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
