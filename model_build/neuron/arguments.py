"""Decides every call with which a model is compiled for Neuron, before anything is called. Pure.

In: a target and a model. Out: one `Call` for each sequence length, which `plan` prints and `compile` executes. Paths in
it are relative to the folder that is compiled into.

Sources (AWS Neuron documentation, read 2026-11-21):
- torch.neuron.trace: archive/torch-neuron/api-compilation-python-api
- torch_neuronx.trace: frameworks/torch/torch-neuronx/api-reference-guide/inference/api-torch-neuronx-trace
- compiler options: compiler/neuron-cc/command-line-reference and compiler/neuronx-cc/api-reference-guide

Casts differ on the two chips: Inf1 multiplies matrices in 16 bits with every setting, so "none" there only keeps
everything else in fp32 and transposes exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from workloads import EncoderModel, NeuronTarget, UsageError, instances

Value = bool | str | list[str]

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
WEIGHTS_PER_CHIP = 2e7
CORES_PER_CHIP = 4


class Input(NamedTuple):
    """An example tensor of a trace, of which only type and shape matter."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of a compiler, for one sequence length."""

    function: str
    length: int
    inputs: tuple[Input, ...]
    keywords: Mapping[str, Value]
    output: str
    then: str | None = None
    """A function that receives the traced module before it is saved."""

    def text(self) -> str:
        """Returns the call as `plan` prints it: Python, with the type and shape alone of the example tensors."""
        tensors = [f"{each.dtype}{list(each.shape)}" for each in self.inputs]
        examples = f"({', '.join(tensors)}{',' if len(tensors) == 1 else ''})"
        values = {name: each if isinstance(each, bool) else json.dumps(each) for name, each in self.keywords.items()}
        arguments = ["model", examples, *(f"{name}={value}" for name, value in values.items())]
        begins = f"{self.function}(" if self.then is None else f"traced = {self.function}("
        ends = [")"] if self.then is None else [")", f"{self.then}(traced)"]
        return "\n".join([f"# {self.output}", begins, *(f"    {each}," for each in arguments), *ends])


def calls(target: NeuronTarget, model: EncoderModel) -> tuple[Call, ...]:
    """Returns one call for each sequence length, the shortest first. Raises `UsageError` for lengths or input types."""
    if unknown := sorted(target.input_types.keys() - set(model.inputs)):
        raise UsageError(f"input_types: the model has no {', '.join(unknown)}. Its inputs: {', '.join(model.inputs)}.")
    function, words, others, then = (_torch_neuron if target.runtime == "neuron" else _torch_neuronx)(target)
    return tuple(
        Call(
            function=function,
            length=length,
            inputs=tuple(
                Input(
                    name,
                    target.input_types.get(name, "int64"),
                    (target.batch_size,) if name == "valid_length" else (target.batch_size, length),
                )
                for name in model.inputs
            ),
            keywords={"compiler_args": words, "compiler_workdir": f"{WORKDIR}/{length}", **others},
            output=f"model.{length}.neuron.pt",
            then=then,
        )
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


def with_pipeline(target: NeuronTarget, weights: int) -> NeuronTarget:
    """Returns the target with a number in the place of `pipeline_cores = "auto"`.

    It is the suggested one, or the number of NeuronCores of the smallest of its instance types where that is less.
    """
    if target.pipeline_cores != "auto":
        return target
    shapes = filter(None, map(instances.instance_shape, target.instance_types))
    there = [shape.neuron_chips * CORES_PER_CHIP for shape in shapes]
    return target.model_copy(update={"pipeline_cores": min([suggested_pipeline_cores(weights), *there])})


def pipeline_cores(target: NeuronTarget) -> int:
    """Returns the NeuronCores of one copy of the model, of a target that `with_pipeline` returned."""
    assert target.pipeline_cores != "auto"
    return target.pipeline_cores


def pipeline_warning(target: NeuronTarget, weights: int) -> str | None:
    """Returns a warning about a pipeline over more NeuronCores than the formula suggests."""
    cores, suggested = pipeline_cores(target), suggested_pipeline_cores(weights)
    if cores <= suggested:
        return None
    return (
        f"pipeline_cores: asks for {cores} NeuronCores, but AWS's formula, 4·round(weights / 2e7), says {suggested} "
        f'for {weights / 1e6:.1f} million weights. Say pipeline_cores = "auto", or measure both.'
    )


def _torch_neuron(target: NeuronTarget) -> tuple[str, list[str], dict[str, Value], str | None]:
    """`dynamic_batch_size` stays off: it needs the same number of rows in every tensor of the compiled part.

    Embeddings are looked up on the CPU, and those of positions come in as one row. Serving pads batches instead.
    Source: aws-neuron-sdk issue 681.
    """
    cores = pipeline_cores(target)
    pipeline = ["--neuroncore-pipeline-cores", str(cores)] if cores > 1 else []
    return "torch.neuron.trace", [*CAST_NEURON[target.cast], *pipeline], {"dynamic_batch_size": False}, None


def _torch_neuronx(target: NeuronTarget) -> tuple[str, list[str], dict[str, Value], str | None]:
    """`cpu_backend` traces on a machine without a chip, and then needs the target.

    `lazy_load` lets DataParallel load the graph onto its cores. Otherwise loading the file puts it on the first one.
    Source: api-torch-neuronx-async-lazy-load.
    """
    words = ["--target=inf2", "--model-type=transformer", *CAST_NEURONX[target.cast]]
    then = "torch_neuronx.lazy_load" if target.placement == "data-parallel" else None
    return "torch_neuronx.trace", words, {"cpu_backend": True}, then
