"""Compiles a portable BERT graph for ONNX Runtime on CPU: quantised for int8, fused, stripped of where it was made.

ONNX Runtime's own offline optimiser fuses what it knows; beforehand GELU becomes one node, which it does not recognise
as torch writes it, and norms are spelt out (`norms`). int8 quantises the weights of matrix products per channel;
activations are scaled as they come (dynamic) or by the ranges seen on evaluation texts (static). Layers named in
`fp32_layers` keep their products in fp32; so do the heads on the first token, which cost next to nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx.helper
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.transformers.fusion_gelu import FusionGelu
from onnxruntime.transformers.onnx_model import OnnxModel

from model_build import layers
from model_build.encoder import norms, quantise
from model_build.encoder.graphs import INLINE_LIMIT
from model_build.onnx_session import save_as_run
from workloads import OnnxRuntimeTarget

Tensors = Mapping[str, NDArray[Any]]
PRODUCT = "MatMul"


def optimise(portable: Path, compiled: Path, target: OnnxRuntimeTarget, calibration: Iterable[Tensors]) -> None:
    """Compiles the graph `portable` into the file `compiled`."""
    prepared = portable.with_name("prepared.onnx")
    match target.precision, target.quantisation:
        case "fp32", _:
            _prepare(portable, prepared)
        case "int8", "dynamic":
            _prepare(portable, prepared, in_int8=_in_int8(portable, target))
        case "int8", "static":
            fp32 = portable.with_name("fp32.onnx")
            _prepare(portable, fp32)
            _quantise_by_ranges(fp32, prepared, _in_int8(portable, target), calibration)
    save_as_run(prepared, compiled, INLINE_LIMIT)


def _in_int8(source: Path, target: OnnxRuntimeTarget) -> list[str]:
    """Returns the products to quantise, by node name."""
    layer_of = layers.products(source)
    kept = layers.chosen(tuple(dict.fromkeys(layer_of.values())), target.fp32_layers)
    return [node for node, layer in layer_of.items() if layer not in kept]


def _prepare(source: Path, prepared: Path, in_int8: list[str] | None = None) -> None:
    """Writes the graph with GELU in one node, norms spelt out, and the products `in_int8` scaled as they come."""
    model = onnx.load(source, load_external_data=False)
    wrapped = OnnxModel(model)
    FusionGelu(wrapped).apply()
    wrapped.prune_graph()
    if quantise.MICROSOFT not in {opset.domain for opset in model.opset_import}:
        model.opset_import.append(onnx.helper.make_opsetid(quantise.MICROSOFT, 1))
    norms.spell_out(model)
    if in_int8 is not None:
        quantise.quantise(model, source.parent, in_int8)
        # A quarter of the size: the weights fit into the graph's own file again.
        quantise.inline(model, source.parent)
    onnx.save(model, prepared)


def _quantise_by_ranges(source: Path, quantised: Path, in_int8: list[str], calibration: Iterable[Tensors]) -> None:
    large = source.with_name("model.onnx.data").exists()
    quantize_static(
        source,
        quantised,
        _Calibration(calibration),
        quant_format=QuantFormat.QDQ,
        nodes_to_quantize=in_int8,
        op_types_to_quantize=[PRODUCT],
        per_channel=True,
        weight_type=QuantType.QInt8,
        # Products of two activations (attention) stay in fp32.
        extra_options={"MatMulConstBOnly": True},
        use_external_data_format=large,
    )
    if large:
        onnx.save(onnx.load(quantised), quantised)


class _Calibration(CalibrationDataReader):  # type: ignore[misc]
    """Hands batches of inputs, one at a time, to ONNX Runtime's calibration."""

    def __init__(self, batches: Iterable[Tensors]) -> None:
        self._batches: Iterator[Tensors] = iter(batches)

    def get_next(self) -> Tensors | None:
        return next(self._batches, None)
