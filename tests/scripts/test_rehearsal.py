"""scripts/rehearse.sh and what it runs. The whole rehearsal, in a copy of the repository, is slow.

Its page, docs/rehearsal.md, must have the commands that the script runs.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.rehearsal import transcript
from scripts.rehearsal.comparison import compare
from scripts.rehearsal.template_values import resolve
from workloads import ROOT

PAGE = ROOT / "docs" / "rehearsal.md"


def commands(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("$ ")]


def test_the_page_keeps_how_commands_ended_and_drops_what_differs_from_run_to_run() -> None:
    printed = [
        "before any title",
        "## 1. Deploy",
        "$ cdk deploy OneStack",
        "WARNING something (Construct Annotations)",
        "OneStack | 1/2 | 10:06:00 PM | CREATE_COMPLETE | AWS::SNS::Topic | Topic",
        "OneStack | 2/2 | 10:06:01 PM | CREATE_FAILED   | AWS::ECS::Service | S (S1) full. Its whole log is /x/y.",
        "OneStack | 10:06:01 PM | CREATE_FAILED   | AWS::ECS::Service | S (S1) full. Its whole log is /x/y.",
        "❌  OneStack failed to deploy",
        "OneStack.Arn = arn:aws:sns:us-east-1:1:OneStack-Topic1-ABCDEFGHIJ12",
        "# exit code 1",
        "$ python one.py",
        "/tmp/rehearsal/build/spellcheck is " + "a" * 64,
        "vpc-0123456789abcdef0",
        "",
    ]
    page = "\n".join(transcript.page(printed))
    assert page.partition("## 1. Deploy")[2] == (
        "\n\n```\n"
        "$ cdk deploy OneStack\n"
        "CREATE_FAILED S (S1) full.\n"
        "❌  OneStack failed to deploy\n"
        "OneStack.Arn = arn:aws:sns:us-east-1:1:OneStack-Topic1-…\n"
        "# exit code 1\n"
        "$ python one.py\n"
        "build/spellcheck is <sha256>\n"
        "vpc-…\n"
        "```"
    )


def test_what_is_asked_and_what_is_told_are_compared_leaf_by_leaf() -> None:
    asked = {"Name": "one", "Tags": [{"Key": "A", "Value": "1"}], "Limits": {"Most": 3, "Least": 1}, "Role": "r"}
    told = {"name": "one", "tags": {"A": "1"}, "limits": {"most": "4"}, "role": "arn:aws:iam::1:role/r"}
    comparison = compare(asked, told)
    assert comparison.equal == ["Name", "Tags.A", "Role"]
    assert comparison.different == ['Limits.Most: asked 3, told "4"']
    assert comparison.untold == ["Limits.Least"]


def test_a_list_is_told_in_any_order_and_a_document_inside_a_text_as_a_document() -> None:
    assert compare({"Types": ["a", "b"]}, {"types": ["b", "a", "c"]}).different == []
    assert compare({"Types": ["a", "d"]}, {"types": ["b", "a"]}).different == ['Types[1]: asked "d", told "b"']
    assert compare({"Policy": {"B": 1, "A": [2]}}, {"policy": '{"A": [2], "B": 1}'}).different == []


@pytest.mark.parametrize(
    ("node", "fits", "text"),
    [
        ({"Ref": "Topic"}, True, "arn:topic"),
        ({"Fn::GetAtt": ["Topic", "Arn"]}, True, "whatever"),
        ({"Fn::GetAtt": ["Topic", "Arn"]}, False, ""),
        ({"Fn::Join": ["/", ["a", {"Fn::GetAtt": ["X", "Y"]}, "z"]]}, True, "a/anything/z"),
        ({"Fn::Join": ["/", ["a", {"Fn::GetAtt": ["X", "Y"]}, "z"]]}, False, "a/anything/zz"),
        ({"Fn::Join": ["/", ["a", {"Fn::GetAtt": ["X", "Y"]}, "z"]]}, False, "a//z"),
        ({"Fn::Sub": "${Topic}-${Other}"}, True, "arn:topic-1"),
        ({"Fn::Sub": "${Topic}-${Other}"}, False, "arn:other-1"),
    ],
)
def test_what_only_aws_computes_is_known_by_the_texts_around_it(node: Any, fits: bool, text: str) -> None:
    asked = resolve(node, {"Topic": "arn:topic"})
    assert (compare(asked, text).different == []) is fits


def test_a_page_is_kept_of_the_script_as_it_is() -> None:
    """Every step of the script is a section of the page, in order."""
    script = (ROOT / "scripts" / "rehearse.sh").read_text("utf-8")
    steps = [line.split('"')[1] for line in script.splitlines() if line.startswith("say ")]
    sections = [line.removeprefix("## ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("## ")]
    assert sections == steps, "run `make rehearse`"


@pytest.mark.slow
@pytest.mark.integration
def test_a_rehearsal_succeeds_and_leaves_the_persons_own_files_alone(tmp_path: Path) -> None:
    own = {file: file.stat().st_mtime_ns for file in (ROOT / "workloads").rglob("recommendation.json")}
    tools = f"{Path(sys.executable).parent}:{ROOT / 'node_modules' / '.bin'}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "rehearse.sh"), str(tmp_path / "rehearsal")],
        env={**environment, "PATH": f"{tools}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    page = "\n".join(transcript.page(done.stdout.splitlines()))
    assert commands(page) == commands(PAGE.read_text("utf-8")), "run `make rehearse`"
    assert "DIFFERENT" not in page
    assert page.count("AllTraffic: 2 instances") == 3, "before, after the new recommendation, and after the rollback"
    assert page.index("tracks 3,000") < page.index("tracks 4,800")
    assert "❌  SpellcheckStack failed to deploy" in page
    assert "the last update failed: Triton could not load the model 'spellcheck'" in page
    assert page.count("-> ergonomic webcam for travellers") == 2
    assert "\n0 left of all that was deployed" in page
    assert {file: file.stat().st_mtime_ns for file in (ROOT / "workloads").rglob("recommendation.json")} == own
