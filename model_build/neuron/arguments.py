"""Decides every call with which a model is compiled for Neuron, before anything is called. Pure.

In: a target, a model and, for TensorFlow, the version that wrote the SavedModel. Out: one `Call` for each sequence
length, which `plan` prints and `compile` executes. Paths in it are relative to the folder that is compiled into.

Sources (AWS Neuron documentation, read 2026-11-21):
- torch.neuron.trace: archive/torch-neuron/api-compilation-python-api
- torch_neuronx.trace: frameworks/torch/torch-neuronx/api-reference-guide/inference/api-torch-neuronx-trace
- tensorflow: archive/tensorflow/tensorflow-neuron/api-compilation-python-api, api-tracing-python-api, and
  tensorflow-neuronx/tfneuronx-python-tracing-api
- compiler options: compiler/neuron-cc/command-line-reference and compiler/neuronx-cc/api-reference-guide

What it does not know: whether the compiler gets through. Casts mean different things on the two chips: Inf1 multiplies
matrices in 16 bits whatever is asked, so that "none" there only keeps everything else in fp32 and transposes exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from workloads import EncoderModel, NeuronTarget, UsageError

Value = bool | int | str | list[str] | dict[str, list[int]]
Shape = tuple[int, ...]

CAST_NEURON = {
    "none": ["--fast-math", "none"],  # --fp32-cast has no "none"
    "matmult": ["--fp32-cast=matmult"],
    "all": ["--fp32-cast=all"],
}
CAST_NEURONX = {
    "none": ["--auto-cast=none"],
    "matmult": ["--auto-cast=matmult", "--auto-cast-type=bf16"],
    "all": ["--auto-cast=all", "--auto-cast-type=bf16"],
}
WORKDIR = "compiler"
SAVED_MODEL_COMPILE = "tensorflow.neuron.saved_model.compile"
WEIGHTS_PER_CHIP = 2e7
CORES_PER_CHIP = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of a compiler, for one sequence length."""

    function: str
    subject: str
    """The model itself, or the path of a SavedModel."""
    length: int
    inputs: tuple[tuple[str, Shape], ...]
    dtype: str
    keywords: Mapping[str, Value]
    environment: Mapping[str, str] = field(default_factory=dict)
    output: str

    def text(self) -> str:
        """Returns the call as `plan` prints it: Python, with the type and shape alone of the example tensors."""
        variables = [
            f"os.environ[{json.dumps(name)}] = {json.dumps(value)}" for name, value in self.environment.items()
        ]
        positional = [self.subject, *self._examples()]
        arguments = [*positional, *(f"{name}={_literal(value)}" for name, value in self.keywords.items())]
        called = [f"{self.function}(", *(f"    {argument}," for argument in arguments), ")"]
        return "\n".join([f"# {self.output}", *variables, *called])

    def _examples(self) -> list[str]:
        if self.function == SAVED_MODEL_COMPILE:
            return [json.dumps(self.output)]
        tensors = [f"{self.dtype}{list(shape)}" for _, shape in self.inputs]
        if self.dtype == "int64":
            return [f"({', '.join(tensors)}{',' if len(tensors) == 1 else ''})"]
        named = (f'"{name}": {tensor}' for (name, _), tensor in zip(self.inputs, tensors, strict=True))
        return [f"{{{', '.join(named)}}}"]


def calls(target: NeuronTarget, model: EncoderModel, tensorflow_version: str | None = None) -> tuple[Call, ...]:
    """Returns one call for each sequence length, the shortest first.

    `tensorflow_version` is the version that wrote the SavedModel, if it is one.

    Raises `UsageError` for lengths or a SavedModel that cannot be compiled.
    """
    if model.framework == "pytorch":
        make = {"neuron": _torch_neuron, "neuronx": _torch_neuronx}[target.runtime]
        return tuple(make(target, model, length) for length in sequence_lengths(target, model))
    return tuple(
        _tensorflow(target, model, length, tensorflow_version or "unknown")
        for length in sequence_lengths(target, model)
    )


def sequence_lengths(target: NeuronTarget, model: EncoderModel) -> tuple[int, ...]:
    """Returns the lengths in tokens for which a graph is compiled; the longest is the longest request there may be."""
    lengths = tuple(sorted(set(target.sequence_lengths))) or (model.max_input_tokens,)
    if lengths[-1] != model.max_input_tokens:
        raise UsageError(
            f"sequence_lengths: got {list(lengths)}, but model.max_input_tokens is {model.max_input_tokens}, and "
            f"requests of that length need a graph. Make the longest {model.max_input_tokens}."
        )
    return lengths


