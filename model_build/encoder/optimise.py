"""Compiles a portable BERT graph for ONNX Runtime on CPU: quantised for int8, fused, stripped of where it was made.

ONNX Runtime's own offline optimiser fuses what it knows; beforehand GELU becomes one node, which it does not recognise
as torch writes it, and norms are spelt out (`norms`). int8 quantises the weights of matrix products per channel;
activations are scaled as they come. Layers named in `fp32_layers` keep their products in fp32; so do the heads on the
first token, which cost next to nothing.
"""

from pathlib import Path

import onnx
import onnx.helper
from onnxruntime.transformers.fusion_gelu import FusionGelu
from onnxruntime.transformers.onnx_model import OnnxModel

from model_build import layers
from model_build.encoder import norms
from model_build.encoder.graphs import INLINE_LIMIT
from model_build.onnx_session import quantise_by_output, save_as_run
from workloads import OnnxRuntimeTarget

MICROSOFT = "com.microsoft"


def optimise(portable: Path, compiled: Path, target: OnnxRuntimeTarget) -> None:
    """Compiles the graph `portable` into the file `compiled`."""
    fp32, prepared = portable.with_name("fp32.onnx"), portable.with_name("prepared.onnx")
    _prepare(portable, fp32)
    if target.precision == "int8":
        quantise_by_output(fp32, prepared, _in_fp32(portable, target))
    save_as_run(fp32 if target.precision == "fp32" else prepared, compiled, INLINE_LIMIT)


def _in_fp32(source: Path, target: OnnxRuntimeTarget) -> list[str]:
    """Returns the products to keep in fp32, by node name."""
    layer_of = layers.products(source)
    kept = layers.chosen(tuple(dict.fromkeys(layer_of.values())), target.fp32_layers)
    return [node for node, layer in layer_of.items() if layer in kept]


def _prepare(source: Path, prepared: Path) -> None:
    """Writes the graph with GELU in one node and norms spelt out."""
    model = onnx.load(source, load_external_data=False)
    wrapped = OnnxModel(model)
    FusionGelu(wrapped).apply()
    wrapped.prune_graph()
    if MICROSOFT not in {opset.domain for opset in model.opset_import}:
        model.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    onnx.save(norms.spell_out(model), prepared)
