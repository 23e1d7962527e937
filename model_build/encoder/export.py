"""Exports an encoder as a portable ONNX graph, or traces it by TorchScript: our own network, or transformers'.

    model.onnx  the workload's inputs, int64 [batch, sequence] (valid_length [batch]) → the task's outputs
    model.pt    the same, traced, in fp32 or in mixed precision; a Neuron graph is traced by Neuron's own `trace`
    model.pt2   the same, exported by torch.export

Weights above 1 GB lie beside the graph in model.onnx.data: protobuf stops at 2 GB, and a graph without its weights
costs no memory to pass through. torch does not let go of what it exported or traced, so models of that size get a
process of their own.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from model_build.checkpoint import Checkpoint
from model_build.encoder import bert, wrapper
from model_build.encoder.graphs import INLINE_LIMIT
from workloads import EncoderModel

Network = bert.Bert | wrapper.Wrapped
Format = Literal["onnx", "program", "torchscript", "torchscript-mixed"]

OPSET = 18
LEAST = -1e38
"""A constant below it is transformers' mask, the least number of fp32."""
GRAPH, TRACED, PROGRAM = "model.onnx", "model.pt", "model.pt2"


def load(checkpoint: Checkpoint, model: EncoderModel) -> Network:
    """Loads the network of the checkpoint's family in fp32, ready to infer. Raises `UsageError`."""
    own = checkpoint.family is None or checkpoint.family.own_network
    return bert.load(checkpoint, model) if own else wrapper.load(checkpoint, model)


def example(model: Network, rows: int, length: int) -> tuple[Tensor, ...]:
    """Returns inputs of a shape: real tokens without padding."""
    return tuple(
        torch.full((rows,), length) if name == "valid_length" else torch.ones(rows, length, dtype=torch.long)
        for name in model.inputs
    )


def write(form: Format, checkpoint: Checkpoint, model: EncoderModel, folder: Path) -> Path:
    """Writes the file of a format into `folder`; mixed precision is fp16."""
    if sum(file.stat().st_size for file in checkpoint.weights) <= INLINE_LIMIT:
        return _write(form, checkpoint, model, folder)
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_write, form, checkpoint, model, folder).result()


def _write(form: Format, checkpoint: Checkpoint, model: EncoderModel, folder: Path) -> Path:
    return WRITERS[form](load(checkpoint, model), folder)


def _shapes(model: Network) -> tuple[Any, ...]:
    dynamic = torch.export.Dim.DYNAMIC
    return (tuple({0: dynamic} if name == "valid_length" else {0: dynamic, 1: dynamic} for name in model.inputs),)


def export_onnx(model: Network, folder: Path) -> Path:
    """Writes `model.onnx` into `folder`, batch and sequence dynamic."""
    program = torch.onnx.export(
        model,
        example(model, 3, 5),  # sizes above 1: torch would take 0 and 1 for constants
        dynamo=True,
        opset_version=OPSET,
        dynamic_shapes=_shapes(model),
        input_names=list(model.inputs),
        output_names=list(model.outputs),
        verbose=False,
    )
    assert program is not None, "dynamo returns one"
    file = folder / GRAPH
    size = sum(parameter.nbytes for parameter in model.parameters())
    program.save(file, external_data=size > INLINE_LIMIT)
    _tidy(file)
    return file


def export_program(model: Network, folder: Path) -> Path:
    """Writes `model.pt2` into `folder`, batch and sequence dynamic."""
    file = folder / PROGRAM
    torch.export.save(torch.export.export(model, example(model, 3, 5), dynamic_shapes=_shapes(model)), file)
    return file


def trace(model: Network, folder: Path) -> Path:
    """Writes `model.pt` into `folder`; it takes any batch and length.

    Not frozen: a GPU gets the weights where the model is loaded, and constants would not follow.
    """
    with torch.inference_mode():
        traced: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
            model, example(model, 2, 8)
        )
    file = folder / TRACED
    torch.jit.save(traced, str(file))
    return file


def trace_mixed(model: Network, folder: Path) -> Path:
    """Writes `model.pt` into `folder` as PyTorch's autocast runs it: matrices are multiplied in fp16, the rest is fp32.

    The trace holds the casts themselves, so that Triton's PyTorch backend, which turns no autocast on, runs them, and
    so that the parity gate sees the very numbers without a GPU. Weights are cast anew in each run, as autocast does.
    """
    with torch.autocast("cpu", torch.float16, cache_enabled=False):
        return trace(model, folder)


def _tidy(file: Path) -> None:
    """Names the dynamic axes, which torch numbers, and masks with a number that fp16 can hold, as `bert` does."""
    model = onnx.load(file, load_external_data=False)
    for output in model.graph.output:
        _rename_namesakes(model.graph, output.name)
    for tensor in model.graph.initializer:
        scalar = tensor.data_type == onnx.TensorProto.FLOAT and not tensor.dims
        if scalar and numpy_helper.to_array(tensor) < LEAST:
            tensor.CopyFrom(numpy_helper.from_array(np.array(bert.MASKED, np.float32), tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        for dimension, axis in zip(value.type.tensor_type.shape.dim, ("batch", "sequence"), strict=False):
            if dimension.dim_param:
                dimension.dim_param = axis
    onnx.save(model, file)


def _rename_namesakes(graph: onnx.GraphProto, output: str) -> None:
    """Gives an output's name to the node that makes only this output.

    torch calls what a table of embeddings gives `embedding`, which `output_names` does not look at.
    """
    *others, _ = makers = [node for node in graph.node if output in node.output]
    if len(makers) == 1:
        return
    inner = f"{output}.inner"
    for node in graph.node:
        node.input[:] = [inner if name == output else name for name in node.input]
    for node in others:
        node.output[:] = [inner if name == output else name for name in node.output]
    for value in [value for value in graph.value_info if value.name == output]:
        graph.value_info.remove(value)


WRITERS = {"onnx": export_onnx, "program": export_program, "torchscript": trace, "torchscript-mixed": trace_mixed}
