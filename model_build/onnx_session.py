"""Graphs for ONNX Runtime on CPU: quantised, and saved as a session would run them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic

Tensors = Mapping[str, NDArray[Any]]


def save_as_run(source: Path, compiled: Path, inline_limit: int | None = None) -> None:
    """Writes the fused graph of `source` to `compiled`; weights above `inline_limit` bytes go into a separate file."""
    options = onnxruntime.SessionOptions()
    # Not ALL: the last level is for the machine it runs on.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(compiled)
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_prepacking", "1")  # a second copy of the weights, for running
    if inline_limit is not None and _size(source) > inline_limit:
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", f"{compiled.name}.data"
        )
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    _strip(compiled)


def quantise_by_output(source: Path, quantised: Path, in_fp32: list[str]) -> None:
    """Quantises the weights of matrix products by output; activations are scaled as they come.

    Nodes in `in_fp32` and products of two activations (attention) stay in fp32.
    """
    large = source.with_name("model.onnx.data").exists()
    graph = onnx.load(source, load_external_data=False).graph
    names = {tensor.name for tensor in graph.initializer}
    weights = [node.input[1] for node in graph.node if node.op_type == "MatMul" and node.input[1] in names]
    # Without VNNI, ONNX Runtime makes signed weights unsigned by name, and fails where nodes share weights.
    kind = QuantType.QInt8 if len(set(weights)) == len(weights) else QuantType.QUInt8
    quantize_dynamic(
        source,
        quantised,
        nodes_to_exclude=in_fp32,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=kind,
        extra_options={"MatMulConstBOnly": True},
        use_external_data_format=large,
    )
    if large:  # a quarter of the size: the weights fit into the graph's own file again
        onnx.save(onnx.load(quantised), quantised)


def _size(file: Path) -> int:
    """Returns the size in bytes, with the external data that the graph names."""
    tensors = onnx.load(file, load_external_data=False).graph.initializer
    external = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    return file.stat().st_size + sum(file.with_name(name).stat().st_size for name in external)


def _strip(file: Path) -> None:
    """Drops stack traces and shapes: they name this machine's paths and make no graph faster."""
    model = onnx.load(file, load_external_data=False)
    graph = model.graph
    graph.name = file.stem
    del graph.value_info[:]
    for part in (model, graph, *graph.node, *graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]
    file.write_bytes(model.SerializeToString(deterministic=True))
