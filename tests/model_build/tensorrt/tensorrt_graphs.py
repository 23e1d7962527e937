"""Small graphs of every kind that TensorRT gets: the tiny T5's two, and BERTs with random weights."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import onnx
import pytest
import torch
from onnx import TensorProto

from model_build import layers
from model_build.checkpoint import resolve
from model_build.checkpoint.architectures import bert_weights
from model_build.encoder.bert import Bert
from model_build.encoder.export import write
from model_build.tensorrt.precision import element_types
from model_build.text2text import export
from tests.model_build.miniatures.tiny_bert import make_workload
from tests.model_build.miniatures.tiny_t5 import make_checkpoint
from workloads import EncoderModel, QuestionAnswering, TextClassification, TextPairScoring, TextToText
from workloads.model import ModelInput

needs_rtx = pytest.mark.skipif(
    find_spec("tensorrt_rtx_bindings") is None,
    reason="TensorRT for RTX is not installed: `make test` installs it where PyPI can be reached",
)
needs_modelopt = pytest.mark.skipif(
    find_spec("modelopt") is None,
    reason="NVIDIA ModelOpt is not installed: `make test` installs it where PyPI can be reached",
)
PRECISIONS: tuple[Literal["fp32", "fp16", "int8"], ...] = (
    ("fp32", "fp16", "int8") if find_spec("modelopt") else ("fp32", "fp16")
)
T5 = TextToText(task="text2text-generation", checkpoint="./checkpoint", max_input_tokens=24, max_output_tokens=12)
T5_CHANNELS, T5_D_KV = 16, 8
GRAPHS = (
    *(f"{kind}-{graph}" for kind in ("t5", "gated-t5") for graph in ("encoder", "decoder")),
    *(f"bert-{task}" for task in ("classification", "scoring", "answering")),
)
FIVE_INPUTS: tuple[ModelInput, ...] = ("input_ids", "attention_mask", "position_ids", "valid_length", "token_type_ids")
BERTS: dict[str, EncoderModel] = {
    "classification": TextClassification(
        task="text-classification", checkpoint="./checkpoint", labels=("no", "yes"), max_input_tokens=32
    ),
    "scoring": TextPairScoring(
        task="text-pair-scoring",
        checkpoint="./checkpoint",
        segments=(("left",), ("right",)),
        labels=("same", "other", "unlike"),
        inputs=FIVE_INPUTS,
        max_input_tokens=32,
    ),
    "answering": QuestionAnswering(task="question-answering", checkpoint="./checkpoint", max_input_tokens=32),
}
VOCABULARY = 40
BERT_CONFIG: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "num_attention_heads": 4,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}


@cache
def graph(name: str) -> onnx.ModelProto:
    """One of `GRAPHS`, exported when it is first asked for. Not to be changed."""
    kind, _, part = name.rpartition("-")
    if kind != "bert":
        return t5(kind == "gated-t5")[part]
    with TemporaryDirectory() as folder:
        return onnx.load(make_bert(Path(folder), BERTS[part].task))


@cache
def t5(gated: bool) -> dict[str, onnx.ModelProto]:
    """Both graphs, with the static cache. Not to be changed."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        make_checkpoint(folder / "checkpoint", gated=gated)
        model = export.load(folder / "checkpoint")
        limits = {"max_input_tokens": T5.max_input_tokens, "max_output_tokens": T5.max_output_tokens}
        export.export(model, folder, **limits, static=True)
        return {part: onnx.load(folder / f"{part}.onnx") for part in ("encoder", "decoder")}


def make_bert(folder: Path, task: str) -> Path:
    """model.onnx in `folder`: the tiny workload's, whose export other tests share."""
    workload = make_workload(folder / "workloads", task)
    model = workload.workload.model
    assert isinstance(model, EncoderModel)
    return write("onnx", resolve(workload, folder / "cache"), model, folder)


def bert(model: EncoderModel) -> Bert:
    torch.manual_seed(0)
    shapes = bert_weights(BERT_CONFIG, model.task, model.head_size)
    weights = {
        name.removeprefix("bert."): torch.randn(shape) * (0.3 if len(shape) > 1 else 0.1)
        + (len(shape) == 1 and not scale)
        for name, shape, scale in shapes
    }
    return Bert(weights, BERT_CONFIG, model).eval()


def fp32_products(graph: Path) -> bool:
    """Tells whether a graph has products with fp32 operands, which TensorRT for RTX has not on a T4."""
    model = onnx.load(graph)
    types = element_types(model)
    products = [node for node in model.graph.node if node.op_type in layers.PRODUCTS]
    assert products
    return any(types.get(node.output[0]) == TensorProto.FLOAT for node in products)
