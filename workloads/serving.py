"""`[serving]` and `[variants]` of workload.toml: Triton's scheduling of a model."""

from typing import Annotated

from pydantic import Field, model_validator
from typing_extensions import Self

from workloads.document import Document

PositiveInt = Annotated[int, Field(ge=1)]


class Serving(Document):
    max_batch_size: PositiveInt = 32
    dynamic_batching: bool = Field(default=True, description="Requests that wait are answered together.")
    preferred_batch_sizes: tuple[PositiveInt, ...] = ()
    max_queue_delay_ms: Annotated[float, Field(ge=0)] = 0.0
    model_instances: PositiveInt = Field(
        default=1, description="Copies of the model that run side by side; on a GPU instance, on each GPU."
    )
    response_cache_mb: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Memory for answers to requests seen before; 0 is no cache."
    )
    shared_memory_mb: PositiveInt = Field(
        default=16, description="Shared memory of the container that each copy of a Python model takes at first."
    )

    @model_validator(mode="after")
    def _preferred_sizes_fit(self) -> Self:
        if too_large := [size for size in self.preferred_batch_sizes if size > self.max_batch_size]:
            raise ValueError(f"preferred_batch_sizes {too_large} exceed max_batch_size {self.max_batch_size}.")
        return self


class Variant(Document):
    """A way to serve a target. What `serving` leaves out is the workload's own."""

    target: str
    serving: Serving
