"""The images of Inf1 and Inf2 build, record, serve and batch every family of our own network.

The source is what a remote build sends, and the Pythons are those of `images`. The parity gate compares what
`containers.batch.record` recorded with transformers' answers on the Python of here.
"""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from containers import archive_reader
from containers.encoder.answers import OUTPUTS
from model_build.execute import verify_outputs
from model_build.plan import plan
from model_build.progress import silent
from model_build.remote.remote_build import pack_source
from tests.containers.batch import batch_run
from tests.containers.neuron.neuron_server import running
from tests.model_build.miniatures.tiny_rows import make_workload
from tests.model_build.neuron import inf1_names
from tests.model_build.neuron.images import IMAGES, INF1, Image, environment_of, needs_inf1, run
from tests.model_build.neuron.test_neuron_compile import CELLS
from workloads import ROOT, load_workload

pytestmark = [pytest.mark.slow, pytest.mark.integration]
TARGETS = {"neuron": "inf1", "neuronx": "inf2"}
SERVED = list({task: (family, task) for family, task in CELLS}.values())
"""A family for each task."""


def name_of(family: str, task: str) -> str:
    """A workload's name has at most 31 letters."""
    return f"{family}_{task.replace('classification', 'labels')}".replace("-", "_")[:31]


@dataclass(frozen=True)
class Built:
    image: Image
    target: str
    root: Path
    environment: dict[str, str]

    def unpacked(self, name: str, folder: Path) -> Path:
        """Unpacks the archive of a workload into `folder`/served."""
        with (self.root / "build" / name / self.target / "model.tar.gz").open("rb") as archive:
            archive_reader.unpack(archive, folder / "served")
        return folder / "served"


@pytest.fixture(scope="module", params=[pytest.param("neuron", marks=needs_inf1), "neuronx"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """All cells' workloads, built by one run of the image's Python."""
    image, target = IMAGES[request.param], TARGETS[request.param]
    folder = tmp_path_factory.mktemp(target)
    environment = environment_of(image, folder / "site")
    pack_source(load_workload("query_intent"), ROOT, folder / "source.tar.gz")
    with (folder / "source.tar.gz").open("rb") as packed:
        archive_reader.unpack(packed, folder / "work")
    workloads = folder / "work" / "workloads"
    shutil.rmtree(workloads / "query_intent")
    for family, task in CELLS:
        make_workload(workloads, family, task, name_of(family, task))
    run(image, ["model_build", "build", "--all", "--target", target], folder / "work", environment)
    return Built(image, target, folder / "work", environment)


@pytest.mark.parametrize(("family", "task"), CELLS)
def test_the_compiled_graphs_pass_the_parity_gate(built: Built, family: str, task: str, tmp_path: Path) -> None:
    name = name_of(family, task)
    artifact = json.loads((built.root / "build" / name / built.target / "artifact.json").read_text())
    assert artifact["toolchain"]["torch"].split("+")[0] == built.image.torch
    source = load_workload(name, built.root / "workloads")
    served, outputs = built.unpacked(name, tmp_path), tmp_path / "outputs"
    words = ["--model", str(served), "--input", str(source.path / "evaluation.jsonl"), "--output", str(outputs)]
    run(built.image, ["containers.batch.record", *words], batch_run.install(tmp_path / "program"), built.environment)
    parity = verify_outputs(plan(source, built.target, built.root), outputs, silent)
    assert parity.identical_answers == parity.examples == 24
    assert parity.max_logit_difference < 1e-4


@pytest.mark.parametrize("whole_chip", [False, True], ids=["one-core", "a-chip"])
@pytest.mark.parametrize(("family", "task"), SERVED)
def test_the_server_and_the_batch_program_give_the_same_answers(
    built: Built, family: str, task: str, whole_chip: bool, tmp_path: Path
) -> None:
    served = built.unpacked(name_of(family, task), tmp_path)
    source = load_workload(name_of(family, task), built.root / "workloads")
    rows = [dict(example.row) for example in source.evaluation()][:8]
    tensors = [
        {"name": field.upper(), "shape": [len(rows), 1], "datatype": "BYTES", "data": [row[field] for row in rows]}
        for field in rows[0]
    ]
    environment = {**built.environment, "NEURON_RT_VISIBLE_CORES": built.image.chip if whole_chip else "0"}
    with running(served, tmp_path / "server.log", **environment) as server:
        status, answer = server.request("POST", "/invocations", json.dumps({"inputs": tensors}).encode())
    assert status == 200, answer
    online: dict[str, Any] = {output["name"]: output["data"] for output in answer["outputs"]}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"id": n, **row}) + "\n" for n, row in enumerate(rows)))
    words = ["--model", str(served), "--input", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "out")]
    run(built.image, ["containers.batch", *words], batch_run.install(tmp_path / "program"), environment)
    for place, row in enumerate(batch_run.read_rows(tmp_path / "out", "predictions")):
        for name, _ in OUTPUTS[task]:
            if isinstance(row[name], str):
                assert online[name][place] == row[name], name
            else:
                width = np.size(row[name])
                np.testing.assert_allclose(
                    online[name][place * width : (place + 1) * width], np.ravel(row[name]), atol=1e-5
                )


@needs_inf1
def test_the_names_that_the_quick_test_allows_are_those_of_the_real_package() -> None:
    output = subprocess.run([str(INF1), inf1_names.__file__], capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == inf1_names.facts()
