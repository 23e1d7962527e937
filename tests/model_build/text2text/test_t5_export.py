"""The two graphs: what goes in and out, and that they are T5 whatever the checkpoint's variant."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from containers.text2text import tensorrt_engine
from containers.text2text.engine import OnnxEngine
from containers.text2text.generator import TextGenerator
from containers.text2text.settings import Settings
from containers.text2text.static_cache import StaticEngine
from model_build.tensorrt.profiles import text2text_profiles
from model_build.text2text import export, optimise
from model_build.text2text.t5 import SCALE
from model_build.text2text.verify import Original, compare, forced_logits
from tests.containers.fake_tensorrt import Gpu, install, write_plan
from tests.model_build.miniatures.tiny_t5 import make_checkpoint, make_texts, make_tokenizer
from tests.model_build.tensorrt.tensorrt_graphs import T5, t5
from workloads import Example, Serving

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


@pytest.fixture(scope="module")
def static(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The static graphs of the same checkpoint, which other tests share."""
    folder = tmp_path_factory.mktemp("static")
    gated = "gated" in json.loads((exported / "config.json").read_text())["feed_forward_proj"]
    for name, model in t5(gated).items():
        onnx.save(model, folder / f"{name}.onnx")
    return folder


def axes(values: list[onnx.ValueInfoProto]) -> dict[str, list[str | int]]:
    return {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in values
    }


def test_the_encoder_computes_the_decoders_source_inputs_once(exported: Path) -> None:
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


def test_the_static_decoder_has_all_places_of_its_cache_from_the_start(static: Path) -> None:
    graph = onnx.load(static / "decoder.onnx").graph
    cache = ["batch", 16, 12, 8]
    assert axes(graph.input) == {
        "tokens": ["batch", 1],
        "position": [1],
        "cross_bias": ["batch", 1, 1, "source"],
        "cross": ["batch", 16, "source", 8],
        "past": cache,
    }
    assert axes(graph.output) == {
        "next_tokens": ["batch", 1],
        "logits": ["batch", 30],
        "present": cache,
        "next_position": [1],
    }


def test_the_static_decoders_logits_are_the_growing_ones(exported: Path, static: Path) -> None:
    """Every step of it, with caches whose places behind the position hold anything."""
    engine = OnnxEngine(exported / "encoder.onnx", exported / "decoder.onnx", threads=1)
    session = onnxruntime.InferenceSession(str(static / "decoder.onnx"), providers=["CPUExecutionProvider"])
    sources = np.array([[4, 5, 6, 1], [9, 8, 1, 0]])
    state = engine.encode(sources, (sources > 0).astype(np.int64), 0)
    past = np.random.default_rng(0).standard_normal((2, 16, 12, 8), np.float32)
    tokens, position = np.zeros((2, 1), np.int64), np.zeros(1, np.int64)
    for step in range(12):
        expected = engine.logits(state, tokens)
        fed = {"tokens": tokens, "position": position, "cross_bias": state.cross_bias, "cross": state.cross}
        tokens, logits, past, position = session.run(None, {**fed, "past": past})
        assert np.allclose(logits, expected, atol=1e-4)
        assert position.tolist() == [step + 1]


