"""`[published.NAME]` of workload.toml: an experiment of which others published the figures, with their model and load.

What it names stands in the place of the workload's own keys for `build --published` and `experiment --published`; what
is deployed stays as it is. Its builds have a folder of their own, so that the two are never taken for each other.
"""

from typing import Annotated

from pydantic import Field, model_validator
from typing_extensions import Self

from workloads.document import Document
from workloads.model import Checkpoint, Padding
from workloads.objective import Sizing
from workloads.target import InstanceType

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+\.jsonl$")]


class Published(Document):
    variants: tuple[str, ...] = Field(min_length=1, description="Names of [variants] or [targets].")
    baseline: str = Field(description="The variant to which speed-ups are told, on the same instance type.")
    instance_types: tuple[InstanceType, ...] = Field(min_length=1, max_length=10)
    traffic: str = Field(description="The name of a [traffic.NAME].")
    checkpoint: Checkpoint
    padding: Padding = "longest"
    truncation: bool = False
    sizing: Sizing = Field(
        default=Sizing(headroom=0.0), description="In the place of [sizing]: a published fleet bears its peak, no more."
    )
    payloads: FileName = Field(default="payloads.jsonl", description="The file of requests, in the workload's folder.")

    @model_validator(mode="after")
    def _baseline_is_measured(self) -> Self:
        if self.baseline not in self.variants:
            raise ValueError(f"baseline: got '{self.baseline}', which is none of variants: {', '.join(self.variants)}.")
        return self
