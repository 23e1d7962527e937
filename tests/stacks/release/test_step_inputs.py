"""The files that each step of a release reads are its inputs: CodeBuild gives it these and nothing else.

`READS` says for each kind of step what its script and the commands in that read beside the repository's own files.
"""

import json
import re
from typing import Any

import pytest

from tests.stacks.release.conftest import ON_NEURON, all_actions, stages

BUILD, IMAGES, RECORDED, RUN = "BUILD", "build/images", "recorded", "runs/candidate"
READS = {
    "Check": set(),
    "BuildModel": set(),
    "Images": set(),
    "Record": {BUILD, IMAGES},  # verify --on sagemaker: artifact.json and its archive; the image's digest
    "ParityGate": {BUILD},  # model_build verify; for Inferentia with RECORDED beside it
    "Synth": {BUILD, IMAGES},  # app.py: artifact.json, the archive and the digests of images
    "Clear": set(),
    "SmokeTest": set(),  # invoke: workload.toml and payloads.jsonl
    "Measure": {BUILD},  # run: artifact.json, whose sha256 the recommendation names, and its archive
    "PerformanceGate": {RUN},  # compare: two runs, of which S3 has the other
    "Register": set(),  # workload.toml and payloads.jsonl
    "Propose": {RUN},  # the recommendation and the report
    "TakeDown": set(),
    "PauseScaling": set(),  # recommendation.json
    "KeepBaseline": {RUN},
}


Steps = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def steps(templates: dict[str, dict[str, Any]]) -> Steps:
    """The actions of each workload that run a script of this project, by name."""
    ours = {
        workload: {action["Name"]: action for action in all_actions(template) if action["Name"] in READS}
        for workload, template in templates.items()
    }
    assert set().union(*ours.values()) == READS.keys()
    return ours


def links(template: dict[str, Any], action: dict[str, Any]) -> dict[str, str]:
    """Returns where the step's build finds each of its further inputs, as its buildspec links them."""
    project = template["Resources"][action["Configuration"]["ProjectName"]["Ref"]]["Properties"]
    text = json.dumps(project["Source"]["BuildSpec"]).replace("\\", "")
    return dict(re.findall(r'ln -s -- "\$CODEBUILD_SRC_DIR_(\w+)" "([^"]+)"', text))


def test_every_step_has_what_it_reads_as_an_input(templates: dict[str, dict[str, Any]], steps: Steps) -> None:
    for workload, named in steps.items():
        for name, action in named.items():
            paths = links(templates[workload], action).values()
            found = {BUILD if path.startswith(f"build/{workload}/") else path for path in paths}
            expected = READS[name] | ({RECORDED} if name == "ParityGate" and workload in ON_NEURON else set())
            assert found == expected, (workload, name)


def test_every_input_is_linked_where_it_is_read_and_is_some_steps_output(
    templates: dict[str, dict[str, Any]], steps: Steps
) -> None:
    for workload, named in steps.items():
        actions = all_actions(templates[workload])
        made = {output["Name"] for action in actions for output in action.get("OutputArtifacts", [])}
        for name, action in named.items():
            first, *further = [each["Name"] for each in action["InputArtifacts"]]
            assert first == ("Clone" if name == "Propose" else "Source")
            assert set(links(templates[workload], action)) == set(further) <= made, (workload, name)


def test_a_pipeline_stays_within_codepipelines_limits(templates: dict[str, dict[str, Any]]) -> None:
    """Five inputs an action, 50 actions a stage. https://docs.aws.amazon.com/codepipeline/latest/userguide/limits.html"""
    for template in templates.values():
        assert max(len(action.get("InputArtifacts", [])) for action in all_actions(template)) <= 5
        assert max(len(stage["Actions"]) for stage in stages(template)) <= 50
