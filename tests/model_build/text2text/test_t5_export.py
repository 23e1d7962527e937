"""The two graphs: what goes in and out, and that they are T5 whatever the checkpoint's variant."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from containers.text2text.engine import OnnxEngine
from containers.text2text.generator import TextGenerator
from containers.text2text.settings import Settings
from model_build.text2text import export, optimise
from model_build.text2text.verify import Original, compare, forced_logits
from tests.model_build.tiny_t5 import make_checkpoint, make_texts, make_tokenizer
from workloads import Example

# torch's exporter warns of torch's own deprecations.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")

FILES = ("encoder.onnx", "decoder.onnx")
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


@pytest.mark.parametrize("name", FILES)
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


@pytest.fixture(scope="module")
def int8(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("int8")
    optimise.optimise(exported, folder, "int8")
    return folder


def test_int8_keeps_no_weight_product_in_fp32(int8: Path) -> None:
    for name in FILES:
        graph = onnx.load(int8 / name).graph
        weights = {weight.name for weight in graph.initializer}
        products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm", "FusedMatMul")]
        assert not [node.name for node in products if weights & set(node.input)]


def test_int8_compiles_to_the_same_bytes_again(exported: Path, int8: Path, tmp_path: Path) -> None:
    optimise.optimise(exported, tmp_path, "int8")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(FILES), "nothing is left beside the graphs"
    assert all((tmp_path / name).read_bytes() == (int8 / name).read_bytes() for name in FILES)


def test_a_decoder_step_in_int8_does_not_depend_on_its_neighbours(int8: Path) -> None:
    engine = OnnxEngine(int8 / "encoder.onnx", int8 / "decoder.onnx", threads=1)
    sources = np.array([[4, 5, 6, 1]])
    alone = engine.encode(sources, np.ones_like(sources))
    beside = engine.encode(sources, np.ones_like(sources))
    loud = 100 * beside.cross
    beside.cross, beside.cross_bias = np.concatenate([beside.cross, loud]), np.repeat(beside.cross_bias, 2, 0)
    beside.past = np.repeat(beside.past, 2, 0)
    for token in (0, 7, 9):
        expected = engine.advance(alone, np.array([[token]]), "logits")
        got = engine.advance(beside, np.array([[token], [token + 1]]), "logits")
        assert np.allclose(got[0], expected[0], atol=1e-5)


def test_the_logits_of_a_step_depend_on_its_position(exported: Path) -> None:
    """The same tokens further along must not look the same: the position bias sees the past's length."""
    engine = OnnxEngine(exported / "encoder.onnx", exported / "decoder.onnx", threads=1)
    tokens = np.full((1, 6), 7)
    logits = forced_logits(engine, [[4, 5, 6, 1]], tokens, SETTINGS)[0]
    assert all(np.abs(logits[i] - logits[i + 1]).max() > 1e-3 for i in range(1, 5))
