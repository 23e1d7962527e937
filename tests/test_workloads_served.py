"""Every workload built for CPU by one command, each then served by a real Triton that answers its own examples."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.payloads import request_body
from local_aws.process.triton import TritonServer
from model_build.parity import Answered, measure
from workloads import ROOT, Example, ModelArtifact, Row, load_artifact, load_workload, workload_names

pytestmark = pytest.mark.integration

NAMES = workload_names(ROOT / "workloads")
ANSWERS = {
    "text2text-generation": "CORRECTED",
    "text-classification": "LABEL",
    "text-pair-scoring": "RELATION",
    "question-answering": "ANSWER",
}
BUILD = (
    "import sys; from pathlib import Path; import model_build.__main__ as c; c.ROOT = Path(sys.argv[1]); "
    "sys.exit(c.main(['build', '--all', '--target', 'cpu']))"
)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A repository with every workload built for `cpu`, and the table that the command printed."""
    root = tmp_path_factory.mktemp("every_workload")
    ignored = shutil.ignore_patterns("__pycache__", "recommendation.json")
    shutil.copytree(ROOT / "workloads", root / "workloads", ignore=ignored)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(root)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return root, done.stdout


class Served:
    def __init__(self, server: TritonServer, name: str, artifact: ModelArtifact) -> None:
        self.server, self.name, self.artifact = server, name, artifact
        self.folder = load_workload(name)

    def ask(self, row: Row) -> dict[str, Any]:
        """The answer to one request, by output."""
        request = urllib.request.Request(
            f"{self.server.sagemaker_url}/invocations", request_body(row), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return {output["name"]: output["data"][0] for output in json.load(response)["outputs"]}

    def ask_all(self, rows: list[Row]) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(8) as threads:
            return list(threads.map(self.ask, rows))


@pytest.fixture(scope="session", params=NAMES)
def served(
    request: pytest.FixtureRequest, built: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    root, name = built[0], request.param
    artifact = load_artifact(root, name, "cpu")
    with TritonServer.start(
        root / "build" / name / "cpu" / "repository",
        default_model=artifact.default_model,
        environment=artifact.environment,
        log_file=tmp_path_factory.mktemp("triton") / "triton.log",
    ) as server:
        yield Served(server, name, artifact)


def test_the_table_has_a_line_with_figures_for_each(built: tuple[Path, str]) -> None:
    head, *lines = built[1].splitlines()
    assert head.split()[:4] == ["workload", "target", "runtime", "precision"]
    assert [line.split()[0] for line in lines] == NAMES
    assert all(" → " in line for line in lines)


def test_it_answers_every_payload(served: Served) -> None:
    rows = served.folder.payloads()
    assert len(rows) >= 256
    answers = served.ask_all(rows)
    assert all(isinstance(answer[ANSWERS[served.folder.workload.model.task]], str) for answer in answers)


def test_what_it_answers_is_as_good_as_the_build_measured(served: Served) -> None:
    """The same metrics over the wire: tokenising, batching and the ensemble change no answer."""
    task, examples = served.folder.workload.model.task, served.folder.evaluation()
    answers = served.ask_all([example.row for example in examples])
    measured = measure(task, [_answered(task, *each) for each in zip(examples, answers, strict=True)])
    assert served.artifact.parity is not None
    assert measured == pytest.approx(served.artifact.parity.compiled, abs=1e-5)


def test_an_archive_of_every_workload_has_nothing_to_lint(built: tuple[Path, str]) -> None:
    for name in NAMES:
        archive = built[0] / "build" / name / "cpu" / "model.tar.gz"
        done = subprocess.run(
            [sys.executable, "-m", "model_build", "lint", str(archive)],
            cwd=ROOT,
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _answered(task: str, example: Example, answer: dict[str, Any]) -> Answered:
    return Answered(
        text=" | ".join(example.row.values()),
        label=example.label,
        answer=answer[ANSWERS[task]],
        score=example.score,
        scored=answer.get("DUPLICATE_SCORE"),
    )
