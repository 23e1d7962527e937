"""Check an account before `cdk deploy`, or explain a failed deployment.

examples:
  python -m stacks preflight                    the stack of every workload
  python -m stacks preflight SpellcheckStack --stage production --region eu-west-1
  python -m stacks preflight --probe ml.g4dn.xlarge --role-arn ARN
  python -m stacks explain SpellcheckStack      the likely cause of a failure, and what to do

preflight reads the workloads' files and cdk.json. Nothing needs to be built, and only --probe changes something in the
account. See docs/deploying.md. Exit codes: 0 no check fails, 1 a check fails, 2 usage, workload file or unknown name,
3 AWS is unavailable, 70 internal error, 130 interrupted.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stacks.context import Context, ReleaseSource, Stage, read_budget, read_environment, read_release
from stacks.ecs.zones import SharedZones
from workloads import ROOT, UsageError, WorkloadFolder, load_workload, workload_names
from workloads.program import exit_code

if TYPE_CHECKING:
    from stacks.preflight.checks import Check
    from stacks.preflight.questions import Answer, PreflightAccount, Trusts

PREFLIGHT = """\
Checks service quotas, instance types in the zones, AMIs, images, service-linked roles, the release's connection,
`cdk bootstrap` and permissions. Each check is pass, fail with what to do, or unknown with a reason.

Permissions needed: servicequotas:ListServiceQuotas and ListAWSDefaultServiceQuotas, ec2:DescribeAvailabilityZones and
DescribeInstanceTypeOfferings, ssm:GetParameter, ecr:DescribeImages, iam:GetRole and SimulatePrincipalPolicy,
codeconnections:GetConnection, sts:AssumeRole. Without one, its checks are unknown."""
EXPLAIN = """\
Reads events, reasons, logs and metrics of a stack or an endpoint that failed. Prints the likely cause, the line that
shows it, and what to do. Exit code 0 also if nothing failed.

