"""`python -m scripts.rehearsal.check_deployed STACK ...`: compares templates with what the services' APIs tell.

Asks CloudFormation for the deployed template and its resources, each service for each resource, and compares property
by property. stdout: a line for each type. Exit code 1 if a resource is missing or an answer is not what was asked for.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

import boto3

from scripts.rehearsal.api_answers import ANSWERS, ask
from scripts.rehearsal.comparison import Comparison, compare
from scripts.rehearsal.template_values import resolve
from workloads.program import exit_code

# Types without a resource behind them.
NO_ANSWER = {"AWS::CDK::Metadata"}


@cache
def client(service: str) -> Any:
    make: Any = boto3.client
    return make(service)


def main(stacks: list[str]) -> int:
    failed = False
    for stack in stacks:
        by_type = compared(stack)
        failed |= any(comparison.different for _, comparison in by_type.values())
        _print(stack, by_type)
    return int(failed)


def compared(stack: str) -> dict[str, tuple[int, Comparison]]:
    """Returns for each type how many resources there are, and how their properties compare."""
    cloudformation = client("cloudformation")
    template = cloudformation.get_template(StackName=stack)["TemplateBody"]
    template = json.loads(template) if isinstance(template, str) else template
    made = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    reasons = {each["ResourceType"]: each.get("ResourceStatusReason") for each in made}
    ids = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in made}
    names = {"AWS::StackName": stack, "AWS::Region": client("sts").meta.region_name, "AWS::Partition": "aws"}
    names |= {"AWS::AccountId": client("sts").get_caller_identity()["Account"], "AWS::URLSuffix": "amazonaws.com"}
    by_type: dict[str, tuple[int, Comparison]] = defaultdict(lambda: (0, Comparison()))
    for logical_id, resource in template["Resources"].items():
        kind = resource["Type"]
        if kind in NO_ANSWER:
            continue
        asked = resolve(resource.get("Properties", {}), {**names, **ids})
        if reasons.get(kind):
            print(f"{stack}: {kind}: {reasons[kind]}")
            continue
        count, comparison = by_type[kind]
        comparison.add(_compared(kind, ids.get(logical_id), asked))
        by_type[kind] = (count + 1, comparison)
    return dict(sorted(by_type.items()))


def _compared(kind: str, physical_id: str | None, asked: Mapping[str, Any]) -> Comparison:
    if physical_id is None:
        return Comparison(different=["there is no such resource"])
    if kind not in ANSWERS:
        return Comparison(different=[f"scripts/rehearsal/api_answers.toml has no call for it ({physical_id})"])
    answer = ask(kind, client, physical_id, asked)
    if answer is None:
        return Comparison(different=[f"{physical_id}: the API knows none"])
    return compare(ANSWERS[kind][0].renamed(asked), answer)


def _print(stack: str, by_type: Mapping[str, tuple[int, Comparison]]) -> None:
    print(f"{stack}: {sum(count for count, _ in by_type.values())} resources")
    for kind, (count, comparison) in by_type.items():
        asked = len(comparison.equal) + len(comparison.different) + len(comparison.untold)
        print(f"  {count:>3} {kind:<45} {len(comparison.equal):>3} of {asked} properties told")
        if comparison.untold:
            print(f"      not told: {', '.join(sorted(set(comparison.untold)))}")
        for line in comparison.different:
            print(f"      DIFFERENT {line}")


if __name__ == "__main__":
    sys.exit(exit_code(lambda: main(sys.argv[1:])))
