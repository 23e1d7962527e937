"""The two graphs: what goes in and out, and that they are T5 whatever the checkpoint's variant."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from containers.text2text import tensorrt_engine
from containers.text2text.engine import OnnxEngine
from containers.text2text.generation import Generation
from containers.text2text.generator import TextGenerator
from containers.text2text.settings import Settings
from containers.text2text.static_cache import StaticEngine
from model_build.tensorrt.profiles import text2text_profiles
from model_build.text2text import export, optimise, t5
from model_build.text2text.t5 import SCALE
from model_build.text2text.verify import Original, compare, forced_logits
from tests.containers.fake_tensorrt import Gpu, install, write_plan
from tests.model_build.miniatures.tiny_t5 import SETTINGS, make_checkpoint, make_texts, make_tokenizer
from tests.model_build.tensorrt.tensorrt_graphs import T5
from tests.model_build.tensorrt.tensorrt_graphs import t5 as t5_graphs
from workloads import Example, Serving

FILES = ("encoder.onnx", "decoder.onnx")


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
    for name, model in t5_graphs(gated).items():
        onnx.save(model, folder / f"{name}.onnx")
    return folder


def axes(values: list[onnx.ValueInfoProto]) -> dict[str, list[str | int]]:
    return {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in values
    }


CROSS = {"cross_bias": ["batch", 1, 1, "source"], "cross": ["batch", 16, "source", 8]}
PARTS = range(4)  # keys and values of two layers


def test_the_inputs_and_outputs_of_the_graphs(exported: Path, static: Path) -> None:
    """The encoder computes the decoder's source inputs once; a static decoder has a cache of all its places."""
    encoder, decoder, fixed = (
        onnx.load(file).graph for file in (exported / FILES[0], exported / FILES[1], static / FILES[1])
    )
    assert axes(encoder.input) == {"input_ids": ["batch", "source"], "attention_mask": ["batch", "source"]}
    assert axes(encoder.output) == CROSS
    tokens, distances = ["batch", "queries"], ["positions", "queries", "present"]
    inputs = {"tokens": tokens, "distances": distances, "cross_bias": ["sources", 1, 1, "source"]}
    inputs |= {f"cross.{part}": ["sources", 4, "source", 8] for part in PARTS}
    assert axes(decoder.input) == inputs | {f"past.{part}": ["batch", 4, "past", 8] for part in PARTS}
    logits = {"next_tokens": tokens, "logits": [*tokens, 30]}
    assert axes(decoder.output) == logits | {f"present.{part}": ["batch", 4, "present", 8] for part in PARTS}
    assert axes(fixed.input) == {"tokens": ["batch", 1], "position": [1]} | CROSS | {"past": ["batch", 16, 12, 8]}
    logits = {"next_tokens": ["batch", 1], "logits": ["batch", 30]}
    assert axes(fixed.output) == logits | {"present": ["batch", 16, 12, 8], "next_position": [1]}


def assert_answers(checkpoint: Path, engine: Any, settings: Settings) -> None:
    """Compares the served model's answers with those of `generate`."""
    generator = TextGenerator(make_tokenizer(), engine, settings)
    original = Original.load(checkpoint, export.load(checkpoint))
    examples = [Example(row={"text": text}, label=text) for text in make_texts(30)]
    comparisons = compare(original, generator, examples, batch_size=7, file=checkpoint)
    assert all(c.identical and c.original == c.compiled for c in comparisons)
    assert max(c.max_logit_difference for c in comparisons) < 1e-4


@pytest.fixture
def static_engine(static: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StaticEngine:
    """TensorRT's engine over these graphs, with ONNX Runtime in the GPU's place."""
    install(monkeypatch, Gpu())
    profiles = text2text_profiles(T5, Serving(max_batch_size=8), channels=16, d_kv=8)
    for name, shapes in profiles.items():
        write_plan(tmp_path / f"{name}.7.5.plan", onnx.load(static / f"{name}.onnx"), shapes, capability="7.5")
    return tensorrt_engine.load(tmp_path)


def test_the_static_graphs_decode_as_generate_does(exported: Path, static_engine: StaticEngine) -> None:
    assert_answers(exported, static_engine, replace(SETTINGS, max_output_tokens=11))


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
def test_the_portable_graphs_are_standard_onnx_with_each_norms_small_epsilon(exported: Path, name: str) -> None:
    model = onnx.load(exported / name)
    onnx.checker.check_model(model)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 18)]
    assert {node.domain for node in model.graph.node} == {""}
    makers = {output: node for node in model.graph.node for output in node.output}
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    sums = [makers[node.input[0]] for node in model.graph.node if node.op_type == "Sqrt"]
    epsilons = [weights[name].item() for node in sums for name in node.input if name in weights]
    assert epsilons == pytest.approx([1e-6 * SCALE**2] * len(sums))


