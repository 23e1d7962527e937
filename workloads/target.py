"""`[targets.NAME]` of workload.toml: the runtime, the hardware and how far the compiled model may differ."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from workloads.document import Document, PositiveFloat, PositiveInt
from workloads.instances import COMPUTE_CAPABILITIES, Hardware, family, hardware, has_bf16, instance_shape
from workloads.model import ModelInput
from workloads.objective import TargetObjective

Fraction = Annotated[float, Field(ge=0, le=1)]
InstanceType = Annotated[str, Field(pattern=r"^(ml\.)?[a-z0-9-]+\.[a-z0-9]+$")]
Fp32Layers = Annotated[
    tuple[str, ...], Field(description="Layers kept in fp32 in an int8 or fp16 model, as the parity gate names them.")
]


class Parity(Document):
    """Limits on how far a compiled model may be from the original."""

    max_logit_difference: PositiveFloat | None = Field(
        default=None, description="Largest absolute difference of any output number; None reports it without a limit."
    )
    max_mean_logit_difference: PositiveFloat | None = Field(
        default=None, description="Largest mean difference; None reports it without a limit."
    )
    max_metric_drop: Fraction = Field(
        default=0.0, description="Drop of any task metric against the original. 0 asks for identical answers."
    )


HARDWARE: Mapping[str, tuple[Hardware, ...]] = {
    "openvino": ("x86 CPU",),
    "cuda": ("GPU",),
    "neuron": ("Inferentia 1",),
    "neuronx": ("Inferentia 2",),
}
"""The hardware of runtimes that are built for one kind. Others are for x86 CPUs and GPUs."""


class _Target(Document):
    instance_types: tuple[InstanceType, ...] = Field(
        default=(),
        max_length=10,
        description="The types it is compiled for, the recommender's candidates; the first is deployed until there is "
        "a recommendation. ml.* for SageMaker, without it for EC2.",
    )
    parity: Parity = Parity()
    objective: TargetObjective | None = Field(
        default=None, description="Keys that replace those of [objective] if the workload is hosted on this target."
    )
    runtime: str

    @property
    def cores(self) -> int | None:
        """The cores of its smallest CPU instance type; None for other hardware and for types that are not known."""
        shapes = map(instance_shape, self.instance_types)
        return min((shape.cores for shape in shapes if shape and shape.accelerator == "CPU"), default=None)

    @property
    def copies(self) -> int:
        """The copies of the model that fill these cores with the target's threads; 1 if the cores are not known."""
        return max(1, (self.cores or 1) // getattr(self, "threads", 1))

    @property
    def families(self) -> tuple[str, ...]:
        """The families of its instance types, each once, in order."""
        return tuple(dict.fromkeys(family(name) for name in self.instance_types))

    @model_validator(mode="after")
    def _types_have_the_hardware(self) -> Self:
        kinds = HARDWARE.get(self.runtime, ("x86 CPU", "GPU"))
        if wrong := [name for name in self.instance_types if hardware(name) not in kinds]:
            raise ValueError(
                f"instance_types: {self.runtime} is built for {' or '.join(kinds)}, and {', '.join(wrong)} has another "
                "hardware. docs/accelerators.md has the hardware of each runtime, and what arm64 needs."
            )
        return self


class OnnxRuntimeTarget(_Target):
    """ONNX Runtime on CPU."""

    runtime: Literal["onnxruntime"]
    precision: Literal["fp32", "int8"] = Field(
        default="fp32", description="int8: weights, with activations scaled as they come."
    )
    threads: PositiveInt = Field(default=1, description="Intra-op threads of each model instance.")
    fp32_layers: Fp32Layers = ()


BF16_INSTRUCTION_SETS = ("amx_bf16", "avx512_bf16")
"""The CPU flags of which bf16 needs one, as /proc/cpuinfo names them."""


class OpenVinoTarget(_Target):
    """OpenVINO on an x86 CPU, for encoders."""

    runtime: Literal["openvino"]
    precision: Literal["fp32", "bf16", "int8"] = Field(
        default="fp32",
        description="bf16: on CPUs with AVX-512 BF16 or AMX. int8: weights and activations, with ranges seen on "
        "evaluation texts.",
    )
    threads: PositiveInt = Field(default=1, description="Threads of each model instance.")
    fp32_layers: Fp32Layers = ()

    @property
    def instruction_sets(self) -> tuple[str, ...]:
        """Returns the CPU flags of which the compiled model needs one; empty if any x86 CPU runs it."""
        return BF16_INSTRUCTION_SETS if self.precision == "bf16" else ()

    @model_validator(mode="after")
    def _cpus_fit(self) -> Self:
        if self.precision == "bf16" and (wrong := [name for name in self.instance_types if not has_bf16(name)]):
            raise ValueError(
                f"precision: bf16 needs AVX-512 BF16 or AMX, which {', '.join(wrong)} lacks. Choose types of the "
                'seventh generation or later, such as ml.c7i.xlarge, or precision = "int8".'
            )
        return self


class TorchScriptTarget(_Target):
    """PyTorch, traced: the baseline. Triton's PyTorch backend on a GPU, its Python backend on CPU."""

    runtime: Literal["torchscript"]
    precision: Literal["fp32", "fp16"] = Field(
        default="fp32", description="fp16: mixed precision on a GPU, as PyTorch's autocast casts."
    )
    threads: PositiveInt = Field(default=1, description="Intra-op threads of each model instance, on CPU.")

    @model_validator(mode="after")
    def _mixed_precision_is_for_gpus(self) -> Self:
        wrong = [name for name in self.instance_types if hardware(name) != "GPU"]
        if self.precision == "fp16" and (wrong or not self.instance_types):
            raise ValueError(
                "precision: fp16 is mixed precision on an NVIDIA GPU, but instance_types is "
                f"{list(self.instance_types)}. Name only GPU types, such as ml.g4dn.xlarge, or leave precision out."
            )
        return self


class CudaTarget(_Target):
    """PyTorch on an NVIDIA GPU of any kind, in Triton's Python backend."""

    runtime: Literal["cuda"]
    precision: Literal["fp32"] = "fp32"
    execution: Literal["cuda-graphs", "traced", "eager"] = Field(
        default="cuda-graphs",
        description="How an encoder runs: as a CUDA graph for each batch shape, as TorchScript, or with each operation "
        "launched from Python, for comparison on the local account. A text2text model always runs as CUDA graphs.",
    )


class TensorRtTarget(_Target):
    """TensorRT on the GPUs of its instance types: T4 (g4dn), A10G (g5), L4 (g6), L40S (g6e)."""

    runtime: Literal["tensorrt"]
    precision: Literal["fp32", "fp16", "int8"] = Field(
        default="fp32", description="int8: products of weights, with ranges seen on evaluation texts; the rest is fp16."
    )
    fp32_layers: Fp32Layers = ()
    builder_optimization_level: Annotated[int, Field(ge=0, le=5)] = 3

    @property
    def compute_capabilities(self) -> tuple[str, ...]:
        """Returns the compute capability of each engine; g6 and g6e share one."""
        return tuple(dict.fromkeys(COMPUTE_CAPABILITIES[name] for name in self.families))

    @property
    def build_instances(self) -> dict[str, str]:
        """Returns compute capability → the type on which a remote build makes its engine, in the engines' order."""
        types = {COMPUTE_CAPABILITIES[name]: f"ml.{name}.xlarge" for name in reversed(self.families)}
        return {capability: types[capability] for capability in self.compute_capabilities}

    @model_validator(mode="after")
    def _gpus_are_known(self) -> Self:
        if not self.instance_types or not set(self.families) <= set(COMPUTE_CAPABILITIES):
            raise ValueError(
                f"instance_types: got {list(self.instance_types)}; an engine is built for its GPU, "
                f"so at least one type of {', '.join(COMPUTE_CAPABILITIES)} is needed and no other."
            )
        return self


NEURON_BUILD_INSTANCE = "ml.c5.4xlarge"
"""Where a remote build compiles for Inferentia, which needs none."""


class NeuronTarget(_Target):
    """Inferentia: `neuron` is Inf1, `neuronx` Inf2. The other keys mean the same on both."""

    runtime: Literal["neuron", "neuronx"]
    cast: Literal["none", "matmult", "all"] = Field(
        default="all", description="Operations that the compiler casts from fp32 to bf16."
    )
    batch_size: PositiveInt = Field(default=1, description="Rows of an inference on a model copy; shorter are padded.")
    sequence_lengths: tuple[PositiveInt, ...] = Field(
        default=(),
        description="A graph is compiled for each and a request takes the shortest that fits. "
        "None given: one, the model's max_input_tokens.",
    )
    input_types: Mapping[ModelInput, Literal["int64", "int32", "float32", "float16"]] = Field(
        default={},
        description="Types of the compiled graph's inputs, by their name, as a model that others call has them; int64 "
        "where none is given. The attention_mask alone may be a float.",
    )
    placement: Literal["one-per-core", "data-parallel"] = Field(
        default="data-parallel",
        description="A process for each NeuronCore, or for several chips, which splits a batch over a chip's cores.",
    )
    pipeline_cores: PositiveInt | Literal["auto"] = Field(
        default=1,
        description='NeuronCores that one model is spread over (Inf1). "auto": as many as AWS\'s formula says, '
        "4·round(weights / 2e7), and the smallest of the instance types has.",
    )

    @property
    def precision(self) -> str:
        return "fp32" if self.cast == "none" else "bf16"

    @model_validator(mode="after")
    def _chip_and_pipeline_fit(self) -> Self:
        floats = [name for name, kind in self.input_types.items() if kind.startswith("float")]
        if wrong := [name for name in floats if name != "attention_mask"]:
            raise ValueError(f"input_types: {', '.join(wrong)} counts or numbers tokens; only a mask can be a float.")
        if self.pipeline_cores != 1 and self.runtime == "neuronx":
            raise ValueError("pipeline_cores: NeuronCore pipelines are Inf1's; leave it out for neuronx.")
        if self.pipeline_cores != 1 and self.placement == "data-parallel":
            raise ValueError('pipeline_cores: a pipeline cannot be data parallel; say placement = "one-per-core".')
        return self


Target = Annotated[
    OnnxRuntimeTarget | OpenVinoTarget | TorchScriptTarget | CudaTarget | TensorRtTarget | NeuronTarget,
    Field(discriminator="runtime"),
]
