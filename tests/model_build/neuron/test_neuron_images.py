"""The images of Inf1 and Inf2 build, serve and batch every workload for them.

The source is what a remote build sends, the Pythons are those of `images`, and the answers are those of the checkpoint
under the torch of here.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from containers import archive_reader
from containers.encoder.answers import OUTPUTS
from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from model_build.checkpoint import resolve
from model_build.encoder import bert
from model_build.remote.source_archive import pack_source
from tests.containers.batch import batch_run
from tests.containers.neuron.neuron_server import running
from tests.model_build.neuron import inf1_names
from tests.model_build.neuron.images import IMAGES, INF1, Image, environment_of, needs_inf1, run
from workloads import ROOT, NeuronTarget, WorkloadFolder, load_workload, workload_names

EXAMPLES = 24

pytestmark = [pytest.mark.slow, pytest.mark.integration]


BUILDS = [
    pytest.param((name, target), marks=needs_inf1 if each.runtime == "neuron" else (), id=f"{name}-{target}")
    for name in workload_names(ROOT / "workloads")
    for target, each in load_workload(name).workload.targets.items()
    if isinstance(each, NeuronTarget) and each.pipeline_cores == 1
]


class Original:
    """An `Engine`: the checkpoint's own network."""

    def __init__(self, source: WorkloadFolder) -> None:
        model: Any = source.workload.model
        self._network = bert.load(resolve(source, ROOT / "build" / "checkpoints"), model)

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.no_grad():
            outputs = self._network(*(torch.from_numpy(tensors[name]) for name in self._network.inputs))
        return {name: output.numpy() for name, output in zip(self._network.outputs, outputs, strict=True)}


@dataclass(frozen=True)
class Served:
    """An unpacked archive, and what the checkpoint answers to some rows."""

    folder: Path
    image: Image
    environment: dict[str, str]
    task: str
    rows: list[dict[str, str]]
    expected: list[dict[str, Any]]


@pytest.fixture(scope="module", params=BUILDS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Builds as a remote build does."""
    name, target = request.param
    source = load_workload(name)
    image = IMAGES[source.target(target).runtime]
    folder = tmp_path_factory.mktemp(name)
    environment = environment_of(image, folder / "site")
    pack_source(source, ROOT, folder / "source.tar.gz")
    with (folder / "source.tar.gz").open("rb") as packed:
        archive_reader.unpack(packed, folder / "work")
    run(image, ["model_build", "build", name, "--target", target], folder / "work", environment)
    built = folder / "work" / "build" / name / target
    assert json.loads((built / "artifact.json").read_text())["toolchain"]["torch"].split("+")[0] == image.torch
    with (built / "model.tar.gz").open("rb") as archive:
        archive_reader.unpack(archive, folder / "served")
    rows = [dict(example.row) for example in list(source.evaluation())[:EXAMPLES]]
    original = Predictor(Preprocessor.load(folder / "served"), Original(source))
    expected = [dict(answer) for answer in original.predict(rows) if isinstance(answer, dict)]
    assert len(expected) == EXAMPLES
    return Served(
        folder=folder / "served",
        image=image,
        environment=environment,
        task=source.workload.model.task,
        rows=rows,
        expected=expected,
    )


@needs_inf1
def test_the_names_that_the_quick_test_allows_are_those_of_the_real_package() -> None:
    told = subprocess.run([str(INF1), inf1_names.__file__], capture_output=True, text=True, check=True).stdout
    assert json.loads(told) == inf1_names.facts()


@pytest.mark.parametrize("whole_chip", [False, True], ids=["one-core", "a-chip"])
def test_the_server_gives_the_checkpoints_answers(served: Served, tmp_path: Path, whole_chip: bool) -> None:
    cores = {"NEURON_RT_VISIBLE_CORES": served.image.chip if whole_chip else "0"}
    with running(served.folder, tmp_path / "server.log", **served.environment, **cores) as server:
        for start in range(0, EXAMPLES, 8):
            status, answer = server.request("POST", "/invocations", document(served.rows[start : start + 8]))
            assert status == 200, answer
            given = {output["name"]: output["data"] for output in answer["outputs"]}
            for place, wanted in enumerate(served.expected[start : start + 8]):
                agree({name: data[place] for name, data in given.items()}, wanted, served.task)


def test_the_batch_program_gives_the_checkpoints_answers(served: Served, tmp_path: Path) -> None:
    lines = [json.dumps({"id": number, **row}) + "\n" for number, row in enumerate(served.rows)]
    (tmp_path / "rows.jsonl").write_text("".join(lines), "utf-8")
    words = ["--model", str(served.folder), "--input", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "out")]
    environment = {**served.environment, "NEURON_RT_VISIBLE_CORES": "0-1"}
    run(served.image, ["containers.batch", *words], batch_run.install(tmp_path / "program"), environment)
    for given, wanted in zip(batch_run.read_rows(tmp_path / "out", "predictions"), served.expected, strict=True):
        agree(given, wanted, served.task)


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