def test_the_compiled_graphs_answer_as_generate_does(exported: Path, tmp_path: Path) -> None:
    optimise.optimise(exported, tmp_path, "fp32")
    engine = OnnxEngine(tmp_path / "encoder.onnx", tmp_path / "decoder.onnx", threads=1)
    assert_answers(exported, engine, SETTINGS)


@pytest.fixture(scope="module", params=[False, True], ids=["greedy", "beams"])
def int8(exported: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp("beams" if request.param else "greedy")
    optimise.optimise(exported, folder, "int8", beams=request.param)
    return folder


def test_int8_has_no_weight_product_in_fp32_and_the_same_bytes_again(
    exported: Path, int8: Path, tmp_path: Path
) -> None:
    for name in FILES:
        graph = onnx.load(int8 / name).graph
        weights = {weight.name for weight in graph.initializer}
        products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm", "FusedMatMul")]
        assert not [node.name for node in products if weights & set(node.input)]
    optimise.optimise(exported, tmp_path, "int8", beams="beams" in int8.name)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(FILES), "nothing is left beside the graphs"
    assert all((tmp_path / name).read_bytes() == (int8 / name).read_bytes() for name in FILES)


def test_a_decoder_step_in_int8_does_not_depend_on_its_neighbours(int8: Path) -> None:
    engine = OnnxEngine(int8 / "encoder.onnx", int8 / "decoder.onnx", threads=1)
    sources = np.array([[4, 5, 6, 1]])
    alone = engine.encode(sources, np.ones_like(sources), 0)
    beside = engine.encode(sources, np.ones_like(sources), 0)
    beside.cross = [np.concatenate([part, 100 * part]) for part in beside.cross]
    beside.cross_bias = np.repeat(beside.cross_bias, 2, 0)
    beside.past = [np.repeat(part, 2, 0) for part in beside.past]
    for token in (0, 7, 9):
        expected = engine.logits(alone, np.array([[token]]))
        got = engine.logits(beside, np.array([[token], [token + 1]]))
        assert np.allclose(got[0], expected[0], atol=1e-5)


@pytest.mark.parametrize("rows", [1, OnnxEngine.most_rows])
def test_guided_answers_are_compared_alone_and_in_the_largest_batches(
    exported: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = OnnxEngine(exported / "encoder.onnx", exported / "decoder.onnx", threads=1)
    check = engine.check

    def wrong_for_so_many_rows(state: Any, tokens: Any, lengths: Any) -> Any:
        best = check(state, tokens, lengths)
        return (best + 1) % 30 if len(tokens) == rows else best

    monkeypatch.setattr(engine, "check", wrong_for_so_many_rows)
    generator = TextGenerator(make_tokenizer(), engine, replace(SETTINGS, generation=Generation(guided="input")))
    examples = [Example(row={"text": text}, label=text) for text in make_texts(8)]
    original = Original.load(exported, export.load(exported))
    comparisons = compare(original, generator, examples, batch_size=8, file=exported)
    assert not any(each.guided and each.guided.same for each in comparisons)


def test_a_row_of_zeros_has_finite_logits_in_int8(int8: Path) -> None:
    engine = OnnxEngine(int8 / "encoder.onnx", int8 / "decoder.onnx", threads=1)
    state = engine.encode(np.array([[4, 5, 6, 1]]), np.ones((1, 4), np.int64), 0)
    state.cross = [np.zeros_like(part) for part in state.cross]
    assert np.isfinite(engine.logits(state, np.array([[7]]))).all()


def test_the_logits_of_a_step_depend_on_its_position(exported: Path) -> None:
    engine = OnnxEngine(exported / "encoder.onnx", exported / "decoder.onnx", threads=1)
    logits = forced_logits(engine, [[4, 5, 6, 1]], np.full((1, 6), 7), SETTINGS)[0]
    assert all(np.abs(logits[i] - logits[i + 1]).max() > 1e-3 for i in range(1, 5))


def test_the_scaled_residual_stream_gives_the_checkpoints_outputs_to_the_last_bit(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scale that is no power of two would show."""

    def outputs(scale: float) -> list[torch.Tensor]:
        monkeypatch.setattr(t5, "SCALE", scale)
        encoder, decoder = export.graphs(export.load(exported), 9, 4, static=False)
        source = torch.randint(3, 30, (3, 9), generator=torch.Generator().manual_seed(3))
        mask = torch.ones_like(source)
        mask[1:, -3:] = 0
        with torch.inference_mode():
            cross, cross_bias = encoder(source, mask)
            crosses = list(torch.split(cross, 4, 1))
            tokens, past = torch.zeros(3, 1, dtype=torch.long), [part[:, :, :0] for part in crosses]
            made = [cross, cross_bias]
            for place in range(4):
                distances = torch.arange(place, -1, -1)[None, None]
                tokens, logits, *past = decoder(tokens, distances, cross_bias, crosses, past)
                made += [logits, *past]
        return made

    original = outputs(1.0)
    assert all(map(torch.equal, outputs(SCALE), original))
    assert not all(map(torch.equal, outputs(0.03), original))
