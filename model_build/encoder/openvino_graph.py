"""Compiles a portable encoder graph for OpenVINO: model.xml with the graph, model.bin with the weights.

NNCF quantises for int8: weights by channel, activations by the ranges seen on evaluation texts. Layers named in
`fp32_layers` stay in fp32. bf16 is chosen when the model is loaded, and changes no file.
"""

import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
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
    # OpenVINO numbers the nodes of a whole process, and two builds give the same bytes.
    for number, node in enumerate(model.get_ordered_ops()):
        node.set_friendly_name(f"{node.get_type_name()}_{number}")
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
    """Returns the names of the nodes to keep in fp32."""
    graph = onnx.load(portable, load_external_data=False)
    kept = layers.chosen(layers.names(graph), target.fp32_layers)
    return [node.name for node, layer in zip(graph.graph.node, layers.by_node(graph), strict=True) if layer in kept]


def _quantised(model: Any, in_fp32: Sequence[str], calibration: Sequence[Tensors]) -> Any:
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # it sends usage data to Google Analytics
    import nncf  # takes seconds, and only int8 needs it

    return nncf.quantize(
        model,
        nncf.Dataset(calibration),
        model_type=nncf.ModelType.TRANSFORMER,
        ignored_scope=nncf.IgnoredScope(names=list(in_fp32), validate=False),
        subset_size=len(calibration),
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            # Weights of 7 bits: without VNNI, OpenVINO sums two products of 8 bits in 16 bits, which saturates.
            overflow_fix=nncf.OverflowFix.ENABLE,
            # NNCF's default, the mean of each text's range, clips the largest activations.
            activations_range_estimator_params=nncf.quantization.range_estimator.RangeEstimatorParametersSet.MINMAX,
        ),
    )
