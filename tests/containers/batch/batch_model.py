"""A model small enough to start at once, in the folder that the build would make: real tokenizer, graph and settings.

The graph takes the mean of its tokens' embeddings; its answers depend only on the row, without padding.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from containers.encoder.settings import Settings

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
MAX_TOKENS = 40
SETTINGS = Settings(
    task="text-pair-scoring",
    segments=(("title", "brand"), ("other_title", "other_brand")),
    inputs=("input_ids", "attention_mask"),
    max_input_tokens=MAX_TOKENS,
    labels=("duplicate", "variant", "different"),
    max_answer_tokens=0,
    pad_token_id=0,
    threads=4,
    pad_to=(),
    batch_size=0,
)


def write_model(folder: Path, seed: int = 0) -> Path:
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(SETTINGS.to_json(), "utf-8")
    tokenizer = _tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    onnx.save(_graph(tokenizer.get_vocab_size(), np.random.default_rng(seed)), folder / "model.onnx")
    return folder


def row(number: int) -> dict[str, Any]:
    """Lengths go up and down, so that no batch is as the rows come."""
    title = LETTERS[number % 7 : number % 7 + 3 + number * 7 % 13]
    return {"id": number, "title": title, "brand": "acme", "other_title": title[::-1], "other_brand": str(number % 10)}


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


def _tokenizer() -> Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    pieces = [*special, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    tokenizer = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def _graph(vocabulary: int, generator: np.random.Generator) -> onnx.ModelProto:
    def constant(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.standard_normal(shape, np.float32), name)

    axis = numpy_helper.from_array(np.array([1]), "axis")
    last = numpy_helper.from_array(np.array([2]), "last")
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["embedded"]),
        helper.make_node("Cast", ["attention_mask"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["real", "last"], ["column"]),
        helper.make_node("Mul", ["embedded", "column"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "axis"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["real", "axis"], ["length"], keepdims=1),
        helper.make_node("Div", ["sum", "length"], ["mean"]),
        helper.make_node("MatMul", ["mean", "classifier"], ["logits"]),
        helper.make_node("MatMul", ["mean", "scorer"], ["scored"]),
        helper.make_node("Squeeze", ["scored", "axis"], ["flat"]),
        helper.make_node("Sigmoid", ["flat"], ["score"]),
    ]
    weights = [constant("words", vocabulary, 4), constant("classifier", 4, 3), constant("scorer", 4, 1), axis, last]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "length"]) for name in SETTINGS.inputs]
    outputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", 3]),
        helper.make_tensor_value_info("score", TensorProto.FLOAT, ["rows"]),
    ]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