def suggested_pipeline_cores(weights: int) -> int:
    """Returns the number of NeuronCores whose memory holds the parameters: 4·round(weights / 2e7), at least 1.

    This is a first guess on the high side: BERT-base, 1.1e8, is published on 16. Source: AWS Neuron documentation,
    NeuronCore Pipeline (about-neuron/arch/neuron-features/neuroncore-pipeline). Inf1 only.
    """
    return max(1, CORES_PER_CHIP * round(weights / WEIGHTS_PER_CHIP))


def _torch_neuron(target: NeuronTarget, model: EncoderModel, length: int) -> Call:
    """`dynamic_batch_size` stays off.

    It asks every tensor that enters the compiled part for the same number of rows. Embeddings are looked up on the CPU,
    and those of positions come in as one row. Serving pads batches instead. Source: aws-neuron-sdk issue 681.
    """
    return Call(
        function="torch.neuron.trace",
        subject="model",
        length=length,
        inputs=_inputs(target, model, length),
        dtype="int64",
        keywords={
            "compiler_args": [*CAST_NEURON[target.cast], *_pipeline(target)],
            "compiler_workdir": f"{WORKDIR}/{length}",
            "dynamic_batch_size": False,
        },
        output=f"model.{length}.neuron.pt",
    )


def _torch_neuronx(target: NeuronTarget, model: EncoderModel, length: int) -> Call:
    """`cpu_backend` traces on a machine without a chip, and then the target has to be said."""
    return Call(
        function="torch_neuronx.trace",
        subject="model",
        length=length,
        inputs=_inputs(target, model, length),
        dtype="int64",
        keywords={
            "compiler_args": ["--target=inf2", "--model-type=transformer", *CAST_NEURONX[target.cast]],
            "compiler_workdir": f"{WORKDIR}/{length}",
            "cpu_backend": True,
        },
        output=f"model.{length}.neuron.pt",
    )


def _tensorflow(target: NeuronTarget, model: EncoderModel, length: int, version: str) -> Call:
    """TensorFlow 1 has a function for SavedModels; TensorFlow 2 traces the loaded one's serving signature."""
    major = version.split(".")[0]
    if major not in ("1", "2") or (major == "1" and target.runtime == "neuronx"):
        allowed = {"neuron": "1 or 2", "neuronx": "2"}[target.runtime]
        raise UsageError(
            f"model.checkpoint: the SavedModel was written by TensorFlow {version}, but {target.runtime} compiles "
            f"those of TensorFlow {allowed}. Save it again with such a version."
        )
    return (_tensorflow_1 if major == "1" else _tensorflow_2)(target, model, length)


def _tensorflow_1(target: NeuronTarget, model: EncoderModel, length: int) -> Call:
    inputs = _inputs(target, model, length)
    return Call(
        function=SAVED_MODEL_COMPILE,
        subject="saved_model",
        length=length,
        inputs=inputs,
        dtype="int32",
        keywords={
            "batch_size": target.batch_size,
            "model_shape_feed_dict": {name: list(shape) for name, shape in inputs},
            "compiler_args": [*CAST_NEURON[target.cast], *_pipeline(target)],
            "compiler_workdir": f"{WORKDIR}/{length}",
        },
        output=f"model.{length}",
    )


def _tensorflow_2(target: NeuronTarget, model: EncoderModel, length: int) -> Call:
    neuron = [*CAST_NEURON[target.cast], *_pipeline(target)]
    neuronx = ["--model-type=transformer", *CAST_NEURONX[target.cast]]
    flags = neuron if target.runtime == "neuron" else neuronx
    return Call(
        function="tensorflow.neuron.trace" if target.runtime == "neuron" else "tensorflow_neuronx.trace",
        subject='tensorflow.saved_model.load(saved_model).signatures["serving_default"]',
        length=length,
        inputs=_inputs(target, model, length),
        dtype="int32",
        keywords={},
        environment={"NEURON_CC_FLAGS": " ".join(flags)},
        output=f"model.{length}",
    )


def _pipeline(target: NeuronTarget) -> list[str]:
    return ["--neuroncore-pipeline-cores", str(target.pipeline_cores)] if target.pipeline_cores > 1 else []


def _inputs(target: NeuronTarget, model: EncoderModel, length: int) -> tuple[tuple[str, Shape], ...]:
    rows = target.batch_size
    return tuple((name, (rows,) if name == "valid_length" else (rows, length)) for name in model.inputs)


def _literal(value: Value) -> str:
    return repr(value) if isinstance(value, bool) else json.dumps(value)
