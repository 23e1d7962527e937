"""The files that each step of a release reads are its inputs: CodeBuild gives it these and nothing else.

`READS` says for each kind of step what its script and the commands in that read beside the repository's own files.
"""

import json
import re
from typing import Any

import pytest

from tests.stacks.release.conftest import ON_NEURON, WORKLOADS, stages

BUILD, IMAGES, RECORDED, RUN = "BUILD", "build/images", "recorded", "runs/candidate"
READS = {
    "Check": set(),
    "Build": set(),
    "Images": set(),
    "Record": {BUILD, IMAGES},  # verify --on sagemaker: artifact.json and its archive; the image's digest
    "ParityGate": {BUILD},  # model_build verify; for Inferentia with RECORDED beside it
    "Collect": {BUILD},
    "Synth": {"collected/1", "collected/2"},  # app.py: every artifact.json and archive
    "Clear": set(),
    "SmokeTest": set(),  # invoke: workload.toml and payloads.jsonl
    "Measure": {BUILD},  # run: artifact.json, whose sha256 the recommendation names, and its archive
    "PerformanceGate": {RUN},  # compare: two runs, of which S3 has the other
    "Propose": {RUN},  # the recommendation and the report
    "TakeDown": set(),
    "KeepBaseline": {RUN},
}
ON_CHIP = {f"ParityGate-{workload}" for workload in ON_NEURON}


@pytest.fixture(scope="module")
def steps(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The actions that run a script of ours, by name."""
    actions = [action for stage in stages(template) for action in stage["Actions"]]
    ours = {action["Name"]: action for action in actions if action["Name"].partition("-")[0] in READS}
    assert {name.partition("-")[0] for name in ours} == READS.keys()
    return ours


def links(template: dict[str, Any], action: dict[str, Any]) -> dict[str, str]:
    """Returns where the step's build finds each of its further inputs, as its buildspec links them."""
    project = template["Resources"][action["Configuration"]["ProjectName"]["Ref"]]["Properties"]
    text = json.dumps(project["Source"]["BuildSpec"]).replace("\\", "")
    return dict(re.findall(r'ln -s -- "\$CODEBUILD_SRC_DIR_(\w+)" "([^"]+)"', text))


def test_every_step_has_what_it_reads_as_an_input(template: dict[str, Any], steps: dict[str, dict[str, Any]]) -> None:
    for name, action in steps.items():
        kind, _, workload = name.partition("-")
        found = {
            BUILD if path.startswith(f"build/{workload if workload in WORKLOADS else ''}") else path
            for path in links(template, action).values()
        }
        assert found == READS[kind] | ({RECORDED} if name in ON_CHIP else set()), name


def test_every_input_is_linked_where_it_is_read_and_is_some_steps_output(
    template: dict[str, Any], steps: dict[str, dict[str, Any]]
) -> None:
    made = {
        output["Name"]
        for stage in stages(template)
        for a in stage["Actions"]
        for output in a.get("OutputArtifacts", [])
    }
    for name, action in steps.items():
        first, *further = [each["Name"] for each in action["InputArtifacts"]]
        assert first == ("Clone" if name.startswith("Propose") else "Source")
        assert set(links(template, action)) == set(further) <= made, name


def test_no_action_has_more_inputs_than_codepipeline_takes(template: dict[str, Any]) -> None:
    """Five builds and the source are six: they reach the synthesis in groups."""
    assert max(len(a.get("InputArtifacts", [])) for stage in stages(template) for a in stage["Actions"]) <= 5
