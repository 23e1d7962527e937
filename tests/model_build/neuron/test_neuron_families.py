"""Every family of our own network goes to Inferentia: built and traced on the image's Python, recorded, and compared.

The comparison is the parity gate's: what `containers.batch.record` had of the compiled graphs, beside transformers' own
answers on the Python of here.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from containers import archive_reader
from model_build.build import verify_outputs
from model_build.encoder import bert
from model_build.matrix import rows
from model_build.neuron.arguments import calls
from model_build.neuron.backend import torch_examples
from model_build.plan import plan
from model_build.progress import silent
from model_build.remote.source_archive import pack_source
from tests.containers.batch import batch_run
from tests.fake_neuron import SPLITS
from tests.model_build.miniatures.tiny_rows import make_workload
from tests.model_build.neuron import operators
from tests.model_build.neuron.images import IMAGES, Image, environment_of, needs_inf1, run
from workloads import ROOT, NeuronTarget, load_workload

jit: Any = torch.jit
CELLS = [(row.model_type, row.task) for row in rows() if "inf1" in row.targets]
QUICK = {("distilbert", "text-classification"), ("electra", "token-classification"), ("bert", "text-pair-scoring")}
TARGETS = {"neuron": "inf1", "neuronx": "inf2"}


def name_of(family: str, task: str) -> str:
    """A workload's name has at most 31 letters."""
    return f"{family}_{task.replace('classification', 'labels')}".replace("-", "_")[:31]


def traced(network: bert.Bert, tensors: Any) -> Any:
    with torch.no_grad():
        return jit.trace(network, tensors)


def kinds(graph: Any) -> set[str]:
    return {node.kind() for node in graph.inlined_graph.nodes()}


@pytest.mark.parametrize(
    ("family", "task"), [pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow) for each in CELLS]
)
def test_every_operator_is_on_neurons_list_but_the_embedding_which_it_leaves_to_the_cpu(
    family: str, task: str, tmp_path: Path
) -> None:
    """A network for Inf2 has nothing that is split, and computes what the joined one does."""
    planned = plan(make_workload(tmp_path / "workloads", family, task), "inf1", tmp_path)
    model, target = planned.compile_inputs.encoder, planned.target
    assert isinstance(target, NeuronTarget)
    joined, apart = (bert.load(planned.checkpoint, model, apart=apart) for apart in (False, True))
    for call in calls(target, model):
        graph = traced(joined, torch_examples(call))
        assert operators.unsupported(graph) == []
        assert operators.on_the_cpu(graph) == ["aten::embedding"]
    assert "aten::split" in kinds(graph)
    assert not kinds(traced(apart, torch_examples(call))) & SPLITS
    tensors = [torch.tensor([20, 11]) if each == "valid_length" else torch.ones(2, 20).long() for each in joined.inputs]
    with torch.no_grad():
        for one, other in zip(joined(*tensors), apart(*tensors), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


@dataclass(frozen=True)
class Built:
    image: Image
    target: str
    root: Path
    environment: dict[str, str]


@pytest.fixture(scope="module", params=[pytest.param("neuron", marks=needs_inf1), "neuronx"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """All cells' workloads, built by one run of the image's Python from the source that a remote build sends."""
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


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(("family", "task"), CELLS)
def test_the_compiled_graphs_pass_the_parity_gate(built: Built, family: str, task: str, tmp_path: Path) -> None:
    name = name_of(family, task)
    made = built.root / "build" / name / built.target
    versions = json.loads((made / "artifact.json").read_text())["toolchain"]
    assert versions["torch"].split("+")[0] == built.image.torch
    with (made / "model.tar.gz").open("rb") as archive:
        archive_reader.unpack(archive, tmp_path / "served")
    source = load_workload(name, built.root / "workloads")
    evaluation = source.path / "evaluation.jsonl"
    words = ["--model", str(tmp_path / "served"), "--input", str(evaluation), "--output", str(tmp_path / "outputs")]
    program = batch_run.install(tmp_path / "program")
    run(built.image, ["containers.batch.record", *words], program, built.environment)
    parity = verify_outputs(plan(source, built.target, built.root), tmp_path / "outputs", silent)
    assert parity.identical_answers == parity.examples == 24
    assert parity.max_logit_difference < 1e-4
