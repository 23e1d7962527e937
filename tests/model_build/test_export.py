"""The two graphs: what goes in and out, and that they are T5 whatever the checkpoint's variant."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from containers.text2text.engine import OnnxEngine
from containers.text2text.generator import TextGenerator
from containers.text2text.settings import Settings
from model_build import optimise
from model_build.text2text import export, repository
from model_build.text2text.verify import Original, compare, forced_logits
from tests.model_build.tiny_t5 import make_checkpoint, make_texts, make_tokenizer
from workloads import Example

# torch's exporter warns of torch's own deprecations.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")

SETTINGS = Settings(
    max_input_tokens=24,
    max_output_tokens=12,
    decoder_start_token_id=0,
    eos_token_ids=(1, 25),
    pad_token_id=0,
    threads=1,
)


@pytest.fixture(scope="module", params=["relu", "gated-gelu"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and its portable graphs in one folder."""
    folder = tmp_path_factory.mktemp("export")
    make_checkpoint(folder, gated=request.param == "gated-gelu")
    export.export(export.load(folder), folder, max_input_tokens=24, max_output_tokens=12)
    return folder


def axes(values: list[onnx.ValueInfoProto]) -> dict[str, list[str | int]]:
    return {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in values
    }


def test_the_encoder_computes_what_the_decoder_asks_of_the_source_once(exported: Path) -> None:
    graph = onnx.load(exported / "encoder.onnx").graph
    assert axes(graph.input) == {"input_ids": ["batch", "source"], "attention_mask": ["batch", "source"]}
    assert axes(graph.output) == {"cross": ["batch", 16, "source", 8], "cross_bias": ["batch", 1, 1, "source"]}


def test_the_decoder_takes_one_step(exported: Path) -> None:
    graph = onnx.load(exported / "decoder.onnx").graph
    assert axes(graph.input) == {
        "tokens": ["batch", 1],
        "cross_bias": ["batch", 1, 1, "source"],
        "cross": ["batch", 16, "source", 8],
        "past": ["batch", 16, "past", 8],
    }
    assert axes(graph.output) == {
        "next_tokens": ["batch", 1],
        "logits": ["batch", 30],
        "present": ["batch", 16, "present", 8],
    }


@pytest.mark.parametrize("name", repository.GRAPHS)
def test_the_portable_graphs_are_standard_onnx(exported: Path, name: str) -> None:
    model = onnx.load(exported / name)
    onnx.checker.check_model(model)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 18)]
    assert {node.domain for node in model.graph.node} == {""}


def test_the_compiled_graphs_answer_as_generate_does(exported: Path, tmp_path: Path) -> None:
    optimise.optimise(exported, tmp_path, "fp32")
    engine = OnnxEngine(tmp_path / "encoder.onnx", tmp_path / "decoder.onnx", threads=1)
    generator = TextGenerator(make_tokenizer(), engine, SETTINGS)
    original = Original.load(exported, export.load(exported))
    examples = [Example(row={"text": text}, label=text) for text in make_texts(30)]
    comparisons = compare(original, generator, examples, batch_size=7, file=exported)
    assert all(c.identical and c.original == c.compiled for c in comparisons)
    assert max(c.max_logit_difference for c in comparisons) < 1e-4


def test_the_logits_of_a_step_depend_on_its_position(exported: Path) -> None:
    """The same tokens further along must not look the same: the position bias sees the past's length."""
    engine = OnnxEngine(exported / "encoder.onnx", exported / "decoder.onnx", threads=1)
    tokens = np.full((1, 6), 7)
    logits = forced_logits(engine, [[4, 5, 6, 1]], tokens, SETTINGS)[0]
    assert all(np.abs(logits[i] - logits[i + 1]).max() > 1e-3 for i in range(1, 5))
