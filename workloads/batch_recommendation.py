"""`recommendation.json` of a batch: rows a second of an instance, the shards for the objective, and what a run costs.

A baseline's rate may be `stated`, with the document that states it. CDK copies the shards and the instance type, and
does no arithmetic.
"""

from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from workloads.artifact import Sha256
from workloads.document import Document
from workloads.objective import PositiveFloat, PositiveInt, ThroughputObjective

KnownBy = Literal["stack", "local", "stated"]
"""How a throughput is known: by the reports of a stack's run, by those of another machine, or from a document alone."""


class BatchFleet(Document):
    """Instances that reach an objective together. Rates are of one; costs are without the time to start them."""

    instance_type: str
    rows_per_second: PositiveFloat
    known_by: KnownBy
    source: str = Field(min_length=1, description="The reports and their model, or the document that states the rate.")
    measured: tuple[float, ...] = Field(default=(), description="Rows a second of each report.")
    load_s: float | None = Field(default=None, description="Mean seconds until a shard's models were loaded.")
    shards: PositiveInt
    shard_parts: dict[str, int] = Field(description="The shards that the objective needs, and what headroom added.")
    run_s: float | None = Field(default=None, description="Of rows_per_run; None where those are not known.")
    cost_per_hour_usd: float | None
    cost_per_million_rows_usd: float | None
    cost_per_run_usd: float | None = None
    cost_reason: str


class BatchSizing(Document):
    """A fleet for the objective, whether its rate was measured or not."""

    workload: str
    target: str
    objective: ThroughputObjective
    rows_per_run: PositiveInt | None
    recommended: BatchFleet
    baseline: BatchFleet | None = None
    saving_percent: float | None = Field(default=None, description="Negative where the baseline is cheaper.")
    reason: str = Field(description="What the saving rests on, or why there is none.")
    region: str
    decided_at: str = Field(description="ISO 8601 in UTC.")


class BatchRecommendation(BatchSizing):
    """A fleet whose rate was measured on an archive."""

    archive_sha256: Sha256

    @model_validator(mode="after")
    def _is_measured(self) -> Self:
        if self.recommended.known_by == "stated":
            raise ValueError("recommended.known_by: got 'stated', but a recommendation is of what was measured.")
        return self
