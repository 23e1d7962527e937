"""Exports a `Bert` as a portable ONNX graph, or traces it by TorchScript.

    model.onnx  the workload's inputs, int64 [batch, sequence] (valid_length [batch]) → the task's outputs
    model.pt    the same, traced; a Neuron graph is traced by Neuron's own `trace`

Weights above 1 GB lie beside the graph in model.onnx.data: protobuf stops at 2 GB, and a graph without its weights
costs no memory to pass through. torch does not let go of what it exported or traced, so models of that size get a
process of their own:

    python -m model_build.encoder.export FILE CHECKPOINT ENCODER < model.json
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import torch
from pydantic import TypeAdapter
from torch import Tensor

from model_build.checkpoint import Checkpoint, read
from model_build.encoder.bert import Bert, load
from model_build.encoder.graphs import INLINE_LIMIT
from workloads import EncoderModel, Model, TextToText

OPSET = 18
GRAPH, TRACED = "model.onnx", "model.pt"


def example(model: Bert, rows: int, length: int) -> tuple[Tensor, ...]:
    """Returns inputs of a shape: real tokens without padding."""
    return tuple(
        torch.full((rows,), length) if name == "valid_length" else torch.ones(rows, length, dtype=torch.long)
        for name in model.inputs
    )


def export_checkpoint(checkpoint: Checkpoint, model: EncoderModel, folder: Path) -> Path:
    """Writes `model.onnx` into `folder`."""
    return _written(GRAPH, checkpoint, model, folder)


def trace_checkpoint(checkpoint: Checkpoint, model: EncoderModel, folder: Path) -> Path:
    """Writes `model.pt` into `folder`."""
    return _written(TRACED, checkpoint, model, folder)


def _written(name: str, checkpoint: Checkpoint, model: EncoderModel, folder: Path) -> Path:
    if sum(file.stat().st_size for file in checkpoint.weights) <= INLINE_LIMIT:
        return WRITERS[name](load(checkpoint, model), folder)
    command = [sys.executable, "-m", __name__, str(folder / name), str(checkpoint.folder), str(checkpoint.encoder)]
    done = subprocess.run(command, input=model.model_dump_json(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the export ended with exit status {done.returncode}:\n{done.stderr}")
    return folder / name


def export_onnx(model: Bert, folder: Path) -> Path:
    """Writes `model.onnx` into `folder`, batch and sequence dynamic."""
    # Sizes above 1: torch would take 0 and 1 for constants.
    dynamic = torch.export.Dim.DYNAMIC
    shapes = tuple({0: dynamic} if name == "valid_length" else {0: dynamic, 1: dynamic} for name in model.inputs)
    program = torch.onnx.export(
        model,
        example(model, 3, 5),
        dynamo=True,
        opset_version=OPSET,
        dynamic_shapes=(shapes,),
        input_names=list(model.inputs),
        output_names=list(model.outputs),
        verbose=False,
    )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    file = folder / GRAPH
    size = sum(parameter.nbytes for parameter in model.parameters())
    program.save(file, external_data=size > INLINE_LIMIT)
    _name_axes(file)
    return file


def trace(model: Bert, folder: Path) -> Path:
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


def _name_axes(file: Path) -> None:
    """Names the dynamic axes, which torch numbers."""
    model = onnx.load(file, load_external_data=False)
    for value in (*model.graph.input, *model.graph.output):
        for dimension, axis in zip(value.type.tensor_type.shape.dim, ("batch", "sequence"), strict=False):
            if dimension.dim_param:
                dimension.dim_param = axis
    onnx.save(model, file)


WRITERS = {GRAPH: export_onnx, TRACED: trace}


def _main(file: Path, checkpoint: Path, encoder: Path) -> None:
    model = TypeAdapter[Model](Model).validate_json(sys.stdin.read())
    assert not isinstance(model, TextToText)
    WRITERS[file.name](load(read(checkpoint, encoder, model), model), file.parent)


if __name__ == "__main__":
    _main(*map(Path, sys.argv[1:]))
