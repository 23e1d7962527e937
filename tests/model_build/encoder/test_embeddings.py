"""Embeddings are those of sentence-transformers.

embeddings.json has, for the seeded BERT, `SentenceTransformer.encode(TEXTS, normalize_embeddings=…, truncate_dim=…)` of
each pooling. The original that builds are compared with and the network that is compiled are each compared with it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from containers.encoder.row import Refusal
from model_build.checkpoint import read
from model_build.encoder import export, norms
from model_build.encoder.graphs import settings
from model_build.encoder.reference import Reference
from tests.containers.encoder.seeded_bert import save_encoder
from workloads import FeatureExtraction, OnnxRuntimeTarget

EMBEDDINGS = json.loads(Path(__file__).with_name("embeddings.json").read_text("utf-8"))["embeddings"]
TEXTS = ("red shoe", "a blue-ish lamp, xl", "do you sell warm winter socks in size xl", "socks")
CUT, LONGEST = 6, 64
WAYS = [
    (way, normalize, dimensions)
    for way in ("mean", "cls", "max", "last")
    for normalize in (False, True)
    for dimensions in (0, CUT)
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embeddings") / "encoder"
    save_encoder(folder)
    return folder


@pytest.mark.parametrize(("way", "normalize", "dimensions"), WAYS)
def test_original_and_served_embeddings_are_those_of_sentence_transformers(
    encoder: Path, way: Any, normalize: bool, dimensions: int
) -> None:
    keys = {"max_input_tokens": LONGEST, "pooling": way, "normalize": normalize, "dimensions": dimensions}
    model = FeatureExtraction(task="feature-extraction", checkpoint="./encoder", **keys)
    checkpoint = read(encoder, encoder, model)
    recorded = EMBEDDINGS[f"{way} normalize={normalize} dimensions={dimensions}"]
    rows = [{"text": text} for text in TEXTS]
    original = [window["embedding"] for (window,) in Reference(checkpoint, model).outputs(rows)]
    np.testing.assert_allclose(original, recorded, atol=2e-5)
    known = settings(model, OnnxRuntimeTarget(runtime="onnxruntime"), checkpoint)
    served: Any = Predictor(
        Preprocessor(Tokenizer.from_file(str(encoder / "tokenizer.json")), known),
        Compiled(export.load(checkpoint, model)),
    ).predict(rows)
    for answer, expected in zip(served, recorded, strict=True):
        assert not isinstance(answer, Refusal)
        np.testing.assert_allclose(answer["EMBEDDING"], expected, atol=2e-5)


class Compiled:
    """The network that is exported, as the compiled model."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def run(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        with torch.inference_mode():
            outputs = self._network(*(torch.from_numpy(tensors[name]) for name in self._network.inputs))
        return dict(zip(self._network.outputs, (output.numpy() for output in outputs), strict=True))


FEATURES = 8


def graph(*, axis: int = -1, bias: bool = True) -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    weights = {"w": rng.normal(size=FEATURES), "b": rng.normal(size=FEATURES)}
    shape: list[str | int | None] = ["rows", "tokens", FEATURES]
    node = helper.make_node(
        norms.NORM, ["x", "w", *(["b"] if bias else [])], ["y"], name="norm", axis=axis, epsilon=1e-6
    )
    return helper.make_model(
        helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )


def answers(model: onnx.ModelProto, x: "np.typing.NDArray[np.float32]") -> "np.typing.NDArray[np.float32]":
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_parts_give_the_result_of_the_whole_and_stay_apart(scale: float, tmp_path: Path) -> None:
    """ONNX Runtime's optimiser does not fuse the parts into one norm again."""
    whole, parts = graph(), norms.spell_out(graph())
    onnx.checker.check_model(parts)
    x = (np.random.default_rng(1).normal(size=(3, 5, FEATURES)) * scale).astype(np.float32)
    np.testing.assert_allclose(answers(parts, x), answers(whole, x), rtol=1e-4, atol=1e-4)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    onnxruntime.InferenceSession(parts.SerializeToString(), options, providers=["CPUExecutionProvider"])
    operators = {node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node}
    assert "ReduceMean" in operators
    assert not any(name.endswith(norms.NORM) for name in operators)


@pytest.mark.parametrize("left", [graph(axis=1), graph(bias=False)], ids=["over two axes", "without a bias"])
def test_another_kind_of_norm_is_left_alone(left: onnx.ModelProto) -> None:
    before = [node.SerializeToString() for node in left.graph.node]
    assert [node.SerializeToString() for node in norms.spell_out(left).graph.node] == before
