"""Every workload, built for CPU, is served by a real Triton that answers its own examples."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.payloads import request_body
from local_aws.process.triton import TritonServer
from model_build.__main__ import main
from model_build.accuracy import Answered, ScoredAnswer, measure
from model_build.execute import build
from model_build.plan import plan
from model_build.torch_threads import threads_kept
from tests.quick_triton import start_triton
from workloads import METRICS, ROOT, Example, ModelArtifact, Row, WorkloadFolder, load_workload, workload_names

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
    "sys.exit(c.main(['build', *sys.argv[2:], '--target', 'cpu']))"
)


def checkpoint_bytes(name: str) -> int:
    return sum(file.stat().st_size for file in (ROOT / "workloads" / name / "checkpoint").rglob("*") if file.is_file())


QUICK = min(NAMES, key=checkpoint_bytes)
"""The workload that `make test` builds. The others are slow; there tiny models stand for them, in a real Triton:
model_build/test_variants_served for the encoder tasks, containers/text2text for the decoding loop."""


STEP = 8
"""Every eighth example of the quick workload's evaluation is compared, and every example of the slow ones'."""


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's workloads to build in."""
    copy = tmp_path_factory.mktemp("every_workload")
    ignored = shutil.ignore_patterns("__pycache__", "recommendation.json")
    shutil.copytree(ROOT / "workloads", copy / "workloads", ignore=ignored)
    evaluation = copy / "workloads" / QUICK / "evaluation.jsonl"
    evaluation.write_text("".join(evaluation.read_text("utf-8").splitlines(keepends=True)[::STEP]), "utf-8")
    return copy


class Served:
    def __init__(self, server: TritonServer, folder: WorkloadFolder, artifact: ModelArtifact) -> None:
        self.server, self.folder, self.artifact = server, folder, artifact

    def ask(self, row: Row) -> dict[str, Any]:
        """Returns the answer to one request, by output."""
        answer = self.server.invoke(request_body(row), {"Content-Type": "application/json"})
        assert answer.status == 200, answer
        return {output["name"]: output["data"][0] for output in json.loads(answer.body)["outputs"]}

    def ask_all(self, rows: list[Row]) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(8) as threads:
            return list(threads.map(self.ask, rows))


@pytest.fixture(
    scope="session", params=[pytest.param(name, marks=[] if name == QUICK else pytest.mark.slow) for name in NAMES]
)
def served(request: pytest.FixtureRequest, root: Path) -> Iterator[Served]:
    name = request.param
    folder = load_workload(name, root / "workloads")
    with threads_kept():
        artifact = build(plan(folder, "cpu", root))
    repository = root / "build" / name / "cpu" / "repository"
    with start_triton(repository, artifact.default_model, artifact.environment) as server:
        yield Served(server, folder, artifact)


@pytest.mark.slow
def test_the_table_of_all_workloads_has_a_line_with_figures_for_each(root: Path) -> None:
    command = [sys.executable, "-c", BUILD, str(root), "--all"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split()[:4] == ["workload", "target", "runtime", "precision"]
    assert [line.split()[0] for line in lines] == NAMES
    assert all(" → " in line for line in lines)


def test_a_workload_answers_every_payload(served: Served) -> None:
    rows = served.folder.payloads()
    assert len(rows) >= 256
    answers = served.ask_all(rows)
    assert all(isinstance(answer[ANSWERS[served.folder.workload.model.task]], str) for answer in answers)


def test_served_answers_match_the_builds_accuracy(served: Served) -> None:
    """The same metrics over the wire: tokenising, batching and the ensemble change no answer."""
    task, examples = served.folder.workload.model.task, served.folder.evaluation()
    answers = served.ask_all([example.row for example in examples])
    measured = measure(METRICS[task], [_answered(task, *each) for each in zip(examples, answers, strict=True)])
    assert served.artifact.parity is not None
    assert measured == pytest.approx(served.artifact.parity.compiled, abs=1e-5)


def test_a_workloads_archive_has_no_lint_findings(served: Served, root: Path) -> None:
    archive = root / "build" / served.artifact.workload / "cpu" / "model.tar.gz"
    assert main(["lint", str(archive)]) == 0


def _answered(task: str, example: Example, answer: dict[str, Any]) -> Answered:
    return Answered(example, ScoredAnswer(text=answer[ANSWERS[task]], score=answer.get("DUPLICATE_SCORE")))