@pytest.fixture
def static_engine(static: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StaticEngine:
    """TensorRT's engine over these graphs, with ONNX Runtime in the GPU's place."""
    install(monkeypatch, Gpu())
    profiles = text2text_profiles(T5, Serving(max_batch_size=8), channels=16, d_kv=8)
    for name, shapes in profiles.items():
        write_plan(tmp_path / f"{name}.7.5.plan", onnx.load(static / f"{name}.onnx"), shapes, capability="7.5")
    return tensorrt_engine.load(tmp_path)


def test_the_static_graphs_decode_as_generate_does(exported: Path, static_engine: StaticEngine) -> None:
    settings = replace(SETTINGS, max_output_tokens=11)
    generator = TextGenerator(make_tokenizer(), static_engine, settings)
    original = Original.load(exported, export.load(exported))
    examples = [Example(row={"text": text}, label=text) for text in make_texts(30)]
    comparisons = compare(original, generator, examples, batch_size=7, file=exported)
    assert all(c.identical and c.original == c.compiled for c in comparisons)
    assert max(c.max_logit_difference for c in comparisons) < 1e-4


def test_rows_leave_the_caches_as_they_end(exported: Path) -> None:
    engine = OnnxEngine(exported / "encoder.onnx", exported / "decoder.onnx", threads=1)
    sources = np.array([[4, 5, 6, 1], [9, 8, 7, 1], [11, 12, 13, 1]])
    state, alone = (
        engine.encode(sources, np.ones_like(sources), 0),
        engine.encode(sources[1:2], np.ones((1, 4), int), 0),
    )
    for live, rows in (([True] * 3, [0, 1, 2]), ([False, True, True], [1, 2]), ([False, True, False], [1])):
        said = engine.step(state, np.array(live))
        assert said[1] == engine.step(alone, np.array([True]))[0]
        assert (state.rows.tolist(), len(state.past), said.shape) == (rows, len(rows), (3, 1))


def test_scores_are_of_the_rows_that_are_live_and_the_callers_to_change(exported: Path) -> None:
    engine = OnnxEngine(exported / "encoder.onnx", exported / "decoder.onnx", threads=1)
    sources, start = np.array([[4, 5, 6, 1], [9, 8, 7, 1], [11, 12, 13, 1]]), np.zeros((3, 1), np.int64)
    state, alone = (
        engine.encode(sources, np.ones_like(sources), 0),
        engine.encode(sources[1:2], np.ones((1, 4), int), 0),
    )
    for live in ([True] * 3, [True, True, False], [False, True, False]):
        scores, expected = engine.logits(state, start, np.array(live)), engine.logits(alone, start[:1])
        assert len(scores) == sum(live)
        assert np.allclose(scores[sum(live[:1])], expected[0], atol=1e-5)
        scores[:] = np.nan  # as constraints do; the next step must not see it


@pytest.mark.parametrize("name", FILES)
def test_the_portable_graphs_are_standard_onnx(exported: Path, name: str) -> None:
    model = onnx.load(exported / name)
    onnx.checker.check_model(model)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 18)]
    assert {node.domain for node in model.graph.node} == {""}


@pytest.mark.parametrize("name", FILES)
def test_the_exporter_leaves_each_norm_its_small_epsilon(exported: Path, name: str) -> None:
    graph = onnx.load(exported / name).graph
    makers = {output: node for node in graph.node for output in node.output}
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    sums = [makers[node.input[0]] for node in graph.node if node.op_type == "Sqrt"]
    assert {node.op_type for node in sums} == {"Add"}
    epsilons = [weights[name].item() for node in sums for name in node.input if name in weights]
    assert epsilons == pytest.approx([1e-6 * SCALE**2] * len(sums))


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
    alone = engine.encode(sources, np.ones_like(sources), 0)
    beside = engine.encode(sources, np.ones_like(sources), 0)
    loud = 100 * beside.cross
    beside.cross, beside.cross_bias = np.concatenate([beside.cross, loud]), np.repeat(beside.cross_bias, 2, 0)
    beside.past = np.repeat(beside.past, 2, 0)
    for token in (0, 7, 9):
        expected = engine.logits(alone, np.array([[token]]))
        got = engine.logits(beside, np.array([[token], [token + 1]]))
        assert np.allclose(got[0], expected[0], atol=1e-5)


def test_the_logits_of_a_step_depend_on_its_position(exported: Path) -> None:
    """The same tokens further along must not look the same: the position bias sees the past's length."""
    engine = OnnxEngine(exported / "encoder.onnx", exported / "decoder.onnx", threads=1)
    tokens = np.full((1, 6), 7)
    logits = forced_logits(engine, [[4, 5, 6, 1]], tokens, SETTINGS)[0]
    assert all(np.abs(logits[i] - logits[i + 1]).max() > 1e-3 for i in range(1, 5))
