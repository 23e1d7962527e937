"""The templates of the ECS service and the batch: unchanged without notice, sound to cdk-nag and cfn-lint."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cfnlint.api import lint

from tests.stacks.ec2_miniature import Ec2Repository, make_ec2_repository
from tests.stacks.nag import nag_findings

SNAPSHOTS = Path(__file__).parent / "snapshots"
ON_SAGEMAKER = "duplicates-on-sagemaker"


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ec2Repository]:
    """By the name of the snapshot."""
    service = make_ec2_repository(tmp_path_factory.mktemp("service"), "query_intent")
    service.recommend()
    batch = make_ec2_repository(tmp_path_factory.mktemp("batch"), "duplicates")
    processing = make_ec2_repository(tmp_path_factory.mktemp("processing"), "duplicates", "cpu")
    processing.instance_types("cpu", "ml.c5.2xlarge")
    return {"QueryIntentStack": service, "DuplicatesStack": batch, ON_SAGEMAKER: processing}


@pytest.mark.parametrize("name", ["QueryIntentStack", "DuplicatesStack"])
def test_the_template_is_the_one_last_reviewed(repositories: dict[str, Ec2Repository], name: str) -> None:
    """A difference rewrites the snapshot and fails: read the diff, then run again."""
    snapshot = SNAPSHOTS / f"{name}.template.json"
    actual = masked(repositories[name].synthesise().json)
    expected = snapshot.read_text("utf-8") if snapshot.exists() else ""
    if actual != expected:
        snapshot.write_text(actual, "utf-8")
    assert actual == expected, f"{snapshot} was rewritten: review the difference"


@pytest.mark.parametrize("name", ["QueryIntentStack", "DuplicatesStack", ON_SAGEMAKER])
def test_cdk_nag_finds_nothing_unanswered_and_cfn_lint_no_error(
    repositories: dict[str, Ec2Repository], name: str
) -> None:
    """Of cfn-lint's warnings one kind is CDK's own: a DependsOn beside a reference that implies it."""
    repository = repositories[name]
    assert nag_findings(repository.app()) == []
    template = json.dumps(repository.synthesise().json)
    found = [match.rule.id for match in lint(template, regions=["us-east-1", "eu-west-1"])]
    assert set(found) <= {"W3005"}


def test_cfn_lint_reads_the_state_machine_too(repositories: dict[str, Ec2Repository]) -> None:
    template = repositories["DuplicatesStack"].synthesise().json
    (machine,) = (each for each in template["Resources"].values() if each["Type"] == "AWS::StepFunctions::StateMachine")
    machine["Properties"]["DefinitionString"] = json.dumps({"StartAt": "Nowhere", "States": {"A": {"Type": "Succeed"}}})
    assert "E3601" in {match.rule.id for match in lint(json.dumps(template), regions=["us-east-1"])}


def masked(template: dict[str, Any]) -> str:
    """Without the archive's hash: it is not decided here."""
    text = json.dumps(template, indent=1, sort_keys=True, ensure_ascii=False)
    return re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", text) + "\n"
