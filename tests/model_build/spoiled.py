"""Spoils a quantisation for tests of its gate: weights in int8 lose their last four bits, as if they had four."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from model_build import fp32_layers
from model_build.encoder import optimise as encoder
from model_build.onnx_session import save_as_run
from model_build.text2text import optimise as text2text

STEP = 16


def coarse(weights: NDArray[Any]) -> NDArray[Any]:
    """Returns weights of int8, or of uint8 around 128, as multiples of `STEP` from their zero."""
    zero = 128 if weights.dtype == np.uint8 else 0
    steps = np.rint((weights.astype(np.int32) - zero) / STEP) * STEP
    return (steps.clip(-112, 112) + zero).astype(weights.dtype)


def spoil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spoils both quantisers, and leaves out the search for layers that a failed gate begins."""
    monkeypatch.setattr(fp32_layers, "advice", lambda *_: "")
    for module in (encoder, text2text):
        monkeypatch.setattr(module, "save_as_run", _save_spoiled)


def _save_spoiled(source: Path, file: Path, *limit: int) -> None:
    model, found = onnx.load(source), 0
    for tensor in model.graph.initializer:
        if tensor.data_type in (TensorProto.INT8, TensorProto.UINT8) and len(tensor.dims) > 1:
            tensor.CopyFrom(numpy_helper.from_array(coarse(numpy_helper.to_array(tensor)), tensor.name))
            found += 1
    assert found, f"{source} has no weights in int8"
    onnx.save(model, source)
    save_as_run(source, file, *limit)
