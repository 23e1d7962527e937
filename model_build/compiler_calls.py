"""Lists the calls and commands with which a build compiles for a target, as `plan` prints them. Pure.

Neuron's calls and trtexec's commands are the very values that are executed. Which TensorRT an image holds is asked
of it when it builds, so both versions' commands are shown.
"""

from pathlib import Path
from textwrap import indent
from typing import get_args

from containers.encoder.load_engine import CUDA_GRAPHS
from containers.text2text.tensorrt_plan import plan_name
from model_build.checkpoint import Checkpoint
from model_build.neuron import arguments
from model_build.tensorrt.profiles import profiles
from model_build.tensorrt.trtexec import Major, command
from model_build.text2text.graphs import BLOCK, INT8_ACTIVATIONS
from workloads import (
    CudaTarget,
    EncoderModel,
    Model,
    NeuronTarget,
    OnnxRuntimeTarget,
    Serving,
    Target,
    TensorRtTarget,
    TextToText,
    TorchScriptTarget,
)

MIXED = 'torch.autocast("cpu", torch.float16, cache_enabled=False)'
"""The context in which `export.trace_mixed` traces."""


def steps(model: Model, target: Target, serving: Serving, checkpoint: Checkpoint) -> list[str]:
    """Returns one text for each call or command, in order."""
    match target:
        case NeuronTarget():
            assert not isinstance(model, TextToText)
            return _neuron(model, target, checkpoint)
        case TensorRtTarget():
            return [*_exports(model), *_tensorrt(model, target, serving, checkpoint)]
        case OnnxRuntimeTarget():
            return [*_exports(model), *_onnxruntime(model, target)]
        case CudaTarget() if isinstance(model, TextToText):
            return [_call("torch.jit.trace", graph, f"{graph}.pt") for graph in ("encoder", "decoder")]
        case TorchScriptTarget() | CudaTarget():
            file = "model.pt" if isinstance(target, TorchScriptTarget) else CUDA_GRAPHS
            traced = _call("torch.jit.trace", f"model, ({', '.join(model_inputs(model))})", file)
            return [traced if target.precision == "fp32" else f"with {MIXED}:\n{indent(traced, '    ')}"]


def model_inputs(model: Model) -> list[str]:
    """Returns the example tensors of the trace, of which only type and rank matter."""
    assert not isinstance(model, TextToText)
    return [f"{name}: int64{[2] if name == 'valid_length' else [2, 8]}" for name in model.inputs]


def _exports(model: Model) -> list[str]:
    graphs = ("encoder", "decoder") if isinstance(model, TextToText) else ("model",)
    return [_call("torch.onnx.export", "model, dynamo=True, opset_version=18", f"{graph}.onnx") for graph in graphs]


def _onnxruntime(model: Model, target: OnnxRuntimeTarget) -> list[str]:
    quantised: list[str] = []
    if target.precision == "int8":
        quantised = _quantised_text2text() if isinstance(model, TextToText) else [_quantised_encoder(target)]
    graphs = ("encoder", "decoder") if isinstance(model, TextToText) else ("model",)
    fused = [_call("onnxruntime.InferenceSession", "ORT_ENABLE_EXTENDED", f"{each}.onnx") for each in graphs]
    return [*quantised, *fused]


def _quantised_text2text() -> list[str]:
    quantization = "onnxruntime.quantization"
    by_block = f"block_size={BLOCK}, bits=8, accuracy_level={INT8_ACTIVATIONS}"
    return [
        _call(f"{quantization}.quantize_dynamic", "per_channel=True, weight_type=QInt8", "encoder.onnx"),
        _call(f"{quantization}.matmul_nbits_quantizer.MatMulNBitsQuantizer", by_block, "decoder.onnx"),
    ]


def _quantised_encoder(target: OnnxRuntimeTarget) -> str:
    kept = f", nodes_to_exclude={list(target.fp32_layers)}" if target.fp32_layers else ""
    arguments = f"per_channel=True, weight_type=QInt8{kept}"
    return _call(f"onnxruntime.quantization.quantize_{target.quantisation}", arguments, "model.onnx")


def _tensorrt(model: Model, target: TensorRtTarget, serving: Serving, checkpoint: Checkpoint) -> list[str]:
    made = []
    for capability in target.compute_capabilities:
        for graph, shapes in profiles(model, serving, checkpoint.config).items():
            for major in get_args(Major):
                asked = command(
                    Path(f"{graph}.onnx"),
                    Path(plan_name(graph, capability)),
                    shapes,
                    target,
                    tensorrt=major,
                    timing_cache=Path("timing.cache"),
                )
                lines = " \\\n    ".join(asked)
                made.append(f"# TensorRT {major}, compute capability {capability}\n{lines}")
    return made


def _neuron(model: EncoderModel, target: NeuronTarget, checkpoint: Checkpoint) -> list[str]:
    calls = [call.text() for call in arguments.calls(target, model)]
    if target.runtime == "neuron" and target.pipeline_cores == 1:
        cores = arguments.suggested_pipeline_cores(checkpoint.weight_count)
        calls.append(f"# As a NeuronCore pipeline a first guess would be pipeline_cores = {cores}.")
    return calls


def _call(function: str, arguments: str, output: str) -> str:
    return f"# {output}\n{function}({arguments})"
