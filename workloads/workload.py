"""`workload.toml`, typed: a model, its targets, how it is served, the objective, the traffic and the hosting.

Units are in the names. A field without a default is one for which none can be computed.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from workloads.document import Document

Percentile = Annotated[str, Field(pattern=r"^P\d{1,2}(\.\d{1,2})?$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$")]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]


class Model(Document):
    task: Literal["text2text-generation"]
    checkpoint: str = Field(
        min_length=1,
        description="A folder (begins with ./, ../ or /; relative to the workload's folder), an s3:// URI of a "
        "folder, or else a model id of the Hugging Face hub.",
    )
    max_input_tokens: PositiveInt = Field(description="Longer requests are refused, never cut.")
    max_output_tokens: PositiveInt = Field(description="Decoding stops here at the latest, end-of-sequence included.")


class Quality(Document):
    """What the original model must reach on evaluation.jsonl before anything is built from it."""

    min_exact_match: Fraction = Field(description="Share of all pairs answered exactly.")
    min_left_alone: Fraction = Field(description="Share of the already-correct inputs returned unchanged.")


class Parity(Document):
    """How far a compiled model may be from the original."""

    max_logit_difference: PositiveFloat | None = Field(
        default=None, description="Largest absolute difference of any logit; None reports it without a limit."
    )
    max_exact_match_drop: Fraction = Field(
        default=0.0,
        description="Drop of exact match allowed against the original. 0 asks for identical token sequences.",
    )


class OnnxRuntimeTarget(Document):
    """ONNX Runtime on CPU, inside Triton's Python backend."""

    runtime: Literal["onnxruntime"]
    precision: Literal["fp32", "int8"] = "fp32"
    threads: PositiveInt = Field(default=1, description="Intra-op threads of each model instance.")
    parity: Parity = Parity()


Target = OnnxRuntimeTarget


class Serving(Document):
    """Triton's scheduling of the model."""

    max_batch_size: PositiveInt = 32
    preferred_batch_sizes: tuple[PositiveInt, ...] = ()
    max_queue_delay_ms: Annotated[float, Field(ge=0)] = 0.0
    model_instances: PositiveInt = Field(default=1, description="Copies of the model that run side by side.")

    @model_validator(mode="after")
    def _preferred_sizes_fit(self) -> Self:
        if too_large := [size for size in self.preferred_batch_sizes if size > self.max_batch_size]:
            raise ValueError(f"preferred_batch_sizes {too_large} exceed max_batch_size {self.max_batch_size}.")
        return self


class Objective(Document):
    percentile: Percentile
    model_latency_ms: PositiveFloat
    overhead_latency_ms: PositiveFloat = Field(
        default=50.0, description="Alarm limit of what SageMaker adds around the container, on average."
    )
    peak_invocations_per_minute: PositiveInt
    trough_invocations_per_minute: Annotated[int, Field(ge=0)] = Field(
        default=0, description="The quietest hour; the fleet never scales in below what it needs."
    )

    @property
    def percentile_rank(self) -> float:
        """99.0 for P99."""
        return float(self.percentile[1:])

    @model_validator(mode="after")
    def _trough_below_peak(self) -> Self:
        if self.trough_invocations_per_minute > self.peak_invocations_per_minute:
            raise ValueError(
                f"trough_invocations_per_minute {self.trough_invocations_per_minute} exceeds "
                f"peak_invocations_per_minute {self.peak_invocations_per_minute}."
            )
        return self


class Sizing(Document):
    headroom: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.2, description="Capacity above the peak, as a fraction of the peak."
    )
    safety_factor: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5, description="Share of an instance's capacity at which autoscaling adds another."
    )
    min_instances: PositiveInt = 1


class Phase(Document):
    initial_users: PositiveInt
    spawn_rate_per_minute: Annotated[int, Field(ge=0)] = 0
    duration_s: PositiveInt


class StoppingConditions(Document):
    """When a job ends early. The latency limit is the objective's; it is not repeated here."""

    max_invocations_per_minute: Annotated[int, Field(ge=1, le=30_000)] | None = Field(
        default=None, description="None leaves it out of the request; the service takes 30,000 at most."
    )
    flat_invocations: Literal["Stop", "Continue"] = "Stop"


class PhasedTraffic(Document):
    type: Literal["phases"]
    phases: tuple[Phase, ...] = Field(min_length=1)
    stop: StoppingConditions = StoppingConditions()

    @property
    def duration_s(self) -> int:
        return sum(phase.duration_s for phase in self.phases)


class StairTraffic(Document):
    type: Literal["stairs"]
    users_per_step: Annotated[int, Field(ge=1, le=3)]
    steps: PositiveInt
    duration_s: PositiveInt = Field(description="Of the whole staircase.")
    stop: StoppingConditions = StoppingConditions()


Traffic = Annotated[PhasedTraffic | StairTraffic, Field(discriminator="type")]


class SageMakerEndpointHosting(Document):
    kind: Literal["sagemaker-endpoint"]
    target: Name
    instance_types: tuple[Annotated[str, Field(pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$")], ...] = Field(
        min_length=1,
        max_length=10,
        description="Candidates of the recommender; the first is deployed until there is a recommendation.",
    )
    triton_version: Annotated[str, Field(pattern=r"^\d\d\.\d\d$")] = Field(
        default="25.09", description="Tag of the SageMaker Triton image, yy.mm."
    )
    image_uri: str | None = Field(
        default=None, description="Image to use instead of the stock SageMaker Triton image of that version."
    )


class Workload(Document):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]
    description: Annotated[str, Field(min_length=1)]
    model: Model
    quality: Quality
    targets: dict[Name, Target] = Field(min_length=1)
    serving: Serving = Serving()
    objective: Objective
    sizing: Sizing = Sizing()
    traffic: dict[Name, Traffic] = Field(min_length=1)
    hosting: SageMakerEndpointHosting

    @model_validator(mode="after")
    def _hosted_target_exists(self) -> Self:
        if self.hosting.target not in self.targets:
            raise ValueError(
                f"hosting.target '{self.hosting.target}' is not a target; known targets: {', '.join(self.targets)}."
            )
        return self

    @field_validator("targets", "traffic", mode="after")
    @classmethod
    def _sorted_by_name(cls, table: dict[str, object]) -> dict[str, object]:
        return dict(sorted(table.items()))

    @property
    def stack_name(self) -> str:
        """SpellcheckStack for spellcheck, QueryIntentStack for query_intent."""
        return "".join(word.capitalize() for word in self.name.split("_")) + "Stack"
