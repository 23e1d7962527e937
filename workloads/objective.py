"""`[objective]` and `[sizing]` of workload.toml: the latency or throughput to keep, the load, and the headroom."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator
from typing_extensions import Self

from workloads.document import Document, PositiveFloat, PositiveInt

Percentile = Annotated[str, Field(pattern=r"^P\d{1,2}(\.\d{1,2})?$")]

ProcessName = Literal["poisson", "gamma", "weibull", "markov-modulated", "on-off", "replay"]
PROCESS_KEYS: Mapping[ProcessName, tuple[str, ...]] = {
    "poisson": (),
    "gamma": ("cv",),
    "weibull": ("cv",),
    "markov-modulated": ("dispersion", "burst_s"),
    "on-off": ("burst_s", "pause_s"),
    "replay": ("file",),
}
"""The keys of each process, all of them required."""


class ArrivalProcess(Document):
    """`[objective.arrivals]`: how requests arrive around their mean rate. docs/capacity.md describes each process."""

    process: ProcessName = "poisson"
    cv: Annotated[float | None, Field(ge=0.2, le=8)] = Field(
        default=None, description="Coefficient of variation of the gaps between requests; 1 for Poisson."
    )
    dispersion: Annotated[float | None, Field(gt=1, le=1000)] = Field(
        default=None, description="Index of dispersion: variance of the count of requests in a long time over its mean."
    )
    burst_s: Annotated[float | None, Field(gt=0, le=3600)] = Field(default=None, description="Mean seconds of a burst.")
    pause_s: Annotated[float | None, Field(gt=0, le=3600)] = Field(
        default=None, description="Mean seconds without requests between two bursts."
    )
    file: str | None = Field(
        default=None, description="File of time stamps in the workload's folder, which are replayed at the rate."
    )

    @model_validator(mode="after")
    def _has_the_keys_of_its_process(self) -> Self:
        needs = PROCESS_KEYS[self.process]
        has = tuple(key for key in ("cv", "dispersion", "burst_s", "pause_s", "file") if getattr(self, key) is not None)
        if set(has) != set(needs):
            raise ValueError(
                f"process: '{self.process}' needs {' and '.join(needs) or 'no other key'}, and got "
                f"{' and '.join(has) or 'none'}."
            )
        return self

    @property
    def text(self) -> str:
        """Returns the process in words, such as "gamma arrivals (cv 2)"."""
        values = {key: getattr(self, key) for key in PROCESS_KEYS[self.process]}
        details = ", ".join(f"{key} {value if key == 'file' else f'{value:.3g}'}" for key, value in values.items())
        name = "Poisson" if self.process == "poisson" else self.process
        return f"{name} arrivals ({details})" if details else f"{name} arrivals"


POISSON = ArrivalProcess()


class LatencyObjective(Document):
    percentile: Percentile
    model_latency_ms: PositiveFloat
    overhead_latency_ms: PositiveFloat = Field(
        default=50.0, description="Alarm limit of what SageMaker adds around the container, on average."
    )
    max_error_rate: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.001, description="Alarm limit of the share of requests that fail."
    )
    peak_invocations_per_minute: PositiveInt
    trough_invocations_per_minute: Annotated[int, Field(ge=0)] = Field(
        default=0, description="The quietest hour; the fleet never scales in below what it needs."
    )
    rows_per_invocation: PositiveInt = Field(
        default=1,
        description="Rows of every request, in tests as in production. Rates, counts and costs are of invocations.",
    )
    payload_format: Literal["json", "binary"] = Field(
        default="json", description="KServe's form of every request, in tests as in production."
    )
    arrivals: ArrivalProcess = POISSON

    @property
    def peak(self) -> str:
        """Returns the peak in words."""
        of = f" of {self.rows_per_invocation} rows" if self.rows_per_invocation > 1 else ""
        form = " in KServe's binary form" if self.payload_format == "binary" else ""
        return f"{self.peak_invocations_per_minute:,} invocations/min{of}{form}"

    @property
    def percentile_rank(self) -> float:
        """Returns 99.0 for P99."""
        return float(self.percentile[1:])

    @model_validator(mode="after")
    def _trough_below_peak(self) -> Self:
        if self.trough_invocations_per_minute > self.peak_invocations_per_minute:
            raise ValueError(
                f"trough_invocations_per_minute {self.trough_invocations_per_minute} exceeds "
                f"peak_invocations_per_minute {self.peak_invocations_per_minute}."
            )
        return self


class TargetObjective(Document):
    """`[targets.NAME.objective]`: keys that replace those of `[objective]` if the workload is hosted on that target.

    `rows_per_invocation` and `payload_format` are not among them: requests are the same on every target.
    """

    percentile: Percentile | None = None
    model_latency_ms: PositiveFloat | None = None
    overhead_latency_ms: PositiveFloat | None = None
    max_error_rate: Annotated[float, Field(gt=0, lt=1)] | None = None
    peak_invocations_per_minute: PositiveInt | None = None
    trough_invocations_per_minute: Annotated[int, Field(ge=0)] | None = None

    def in_place_of(self, objective: LatencyObjective) -> LatencyObjective:
        """Raises `ValidationError` if the keys of both do not fit together."""
        return LatencyObjective(**(objective.model_dump() | self.model_dump(exclude_none=True)))


class ThroughputObjective(Document):
    """The objective of a batch, which all its workers reach together."""

    rows_per_second: PositiveFloat


def _kind(value: Any) -> str:
    throughput = isinstance(value, ThroughputObjective) or (isinstance(value, dict) and "rows_per_second" in value)
    return "ThroughputObjective" if throughput else "LatencyObjective"


Objective = Annotated[
    Annotated[LatencyObjective, Tag("LatencyObjective")] | Annotated[ThroughputObjective, Tag("ThroughputObjective")],
    Discriminator(_kind),
]


class Sizing(Document):
    headroom: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.2, description="Capacity above the peak, as a fraction of the peak."
    )
    safety_factor: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5, description="Share of an instance's capacity at which autoscaling adds another."
    )
    min_instances: PositiveInt = 1
    burst_factor: Annotated[float, Field(ge=1, le=100)] = Field(
        default=1.0, description="What the peak is multiplied by for bursts that end before autoscaling can answer."
    )
    spare_instances: Annotated[int, Field(ge=0, le=100)] = Field(
        default=0, description="How many instances may fail and the rest still bear the load; N+1 is 1."
    )
    availability_zones: Annotated[int, Field(ge=2, le=6)] | None = Field(
        default=None, description="Zones of which one may fail and the rest still bear the load; None asks for none."
    )