Permissions needed: cloudformation:DescribeStacks, DescribeStackEvents and DescribeStackResources,
sagemaker:DescribeEndpoint and DescribeEndpointConfig, logs:DescribeLogStreams and GetLogEvents,
cloudwatch:GetMetricData, ecs:DescribeServices, ListTasks and DescribeTasks."""
LOG_WIDTH = 120
"""Columns of the table where stdout is not a terminal."""
NO_BUDGET = "cdk.json has no {stage}-budget-usd: {stage} has no budget. See docs/deploying.md, Budget."
COLOURS = {"pass": "green", "fail": "red", "unknown": "yellow"}

Answered: TypeAlias = "Sequence[tuple[Check, Answer]]"


def parser() -> argparse.ArgumentParser:
    described = argparse.ArgumentParser(
        prog="python -m stacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = described.add_subparsers(dest="command")
    preflight = commands.add_parser(
        "preflight",
        help="quotas, instance types, images, roles and the bootstrap that a deployment needs",
        description=PREFLIGHT,
        epilog="example:\n  python -m stacks preflight SpellcheckStack --stage production",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    preflight.add_argument(
        "stacks", nargs="*", metavar="STACK", help="as cdk names it, a release pipeline's too; default: every one"
    )
    preflight.add_argument(
        "--stage", choices=get_args(Stage), default="beta", help="the stage whose fleet is checked; default: beta"
    )
    preflight.add_argument(
        "--probe", metavar="TYPE", help="only start a Triton image on a temporary endpoint of this type; costs money"
    )
    preflight.add_argument("--version", metavar="YY.MM", help="the image of --probe; default: what serves on the type")
    preflight.add_argument("--role-arn", metavar="ARN", help="the execution role of --probe")
    explain = commands.add_parser(
        "explain",
        help="the likely cause of a failed stack or endpoint, and what to do",
        description=EXPLAIN,
        epilog="example:\n  python -m stacks explain SpellcheckStack",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    explain.add_argument("name", metavar="STACK|ENDPOINT", help="the name of a stack or an endpoint")
    for command in (preflight, explain):
        command.add_argument("--region", help="the region deployed to; default: the environment's or the profile's")
        command.add_argument("--json", action="store_true", help="print exactly one JSON document on stdout")
    return described


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    described = parser()
    options = described.parse_args(arguments)
    if options.command is None:
        described.print_help()
        return 0
    # The imports of the commands are local: --help is quick without botocore.
    if options.command == "explain":
        from aws_api.sagemaker import SageMakerAccount
        from stacks.explain import explain_deployment

        explanations = explain_deployment(SageMakerAccount(region=options.region), options.name)
        print(explanations.model_dump_json(indent=2) if options.json else explanations.text())
        return 0
    if options.probe:
        return probe(options)
    from aws_api.session import AwsSession
    from stacks.preflight.checks import plan
    from stacks.preflight.questions import ask, preflight_account

    context = json.loads((root / "cdk.json").read_text("utf-8")).get("context", {}).get
    every = [load_workload(name, root / "workloads") for name in workload_names(root / "workloads")]
    folders, releases = chosen(options.stacks, every, context)
    account = preflight_account(AwsSession(region=options.region))
    shared = {folder.file: folder.workload for folder in every}
    network = SharedZones(shared, account.region, in_production=options.stage == "production")
    checks = plan(folders, options.stage, releases, network, trusts(context))
    answered = [(check, ask(check.question, account)) for check in checks]
    if options.json:
        print(json.dumps(document(account, options.stage, answered), indent=2, ensure_ascii=False))
    else:
        console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
        show(answered, console)
        if read_budget(context, options.stage) is None:
            console.print(NO_BUDGET.format(stage=options.stage), highlight=False)
    return 1 if any(answer.verdict == "fail" for _, answer in answered) else 0


def probe(options: argparse.Namespace) -> int:
    """Returns 0 if the image starts on the type, else 1."""
    from aws_api.sagemaker import SageMakerAccount
    from stacks.preflight.driver_probe import plan_probe, run_probe

    account = SageMakerAccount(region=options.region)
    endpoint = plan_probe(options.probe, options.version, options.role_arn, account, datetime.now(UTC))
    result = run_probe(endpoint, account, lambda step: print(step, file=sys.stderr))
    print(json.dumps(asdict(result), indent=2) if options.json else "\n".join(result.lines()))
    return 0 if result.started else 1


def chosen(
    stacks: Sequence[str], folders: Sequence[WorkloadFolder], context: Context
) -> tuple[list[WorkloadFolder], dict[str, ReleaseSource]]:
    """Returns the workloads and the release pipelines of the named stacks, or all. Raises `UsageError`.

    A pipeline comes with the workload that it deploys.
    """
    by_stack = {folder.workload.stack_name: folder for folder in folders}
    source = read_release(context)
    releases = {folder.workload.release_stack_name: source for folder in folders} if source else {}
    if unknown := [stack for stack in stacks if stack not in by_stack | releases]:
        raise UsageError(f"There is no stack '{unknown[0]}'. Known: {', '.join([*by_stack, *releases])}.")
    names = list(stacks) or [*by_stack, *releases]
    named = [
        folder for folder in folders if {folder.workload.stack_name, folder.workload.release_stack_name} & {*names}
    ]
    return named, {stack: releases[stack] for stack in names if stack in releases}


def trusts(context: Context) -> "list[Trusts]":
    """Returns the question for each stage of a release that has an account and region of its own."""
    from stacks.preflight.questions import Trusts

    given = {stage: read_environment(context, stage) for stage in get_args(Stage)}
    return [Trusts(stage=stage, account=each[0], region=each[1]) for stage, each in given.items() if each]


def document(account: "PreflightAccount", stage: Stage, answered: Answered) -> dict[str, Any]:
    """Returns what --json prints."""
    return {
        "account": account.number,
        "region": account.region,
        "caller": account.caller,
        "stage": stage,
        "checks": [
            {"check": check.question.subject, "stacks": list(check.stacks), **asdict(answer)}
            for check, answer in answered
        ],
    }


def show(answered: Answered, console: Console) -> None:
    table = Table(box=SIMPLE_HEAD)
    for head in ("check", "verdict", "found, and what to do", "stacks"):
        table.add_column(head, overflow="fold")
    stacks = {stack for check, _ in answered for stack in check.stacks}
    for check, answer in answered:
        text = " ".join(filter(None, (answer.found, answer.what_to_do)))
        verdict = f"[{COLOURS[answer.verdict]}]{answer.verdict}[/]"
        table.add_row(
            escape(check.question.subject),
            verdict,
            escape(text),
            "all" if {*check.stacks} == stacks else ", ".join(check.stacks),
        )
    console.print(table)
    counts = [(verdict, sum(answer.verdict == verdict for _, answer in answered)) for verdict in COLOURS]
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts if count), highlight=False)


if __name__ == "__main__":
    sys.exit(exit_code(main))
