"""What the Inf1 image runs, under the torch 1.13.1, the numpy and the Python of that image: built, served, batched.

The environment is `make inf1`'s. The source is what a remote build sends, AWS's packages are tests/fake_neuron.py,
which traces with the real torch.jit of 1.13.1, and the answers are those of the checkpoint under the torch of here.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from containers import archive_reader
from containers.encoder.answers import OUTPUTS
from containers.encoder.goldens import Recorded
from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from model_build.checkpoint import resolve
from model_build.encoder import bert
from model_build.remote.source import pack_source
from tests import fake_neuron
from tests.containers.batch import batch_run
from tests.containers.neuron.neuron_server import running
from tests.model_build.neuron import inf1_names
from workloads import ROOT, WorkloadFolder, load_workload

PYTHON = ROOT / ".venv-inf1" / "bin" / "python"
BUILDS = {"duplicates": "inf1", "query_intent": "inf1", "question_answering": "inf1-data-parallel"}
EXAMPLES = 24

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.skipif(
        not PYTHON.exists(),
        reason="the Inf1 image's torch 1.13.1 is not installed: `make inf1` does it, and needs a Python 3.10",
    ),
]


class Original:
    """An `Engine`: the checkpoint's network as it is here."""

    def __init__(self, source: WorkloadFolder) -> None:
        self._network = bert.load(resolve(source, ROOT / "build" / "checkpoints"), encoder(source))

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.no_grad():
            outputs = self._network(*(torch.from_numpy(tensors[name]) for name in self._network.inputs))
        return {name: output.numpy() for name, output in zip(self._network.outputs, outputs, strict=True)}


def encoder(source: WorkloadFolder) -> Any:
    return source.workload.model


@pytest.fixture(scope="module", params=BUILDS)
def source(request: pytest.FixtureRequest) -> WorkloadFolder:
    return load_workload(request.param)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With the fake of torch_neuron, and `python` that of the image."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("NEURON_", "PYTHONPATH"))}
    path = fake_neuron.write_package(tmp_path_factory.mktemp("site"), "torch_neuron")
    return {**found, "PYTHONPATH": path, "PATH": os.pathsep.join([str(PYTHON.parent), found["PATH"]])}


@pytest.fixture(scope="module")
def served(source: WorkloadFolder, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds as a remote build does, and returns the unpacked archive."""
    name = source.workload.name
    folder = tmp_path_factory.mktemp(name)
    pack_source(source, ROOT, folder / "source.tar.gz")
    with (folder / "source.tar.gz").open("rb") as packed:
        archive_reader.unpack(packed, folder / "work")
    run(["model_build", "build", name, "--target", BUILDS[name]], folder / "work", environment)
    built = folder / "work" / "build" / name / BUILDS[name]
    assert json.loads((built / "artifact.json").read_text())["toolchain"]["torch"] == "1.13.1"
    with (built / "model.tar.gz").open("rb") as archive:
        archive_reader.unpack(archive, folder / "served")
    return folder / "served"


@pytest.fixture(scope="module")
def rows(source: WorkloadFolder) -> list[dict[str, str]]:
    return [dict(example.row) for example in list(source.evaluation())[:EXAMPLES]]


@pytest.fixture(scope="module")
def expected(source: WorkloadFolder, served: Path, rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    answers = Predictor(Preprocessor.load(served), Original(source)).predict(rows)
    assert all(isinstance(answer, dict) for answer in answers)
    return [dict(answer) for answer in answers if isinstance(answer, dict)]


def test_the_names_that_the_quick_test_allows_are_those_of_the_real_package() -> None:
    told = subprocess.run([str(PYTHON), inf1_names.__file__], capture_output=True, text=True, check=True).stdout
    assert json.loads(told) == inf1_names.facts()


@pytest.mark.parametrize("cores", ["0", "0-3"])
def test_the_server_gives_the_checkpoints_answers(
    source: WorkloadFolder,
    served: Path,
    environment: dict[str, str],
    rows: list[dict[str, str]],
    expected: list[dict[str, Any]],
    tmp_path: Path,
    cores: str,
) -> None:
    with running(served, tmp_path / "server.log", **environment, NEURON_RT_VISIBLE_CORES=cores) as server:
        for start in range(0, len(rows), 8):
            window = rows[start : start + 8]
            status, answer = server.request("POST", "/invocations", document(window))
            assert status == 200, answer
            given = {output["name"]: output["data"] for output in answer["outputs"]}
            for place, wanted in enumerate(expected[start : start + 8]):
                agree({name: data[place] for name, data in given.items()}, wanted, source.workload.model.task)


def test_the_batch_program_gives_the_checkpoints_answers(
    source: WorkloadFolder,
    served: Path,
    environment: dict[str, str],
    rows: list[dict[str, str]],
    expected: list[dict[str, Any]],
    tmp_path: Path,
) -> None:
    lines = [json.dumps({"id": number, **row}) + "\n" for number, row in enumerate(rows)]
    (tmp_path / "rows.jsonl").write_text("".join(lines), "utf-8")
    program = batch_run.install(tmp_path / "program")
    words = ["--model", str(served), "--input", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "out")]
    run(["containers.batch", *words], program, {**environment, "NEURON_RT_VISIBLE_CORES": "0-1"})
    for given, wanted in zip(batch_run.read_rows(tmp_path / "out", "predictions"), expected, strict=True):
        agree(given, wanted, source.workload.model.task)


def test_a_verification_job_records_the_checkpoints_numbers(
    source: WorkloadFolder, served: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    evaluation = (source.path / "evaluation.jsonl").read_text("utf-8").splitlines()[:EXAMPLES]
    (tmp_path / "rows.jsonl").write_text("\n".join(evaluation), "utf-8")
    words = ["--model", str(served), "--input", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "outputs")]
    run(["containers.batch.record", *words], batch_run.install(tmp_path / "program"), environment)
    recorded = Recorded.from_json((tmp_path / "outputs").read_text("utf-8")).rows
    original = Predictor(Preprocessor.load(served), Original(source))
    wanted = original.outputs([row.encoding for row in recorded])
    assert len(recorded) == EXAMPLES
    for row, outputs in zip(recorded, wanted, strict=True):
        for name, output in outputs.items():
            np.testing.assert_allclose(row.outputs[name], np.atleast_1d(output), atol=1e-4)


def run(words: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [str(PYTHON), "-m", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def document(rows: list[dict[str, str]]) -> bytes:
    tensors = [
        {"name": field.upper(), "shape": [len(rows), 1], "datatype": "BYTES", "data": [row[field] for row in rows]}
        for field in rows[0]
    ]
    return json.dumps({"inputs": tensors}).encode()


def agree(given: Mapping[str, Any], wanted: Mapping[str, Any], task: str) -> None:
    """Compares an answer's words exactly and its numbers as two versions of torch round them."""
    for name, _ in OUTPUTS[task]:
        if isinstance(wanted[name], str):
            assert given[name] == wanted[name], name
        else:
            assert np.isclose(float(given[name]), float(wanted[name]), atol=1e-5), name
