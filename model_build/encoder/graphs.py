"""The files a BERT is compiled to, what Triton runs them with, and what the serving code must know of them. Pure."""

from pathlib import Path

from containers.encoder.engines.load_engine import CUDA_FILES
from containers.encoder.settings import OTHER_PROBLEMS, Settings
from model_build.checkpoint import Checkpoint
from workloads import (
    CudaTarget,
    EncoderModel,
    NeuronTarget,
    OnnxRuntimeTarget,
    OpenVinoTarget,
    Target,
    TensorRtTarget,
    TorchScriptTarget,
)
from workloads.instances import hardware

TritonTarget = OnnxRuntimeTarget | OpenVinoTarget | TorchScriptTarget | CudaTarget | TensorRtTarget

BUCKETS = (16, 32, 64, 96, 128, 192, 256, 384)
"""Lengths in tokens to which requests are padded: for a native backend, so that they can share a batch; for CUDA
graphs, of which each has one shape, so that there are few."""
OPENVINO_STEP = 16
"""Tokens between two padded lengths. OpenVINO compiles kernels for each new batch shape, which takes milliseconds."""
INLINE_LIMIT = 1_000_000_000  # bytes of weights that still go into the graph's own file


def native(target: Target) -> bool:
    """True where Triton's TensorRT or PyTorch backend runs the model, on a GPU; its Python backend does on CPU."""
    gpu = any(hardware(name) == "GPU" for name in target.instance_types)
    return isinstance(target, TensorRtTarget) or (isinstance(target, TorchScriptTarget) and gpu)


def settings(model: EncoderModel, target: Target, checkpoint: Checkpoint) -> Settings:
    """Returns what the serving code must know of the model and its tokenizer.

    A key that only other tasks or runtimes have gets its default, which settings.json leaves out.
    """
    problem = getattr(model, "problem_type", "")
    return Settings(
        task=model.task,
        segments=model.segments,
        inputs=model.inputs,
        max_input_tokens=model.max_input_tokens,
        labels=model.label_names,
        max_answer_tokens=getattr(model, "max_answer_tokens", 0),
        pad_token_id=checkpoint.encoder_config.get("pad_token_id") or 0,
        threads=getattr(target, "threads", 1),
        pad_to=padded_lengths(model, target),
        batch_size=target.batch_size if isinstance(target, NeuronTarget) else 0,
        truncation=model.truncation,
        input_types=tuple(sorted(target.input_types.items())) if isinstance(target, NeuronTarget) else (),
        problem_type=problem if problem in OTHER_PROBLEMS else "",
        threshold=getattr(model, "threshold", 0.5),
        activation=getattr(model, "activation", ""),
        aggregation=getattr(model, "aggregation", ""),
        stride=getattr(model, "stride", None),
        # What OpenVINO's int8 leaves is fp32.
        precision="bf16" if isinstance(target, OpenVinoTarget) and target.precision == "bf16" else "fp32",
        instruction_sets=getattr(target, "instruction_sets", ()),
    )


def padded_lengths(model: EncoderModel, target: Target) -> tuple[int, ...]:
    """Returns the lengths in tokens that a batch may have; empty where any length will do."""
    longest = model.max_input_tokens
    if model.padding == "max_length":
        return (longest,)
    if isinstance(target, NeuronTarget):
        return target.sequence_lengths or (longest,)
    if isinstance(target, OpenVinoTarget):
        return (*range(OPENVINO_STEP, longest, OPENVINO_STEP), longest)
    if native(target) or isinstance(target, CudaTarget):
        return (*(length for length in BUCKETS if length < longest), longest)
    return ()


def graph_files(target: TritonTarget, checkpoint: Checkpoint, graphs: Path) -> dict[str, Path]:
    """The compiled files in `graphs`, by their name in the version folder."""
    match target:
        case OnnxRuntimeTarget():
            # Protobuf stops at 2 GB, so large weights get a file of their own. int8 weights are a quarter.
            size = sum(file.stat().st_size for file in checkpoint.weights)
            large = size > INLINE_LIMIT and target.precision == "fp32"
            names = ["model.onnx", *(["model.onnx.data"] if large else [])]
        case OpenVinoTarget():
            names = ["model.xml", "model.bin"]
        case TorchScriptTarget():
            names = ["model.pt"]
        case CudaTarget():
            names = [CUDA_FILES[target.execution]]
        case TensorRtTarget():
            names = [f"model.{capability}.plan" for capability in target.compute_capabilities]
    return {name: graphs / name for name in names}
