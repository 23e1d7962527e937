"""Compiling for Neuron, through a fake that traces for real."""

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from model_build.encoder import bert
from model_build.matrix import rows
from model_build.neuron.arguments import calls
from model_build.neuron.backend import check_toolchain, compile_network, torch_examples
from model_build.neuron.package import server_settings
from model_build.plan import plan
from model_build.progress import silent
from tests import fake_neuron
from tests.fake_neuron import SPLITS
from tests.model_build.miniatures.tiny_rows import make_workload
from tests.model_build.neuron import operators
from tests.tiny_classifier import FIVE, THREE, Classifier, make_model
from workloads import ROOT, NeuronTarget, Serving, Unavailable

jit: Any = torch.jit

PACKAGES = {"neuron": "torch_neuron", "neuronx": "torch_neuronx"}


def make_target(runtime: str = "neuron", **keys: Any) -> NeuronTarget:
    return NeuronTarget(runtime=runtime, **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("runtime", PACKAGES)
@pytest.mark.parametrize("inputs", [THREE, FIVE])
def test_each_length_becomes_a_file_with_the_results_of_the_model(
    runtime: str, inputs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_neuron.install(monkeypatch, PACKAGES[runtime], tmp_path / "site")
    target, model, made = (
        make_target(runtime, batch_size=2, sequence_lengths=(8, 32)),
        make_model(inputs),
        tmp_path / "made",
    )
    made.mkdir()
    module = Classifier(inputs).eval()
    steps: list[str] = []
    versions = compile_network(module, model, target, made, steps.append)
    assert versions.items() >= fake_neuron.VERSIONS[PACKAGES[runtime]].items()
    assert versions["torch"] == metadata.version("torch")  # torch.__version__ may name CUDA, too
    assert sorted(file.name for file in made.iterdir()) == ["model.32.neuron.pt", "model.8.neuron.pt"]
    assert steps == [f"Compiling for Neuron: batch 2, {length} tokens" for length in (8, 32)]
    for call in calls(target, model):
        graph = jit.load(str(made / call.output))
        tensors = torch_examples(call)
        torch.testing.assert_close(graph(*tensors), module(*tensors))


@pytest.mark.parametrize("cast", ["none", "matmult", "all"])
@pytest.mark.parametrize(("runtime", "pipeline_cores"), [("neuron", 1), ("neuron", 4), ("neuronx", 1)])
def test_no_call_has_an_argument_that_is_not_documented(
    runtime: str, cast: str, pipeline_cores: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_neuron.install(monkeypatch, PACKAGES[runtime], tmp_path / "site")
    target = make_target(runtime, cast=cast, placement="one-per-core", pipeline_cores=pipeline_cores)
    compile_network(Classifier(THREE).eval(), make_model(max_input_tokens=8), target, tmp_path, silent)
    assert (tmp_path / "model.8.neuron.pt").exists()


@pytest.mark.parametrize(("placement", "lazy"), [("data-parallel", True), ("one-per-core", False)])
def test_a_graph_of_inf2_is_loaded_once(
    placement: str, lazy: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Loading the file would put it on the first core, and DataParallel takes it down again."""
    fake_neuron.install(monkeypatch, "torch_neuronx", tmp_path / "site")
    target = make_target("neuronx", placement=placement)
    compile_network(Classifier(THREE).eval(), make_model(max_input_tokens=8), target, tmp_path, silent)
    assert bool(dict(jit.load(str(tmp_path / "model.8.neuron.pt")).named_buffers())["lazy"]) is lazy


@pytest.mark.parametrize(("runtime", "chip"), [("neuron", "Inf1"), ("neuronx", "Inf2")])
def test_a_machine_without_neuron_is_refused_with_an_alternative(runtime: str, chip: str) -> None:
    with pytest.raises(Unavailable) as caught:
        check_toolchain(make_target(runtime), workload="query_intent", target_name="chip")
    assert str(caught.value) == (
        f"The Python package '{PACKAGES[runtime]}' is not installed, and compiling query_intent for chip ({chip}) "
        "needs it. It is not on PyPI; AWS's Neuron images have it. Compile remotely with `python -m model_build build "
        "query_intent --target chip --on sagemaker`, or run the build in such an image. No Inferentia chip is needed "
        "to compile."
    )
    assert caught.value.exit_code == 3


def test_an_operator_that_is_not_on_the_list_is_named() -> None:
    class Sorted(torch.nn.Module):
        def forward(self, tensor: torch.Tensor) -> torch.Tensor:
            return torch.sort(torch.fft.fft(tensor).abs())[0] + 1

    assert operators.unsupported(jit.trace(Sorted(), torch.ones(4))) == ["aten::fft_fft", "aten::sort"]


IMPORT_WITHOUT = """
import pydantic, rich.console, numpy, sys, tomllib
sys.modules["tomli"] = tomllib
for name in ("onnx", "onnxruntime", "onnxscript", "transformers", "tritonclient", "tomllib"):
    sys.modules[name] = None
sys.version_info = (3, 10, 13)
import model_build.execute, model_build.neuron.backend, model_build.python_build, model_build.rows
import model_build.__main__, model_build.remote.remote_options
"""


def test_a_build_for_neuron_imports_only_packages_of_its_image_and_requirements() -> None:
    """The Inf1 image has Python 3.10, without tomllib, and neither onnx nor transformers."""
    done = subprocess.run([sys.executable, "-c", IMPORT_WITHOUT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("room", ["workloads", "model_build"])
def test_code_for_the_image_is_python_3_10(room: str) -> None:
    newer = re.compile(
        r"^\s*(import tomllib|from typing import .*\b(Self|assert_never|Never)\b|from datetime import UTC)", re.M
    )
    for file in (ROOT / room).rglob("*.py"):
        text = file.read_text("utf-8")
        ast.parse(text, feature_version=(3, 10))
        assert file.name == "document.py" or not newer.search(text), file


def test_the_server_gets_the_workloads_serving_and_the_targets_placement() -> None:
    serving = Serving(max_batch_size=8, preferred_batch_sizes=(2, 4), max_queue_delay_ms=0.5)
    settings = server_settings("intent", serving, make_target(placement="one-per-core", pipeline_cores=4))
    assert (settings.model, settings.max_batch_size, settings.preferred_batch_sizes) == ("intent", 8, (2, 4))
    assert (settings.max_queue_delay_ms, settings.placement, settings.pipeline_cores) == (0.5, "one-per-core", 4)


CELLS = [(row.model_type, row.task) for row in rows() if "inf1" in row.targets]
QUICK = {
    ("distilbert", "text-classification"),
    ("mpnet", "question-answering"),
    ("albert", "text-classification"),
    ("electra", "token-classification"),
    ("bert", "text-pair-scoring"),
}


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
