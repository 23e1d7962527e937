"""Damaged responses of DescribeInferenceRecommendationsJob, and damaged run folders.

Each command that reads them ends in a sentence and exit code 2, or in a result.
"""

import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference_recommender.__main__ import main
from inference_recommender.measure.job import candidates_of
from inference_recommender.run_folder import RunFolder, as_json
from tests.fuzz import examples
from tests.fuzz.mutations import damaged_bytes, damaged_document
from tests.inference_recommender.api import description, endpoint, recommendation
from tests.inference_recommender.measure.completed import completed_run
from workloads import ROOT, ProjectError, load_workload

RESPONSE: dict[str, Any] = json.loads(
    as_json(
        description(
            InferenceRecommendations=[recommendation(), recommendation(EndpointConfiguration=endpoint("b"))],
            EndpointPerformances=[{"Metrics": {"MaxInvocations": 100, "ModelLatency": 9}, "EndpointInfo": {}}],
            StoppingConditions={
                "MaxInvocations": 30_000,
                "ModelLatencyThresholds": [{"Percentile": "P99", "ValueInMilliseconds": 50}],
            },
        )
    )
)
PEAK = ("--peak-invocations-per-minute", "60000")


def dump(document: Any) -> bytes:
    return json.dumps(document).encode()


def _ended(*arguments: str | Path) -> tuple[int, str, str]:
    """Returns exit code, stdout and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def _is_in_order(code: int, out: str, err: str) -> None:
    """A result on stdout, or a sentence on stderr."""
    assert code in (0, 1, 2, 4), err
    assert (err and not out) if code == 2 else out


@examples(40)
@example(content=dump({**RESPONSE, "StoppingConditions": {"MaxInvocations": "-1"}}))
@given(content=damaged_bytes(json.dumps(RESPONSE).encode()) | damaged_document(RESPONSE).map(dump))
def test_a_damaged_response_is_sized_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "describe.json"
    file.write_bytes(content)
    code, out, err = _ended("size", "--from", file, *PEAK, "--json")
    _is_in_order(code, out, err)
    if code in (0, 1):
        json.loads(out)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that came to a recommendation."""
    place, workloads = tmp_path_factory.mktemp("runs") / "job-1", tmp_path_factory.mktemp("workloads")
    ignored = shutil.ignore_patterns("checkpoint", "__pycache__", "recommendation.json")
    shutil.copytree(ROOT / "workloads" / "spellcheck", workloads / "spellcheck", ignore=ignored)
    folder = load_workload("spellcheck", workloads)
    described = description(InferenceRecommendations=[recommendation(Metrics={"MaxInvocations": 1})])
    completed_run(folder, place, described)
    return place


def _read(run: RunFolder) -> None:
    """Reads what a run is resumed from, and what another begins with."""
    for read in (run.jobs, run.inputs, run.steps, run.description, lambda: candidates_of(run, "spellcheck")):
        with suppress(ProjectError):
            read()


@pytest.mark.parametrize(
    "name",
    ["workload", "measurements", "recommendation", "request", "jobs", "run", "steps", "describe"],
)
@examples(6)
@given(data=st.data())
def test_a_damaged_run_folder_is_read_or_refused(name: str, data: st.DataObject, run_folder: Path) -> None:
    file = run_folder / f"{name}.json"
    whole = file.read_bytes()
    file.write_bytes(data.draw(damaged_bytes(whole) | damaged_document(json.loads(whole)).map(dump)))
    try:
        for command in (("size", "--from", run_folder, *PEAK), ("compare", run_folder, run_folder)):
            _is_in_order(*_ended(*command))
        _read(RunFolder(run_folder))
    finally:
        file.write_bytes(whole)
