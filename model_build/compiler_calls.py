"""Lists the calls and commands with which a build compiles for a target, as `plan` prints them. Pure.

Neuron's calls and trtexec's commands are the very values that are executed. Which TensorRT an image holds is asked
of it when it builds, so both versions' commands are shown.
"""

from pathlib import Path
from typing import get_args

from containers.text2text.tensorrt_plan import plan_name
from model_build.checkpoint import Checkpoint
from model_build.neuron import arguments
from model_build.tensorrt.profiles import profiles
from model_build.tensorrt.trtexec import Major, command
from workloads import (
    CudaTarget,
    EncoderModel,
    Model,
    NeuronTarget,
    OnnxRuntimeTarget,
    OpenVinoTarget,
    Serving,
    Target,
    TensorRtTarget,
    TextToText,
    TorchScriptTarget,
)


def steps(model: Model, target: Target, serving: Serving, checkpoint: Checkpoint) -> list[str]:
    """Returns one text for each call or command, in order."""
    graphs = ("encoder", "decoder") if isinstance(model, TextToText) else ("model",)
    exports = [f"# {graph}.onnx\ntorch.onnx.export(model, dynamo=True, opset_version=18)" for graph in graphs]
    layers = getattr(target, "fp32_layers", ())
    kept = f", without {', '.join(layers)}" if layers else ""
    match target:
        case NeuronTarget():
            assert not isinstance(model, TextToText)
            return _neuron(model, target, checkpoint)
        case TensorRtTarget():
            int8 = f"modelopt.onnx.quantization.quantize: static quantisation to int8{kept}"
            quantised = [int8] if target.precision == "int8" else []
            return [*exports, *quantised, *_tensorrt(model, target, serving, checkpoint)]
        case OnnxRuntimeTarget():
            int8 = f"dynamic quantisation to int8{kept}"
            fused = [f"# {graph}.onnx\nonnxruntime.InferenceSession(ORT_ENABLE_EXTENDED)" for graph in graphs]
            return [*exports, *([int8] if target.precision == "int8" else []), *fused]
        case OpenVinoTarget():
            int8 = f"nncf.quantize(model, model_type=TRANSFORMER){kept}"
            quantised = [int8] if target.precision == "int8" else []
            return [*exports, "openvino.Core().read_model", *quantised, "openvino.save_model(compress_to_fp16=False)"]
        case TorchScriptTarget() | CudaTarget():
            return [f"# {graph}, {target.precision}\ntorch.jit.trace(model, inputs)" for graph in graphs]


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
