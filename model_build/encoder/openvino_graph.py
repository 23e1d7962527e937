"""Compiles a portable encoder graph for OpenVINO: model.xml with the graph, model.bin with the weights.

NNCF quantises for int8: weights by channel, activations by the ranges seen on evaluation texts. Layers named
in `fp32_layers` keep their products in fp32. bf16 is chosen when the model is loaded, and changes no file.
"""

import os
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import openvino

from model_build import layers
from model_build.onnx_session import Tensors
from workloads import OpenVinoTarget, UsageError

GRAPH = "model.xml"
LACKING = re.compile(r"No conversion rule found for operations: (.+)")


def compile_graph(portable: Path, compiled: Path, target: OpenVinoTarget, calibration: Sequence[Tensors]) -> None:
    """Writes the graph `portable` into the folder `compiled`. `calibration` has batches of inputs, for int8.

    Raises `UsageError` for an operator that OpenVINO lacks, or a layer that the graph lacks.
    """
    model = _read(portable)
    if target.precision == "int8":
        model = _quantised(model, _in_fp32(portable, target), calibration)
    openvino.save_model(model, compiled / GRAPH, compress_to_fp16=False)


def _read(portable: Path) -> Any:
    try:
        return openvino.Core().read_model(portable)
    except RuntimeError as error:
        if (lacking := LACKING.search(str(error))) is None:
            raise
        raise UsageError(
            f"OpenVINO {version('openvino')} lacks operators of this model: {lacking[1].strip()}. "
            'Build it with runtime = "onnxruntime".'
        ) from error


def _in_fp32(portable: Path, target: OpenVinoTarget) -> list[str]:
    """Returns the products to keep in fp32, by node name."""
    layer_of = layers.products(portable)
    kept = layers.chosen(tuple(dict.fromkeys(layer_of.values())), target.fp32_layers)
    return [node for node, layer in layer_of.items() if layer in kept]


def _quantised(model: Any, in_fp32: Sequence[str], calibration: Sequence[Tensors]) -> Any:
    os.environ.setdefault("NNCF_CI", "1")  # else it sends usage data to Google Analytics
    import nncf  # takes seconds, and only int8 needs it

    return nncf.quantize(
        model,
        nncf.Dataset(calibration),
        model_type=nncf.ModelType.TRANSFORMER,
        ignored_scope=nncf.IgnoredScope(names=list(in_fp32)),
        subset_size=len(calibration),
    )
