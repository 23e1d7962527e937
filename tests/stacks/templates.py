"""Checks of a whole template: its snapshot, cdk-nag, cfn-lint, and botocore on the API calls that its blocks become."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from aws_cdk import App, CloudFormationValidatePlugin, Validations
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import lint
from cfnlint.match import Match

from tests.builders import assert_is_golden

SNAPSHOTS = Path(__file__).parent / "snapshots"
PSEUDO_PARAMETERS = {
    "AWS::Region": "us-east-1",
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
}


def assert_is_snapshot(stack_name: str, text: str) -> None:
    """Fails on a difference after rewriting the snapshot: read the diff, then run again."""
    assert_is_golden(SNAPSHOTS / f"{stack_name}.template.json", text)


def make_app(outdir: Path, context: Mapping[str, Any] | None = None) -> App:
    """Returns an app as stacks/app.py makes it: without the checks of CDK, whose rules take seconds to load.

    `nag_findings` has them.
    """
    return App(
        outdir=str(outdir),
        context=context,
        stack_traces=False,
        tree_metadata=False,
        builtin_cloud_formation_validation=False,
    )


@cache
def cdks_own_checks() -> CloudFormationValidatePlugin:
    """Returns one for all apps of the process: its rules are compiled in seconds, as long as ten templates take."""
    return CloudFormationValidatePlugin()


def nag_findings(app: App) -> list[str]:
    """Returns the unanswered findings of cdk-nag's AwsSolutions pack and of CDK's own checks of templates."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), cdks_own_checks())
    try:
        app.synth(force=True)  # The plugin has not seen an assembly that was synthesised before.
    except RuntimeError as error:
        if not str(error).startswith("ValidationFailed"):
            raise
    report = json.loads((Path(app.outdir) / "validation-report.json").read_text("utf-8"))
    return [violation["ruleName"] for plugin in report["pluginReports"] for violation in plugin["violations"]]


def lint_matches(template: dict[str, Any], *regions: str) -> list[Match]:
    return list(lint(json.dumps(template), regions=list(regions)))


def filled(value: Any) -> Any:
    """Replaces intrinsic functions by text that looks like what CloudFormation would put there."""
    match value:
        case {"Fn::Join": [separator, parts]}:
            return separator.join(filled(part) for part in parts)
        case {"Ref": name}:
            return PSEUDO_PARAMETERS.get(name, f"arn:aws:service:us-east-1:123456789012:{name}")
        case {"Fn::GetAtt": [name, "Arn"]}:
            return f"arn:aws:service:us-east-1:123456789012:{name}"
        case {"Fn::GetAtt": [name, _]}:
            return f"{name}-name"
        case {"Fn::Select": [index, {"Fn::Split": [separator, text]}]}:
            parts = filled(text).split(separator)
            return parts[min(int(index), len(parts) - 1)]
        case {"Fn::Select": [index, {"Fn::GetAZs": _}]}:
            return f"us-east-1{'abcdef'[int(index)]}"
        case {"Fn::FindInMap": _}:
            return "763104351884"
        case {"Fn::Sub": text}:
            return re.sub(r"\$\{([\w:]+)\}", lambda match: PSEUDO_PARAMETERS.get(match[1], match[0]), text)
        case dict():
            return {key: filled(item) for key, item in value.items()}
        case list():
            return [filled(item) for item in value]
        case _:
            return value
