"""`[serving]`, `[variants]` and `[tune]` of workload.toml: how Triton schedules a model, and what `tune` tries."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from workloads.document import Document, PositiveInt

GroupKind = Literal["KIND_CPU", "KIND_GPU"]
Tried = Annotated[int, Field(ge=1, le=1024)]
TriedDelay = Annotated[float, Field(ge=0, le=60_000)]


class InstanceGroup(Document):
    """Copies of a model that run side by side, as an entry of Triton's `instance_group` has them."""

    count: PositiveInt = Field(default=1, description="Copies; on KIND_GPU, on each of its GPUs.")
    kind: GroupKind | None = Field(default=None, description="None: that of the hardware that the target is for.")
    gpus: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(), description="For KIND_GPU, the numbers of its GPUs; none named: every GPU of the instance."
    )

    @model_validator(mode="after")
    def _gpus_are_of_gpus(self) -> Self:
        if self.gpus and self.kind == "KIND_CPU":
            raise ValueError(f"gpus: got {list(self.gpus)}, but kind is KIND_CPU.")
        if len(set(self.gpus)) < len(self.gpus):
            raise ValueError(f"gpus: got {list(self.gpus)}, which names a GPU twice.")
        return self


class Serving(Document):
    max_batch_size: PositiveInt = 32
    dynamic_batching: bool = Field(default=True, description="Requests that wait are answered together.")
    preferred_batch_sizes: tuple[PositiveInt, ...] = ()
    max_queue_delay_ms: Annotated[float, Field(ge=0)] = Field(default=0.0, description="Counted in µs: 0.1 is 100 µs.")
    model_instances: PositiveInt | None = Field(
        default=None,
        description="Copies of the model that run side by side; on a GPU instance, on each GPU. The short form of one "
        "instance group. None: on a CPU as many as its cores allow (`Target.copies`), elsewhere one.",
    )
    instance_groups: tuple[InstanceGroup, ...] = Field(
        default=(), description="Triton's own instance groups, in the place of model_instances."
    )
    response_cache_mb: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Memory for answers to requests seen before; 0 is no cache."
    )
    shared_memory_mb: PositiveInt | None = Field(
        default=None,
        description="Shared memory of the container that each copy of a Python model takes at first. None: 16 MB "
        "divided by the copies, at least 1 MB.",
    )

    @property
    def copy_memory_mb(self) -> int:
        """Shared memory of a copy. An encoder's three Python models fit into Docker's 64 MB with up to 20 copies."""
        return self.shared_memory_mb or max(16 // self.copies, 1)

    @property
    def groups(self) -> tuple[InstanceGroup, ...]:
        """The model's instance groups, however they were written."""
        return self.instance_groups or (InstanceGroup(count=self.model_instances or 1),)

    @property
    def copies(self) -> int:
        """The model's copies in all groups, on each of their GPUs."""
        return sum(group.count * max(1, len(group.gpus)) for group in self.groups)

    @property
    def on_cpu(self) -> "Serving":
        """The same for a step that runs on the CPU beside the model: as many copies as its groups have together."""
        return self.model_copy(update={"instance_groups": (), "model_instances": self.copies})

    def filled(self, copies: int) -> "Serving":
        """Returns these settings with this number of copies, unless they name one."""
        known = self.instance_groups or self.model_instances
        return self if known else self.model_copy(update={"model_instances": copies})

    @model_validator(mode="after")
    def _preferred_sizes_fit(self) -> Self:
        if too_large := [size for size in self.preferred_batch_sizes if size > self.max_batch_size]:
            raise ValueError(f"preferred_batch_sizes {too_large} exceed max_batch_size {self.max_batch_size}.")
        return self

    @model_validator(mode="after")
    def _copies_are_said_once(self) -> Self:
        if self.instance_groups and self.model_instances is not None:
            raise ValueError(
                f"instance_groups: say how many copies each group has, and leave out model_instances = "
                f"{self.model_instances}."
            )
        return self


class Variant(Document):
    """A way to serve a target. What `serving` leaves out is the workload's own."""

    target: str
    serving: Serving


class Tune(Document):
    """The values to try of each key; every combination that makes sense is a configuration. An empty list leaves the
    choice to the machine: powers of two up to its cores, and the workload's own values."""

    targets: tuple[str, ...] = Field(default=(), description="Runtimes and precisions; default: the hosted target.")
    threads: tuple[Tried, ...] = Field(
        default=(),
        description="Of each model instance; default: powers of two up to the cores; on GPUs the present value.",
    )
    model_instances: tuple[Tried, ...] = Field(
        default=(), description="Default: powers of two for which instances times threads are at most the cores."
    )
    max_batch_sizes: tuple[Tried, ...] = Field(
        default=(), description="1 answers each request by itself; default: 1, 4, 16 and the workload's own."
    )
    preferred_batch_sizes: tuple[tuple[Tried, ...], ...] = Field(
        default=(), description="Lists of preferred sizes; default: none, and the workload's own."
    )
    max_queue_delays_ms: tuple[TriedDelay, ...] = Field(
        default=(), description="Default: 0, 2 % and 10 % of the latency limit, and the workload's own."
    )
    max_duration_s: float = Field(
        default=1800.0, gt=0, allow_inf_nan=False, description="Seconds of all probes together, without loading."
    )


def inherited(variant: Any, common: Mapping[str, Any]) -> Any:
    """Fills what a variant's table leaves out from the workload's `serving`. A fault is left for the validation.

    A variant that has the one key for its copies does not inherit the other.
    """
    if not isinstance(variant, dict) or not isinstance(own := variant.get("serving", {}), dict):
        return variant
    other = {"instance_groups": "model_instances", "model_instances": "instance_groups"}
    replaced = {other[key] for key in own if key in other}
    return {**variant, "serving": {**{key: value for key, value in common.items() if key not in replaced}, **own}}
