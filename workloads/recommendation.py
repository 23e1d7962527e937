"""`recommendation.json`: measurements and the decision from them. CDK copies its numbers and does no arithmetic.

An endpoint's or a service's is a `Recommendation`. A batch's is a `BatchRecommendation`: rows a second of an instance,
the shards for the objective, and what a run costs; a baseline's rate may be `stated`, with the document that states it.
"""

from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from workloads.artifact import Sha256
from workloads.document import Document, PositiveFloat, PositiveInt
from workloads.hosting import Cooldown, ScheduledMinimum
from workloads.objective import LatencyObjective, Percentile, ThroughputObjective

CapacityBasis = Literal["open-loop", "estimate", "closed-loop"]
"""How a capacity was measured: by an open-loop search, by the estimate from closed-loop periods, or as the closed-loop
rate itself, which is often too high for callers who do not wait for answers."""


class LatencyPercentiles(Document):
    """Model latency in milliseconds over the whole test; None where it was not reported."""

    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


class SimulatedOn(Document):
    """The traffic that `simulate --optimise` chose a policy for, and what it found there."""

    trace: str = Field(description="A file's name, or a shape's.")
    trace_sha256: str
    seeds: int = Field(ge=1)
    first_seed: int = Field(ge=0)
    confirmed_on_seeds: int = Field(default=0, ge=0, description="Seeds beside those.")
    failed_confirming_seeds: int = Field(default=0, ge=0, description="Those with over half the tolerated minutes.")
    first_confirming_seed: int | None = Field(default=None, ge=0)
    tolerance_minutes: float = Field(ge=0, description="Over the objective, in a month.")
    confidence: float = Field(gt=0, lt=1, description="The share of seeds that keep the tolerance.")
    minutes_over_objective: float = Field(description="That so large a share of seeds does not exceed.")
    instance_hours: float = Field(description="Mean over seeds, for the length of the trace.")
    instance_hours_before: float = Field(description="The same of the policy that it replaced.")
    kept_before: bool = Field(description="Whether that one kept the tolerance.")


class Autoscaling(Document):
    """Target tracking. What only `simulate --optimise` chooses is None or empty elsewhere."""

    min_capacity: int = Field(ge=1)
    max_capacity: int = Field(ge=1)
    target_invocations_per_instance: float = Field(gt=0, description="Per minute, as SageMaker's metric counts.")
    target_share: float | None = Field(
        default=None,
        gt=0,
        description="The target as a share of the capacity, for tracking of the CPU; None: the safety factor.",
    )
    scale_out_cooldown_s: Cooldown | None = Field(default=None, description="None: that of the hosting.")
    scale_in_cooldown_s: Cooldown | None = Field(default=None, description="None: that of the hosting.")
    scheduled_minimums: tuple[ScheduledMinimum, ...] = Field(default=(), description="Beside those of the hosting.")
    simulated: SimulatedOn | None = Field(default=None, description="What the numbers were chosen on; None: by sizing.")

    @model_validator(mode="after")
    def _minimum_below_maximum(self) -> Self:
        if self.min_capacity > self.max_capacity:
            raise ValueError(f"min_capacity {self.min_capacity} exceeds max_capacity {self.max_capacity}.")
        if high := [each for each in self.scheduled_minimums if each.min_capacity > self.max_capacity]:
            raise ValueError(
                f"scheduled_minimums: min_capacity {high[0].min_capacity} exceeds max_capacity {self.max_capacity}."
            )
        return self


class ScalingAdvice(Document):
    """The answer of GetScalingConfigurationRecommendation for a tested configuration: AWS's own policy, beside ours. It
    is asked for the objective's trough and peak; it knows no latency objective.
    """

    min_capacity: int | None = None
    max_capacity: int | None = None
    metric: str | None = Field(default=None, description="That its target tracking follows.")
    target_value: float | None = None
    invocations_per_instance: int | None = Field(default=None, description="Per minute.")
    model_latency: int | None = Field(default=None, description="Of no documented unit and percentile.")
    reason: str | None = Field(default=None, description="Why there is no answer.")


class MeasuredConfiguration(Document):
    """A tested configuration and the test's figures, per instance."""

    instance_type: str
    variant: str | None = Field(default=None, description="The variant or target tested; None is the hosted one.")
    environment: dict[str, str] = {}
    closed_loop_invocations_per_minute: float | None = Field(
        default=None, description="The highest rate of the closed-loop test within its limits: a job's MaxInvocations."
    )
    closed_loop_invocations_interval: tuple[float, float] | None = Field(
        default=None, description="95 % confidence interval of that rate, where the time series allows one."
    )
    model_latency_ms: float | None = Field(default=None, description="The job's figure, of no documented percentile.")
    cpu_utilization_percent: float | None = None
    memory_utilization_percent: float | None = None
    warm_up_s: float | None = Field(default=None, description="How long the test warmed up; excluded from the rate.")
    client_latency_ms: dict[str, float] = Field(default={}, description="By percentile, from actual send.")
    client_latency_from_intended_ms: dict[str, float] = Field(
        default={},
        description="By percentile, from intended send. The generator, or a full set of connections, held requests "
        "back by the difference.",
    )
    scaling_advice: ScalingAdvice | None = Field(default=None, description="AWS's own; None: it was not asked.")

    @property
    def title(self) -> str:
        """Instance type, variant and environment, such as "ml.c5.xlarge cpu-int8 THREADS=2"."""
        settings = (f"{key}={value}" for key, value in sorted(self.environment.items()))
        return " ".join(filter(None, (self.instance_type, self.variant, *settings)))


class Candidate(MeasuredConfiguration):
    """A tested configuration that is judged and sized. All costs are for the sized fleet at the peak."""

    max_invocations_per_minute: float | None = Field(
        default=None, description="The capacity of an instance, which sizes the fleet."
    )
    max_invocations_interval: tuple[float, float] | None = Field(
        default=None, description="95 % confidence interval of that rate, where one could be computed."
    )
    capacity_basis: CapacityBasis = Field(default="closed-loop", description="How the capacity was measured.")
    poisson_invocations_per_minute: float | None = Field(
        default=None, description="Estimated capacity for Poisson arrivals; None if the workload's own are Poisson."
    )
    objective_latency_ms: float | None = Field(
        default=None,
        description="At that rate and the objective's percentile, by CloudWatch or our own records; None: unverified.",
    )
    model_latency_percentiles_ms: LatencyPercentiles = LatencyPercentiles()
    instance_count: int | None = None
    instance_count_parts: dict[str, int] = Field(
        default={}, description="The instances that the peak needs, and what each kind of headroom added to them."
    )
    autoscaling: Autoscaling | None = None
    cost_per_hour_usd: float | None = None
    cost_per_million_invocations_usd: float | None = None
    cost_reason: str | None = Field(default=None, description="Why a cost is unknown, or where its price is from.")
    meets_objective: bool
    verified: bool = Field(default=True, description="False: nothing shows whether the objective is kept.")
    reason: str


class Provenance(Document):
    measured_on: Literal["sagemaker", "local", "service"] = Field(
        description="Local: this machine stood in for the instance types. Service: a server at a URL, as it runs."
    )
    machine: str = Field(description="Instance types of the service, or what the local machine is.")
    job_name: str
    job_arn: str
    traffic: str
    percentile: Percentile
    measured_at: str = Field(description="Completion of the job, ISO 8601 in UTC.")
    region: str
    run: str = Field(description="The run folder, relative to the repository.")


ProofVerdict = Literal["kept", "missed", "unclear"]


class ProofScenario(Document):
    """One load of a proof: what the instances get that a fleet has left, and how they answered it."""

    name: Literal["peak", "instance-lost", "zone-lost"]
    instances_left: int = Field(ge=0, description="Of the recommended fleet.")
    asked: bool = Field(description="Whether the fleet was sized for it: always at the peak, a loss by [sizing].")
    invocations_per_minute: float | None = Field(description="Sent; None where no instance is left to send to.")
    verdict: ProofVerdict
    latency_ms: float | None = Field(
        description="From intended send, at the objective's percentile; None: unknown, or without an answer."
    )
    latency_interval_ms: tuple[float | None, float | None] = Field(
        description="95 % confidence interval, over all looks that were taken; None for an end that is not known."
    )
    requests: int = Field(default=0, ge=0)
    late: int | None = Field(default=None, ge=0, description="Over the limit. Failed requests count as late.")
    late_allowed: int | None = Field(default=None, ge=0, description="By the percentile, of that many requests.")
    errors: int = Field(default=0, ge=0, description="Failed or never answered; they count as late.")
    duration_s: float = Field(default=0.0, ge=0)
    rises: bool = Field(default=False, description="Whether the latency rises during the load.")


class Proof(Document):
    """The recommendation's verdict under open-loop arrivals. The first figures are the deciding scenario's."""

    verdict: ProofVerdict
    scenario: str = Field(description="The name of the scenario that decides.")
    invocations_per_minute: float | None
    percentile: Percentile
    latency_ms: float | None
    latency_interval_ms: tuple[float | None, float | None]
    limit_ms: float
    reason: str
    scenarios: tuple[ProofScenario, ...]
    not_tested: tuple[str, ...] = Field(default=(), description="Why a load was not sent, a sentence each.")
    instances: int = Field(ge=1, description="How many instances the requests were sent to.")
    instance_type: str
    archive_sha256: str | None = Field(description="Of the archive that served; None where nothing tells.")
    target: str = Field(description="The endpoint or the URL.")
    measured_on: Literal["sagemaker", "local", "service"]
    machine: str = Field(description="The machine that sent the requests.")
    measured_at: str = Field(description="End of the proof, ISO 8601 in UTC.")
    run: str = Field(description="The folder with every request, relative to the repository.")


class TokenCounts(Document):
    """The tokens of each payload, with special tokens. A percentile is the smallest count that covers its share."""

    mean: float
    p50: int
    p90: int
    p99: int
    maximum: int


class PayloadLengths(Document):
    """Lengths of the payloads for which a recommendation is valid."""

    payloads: int = Field(ge=1)
    max_input_tokens: int = Field(ge=1, description="The most that the model takes.")
    input_tokens: TokenCounts
    output_tokens: TokenCounts | None = Field(
        default=None, description="Of the answers; None: they were not counted, or the model writes no text."
    )


class Stages(Document):
    """Seconds of one start, stage after stage.

    None where the source cannot tell a stage; it is then within another one, or only in `total_s`.
    """

    provisioning_s: float | None = Field(
        default=None, description="Of AWS: from the request to the container's first line; instance, image and archive."
    )
    fetch_s: float | None = Field(default=None, description="The archive read from S3.")
    unpack_s: float | None = None
    start_s: float | None = Field(default=None, description="The server, until it begins to load a model.")
    load_s: float | None = Field(default=None, description="All models; with the warm-up where that is None.")
    warm_up_s: float | None = Field(default=None, description="The requests of model_warmup; 0: there are none.")
    first_answer_s: float | None = Field(
        default=None, description="From the loaded model: in service, then asked until an answer is within the limit."
    )
    total_s: float | None = Field(
        default=None, description="From the fetch, on AWS from the container's first line, to that answer."
    )


class ColdStart(Stages):
    """Seconds until a new server answers within the objective, each stage the median of all `starts`."""

    starts: int = Field(default=1, ge=1, description="How many servers were started.")
    ranges_s: dict[str, tuple[float, float]] = Field(
        default={}, description="Shortest and longest, by the field's name, where there were several."
    )
    measured_on: Literal["sagemaker", "local"]
    machine: str
    instance_type: str
    archive_sha256: str | None = Field(description="Of the archive that was started; None where nothing tells.")
    measured_at: str = Field(description="ISO 8601 in UTC.")


class Recommendation(Document):
    workload: str
    target: str
    archive_sha256: str
    objective: LatencyObjective
    recommended: Candidate | None = Field(description="The cheapest candidate that meets the objective, if any.")
    capacity_basis: CapacityBasis = Field(
        default="closed-loop", description="That of the recommended candidate, or of the first where there is none."
    )
    candidates: tuple[Candidate, ...]
    provenance: Provenance
    proof: Proof | None = Field(default=None, description="The last `prove` of it; measuring again drops it.")
    lengths: PayloadLengths | None = Field(
        default=None, description="Of the payloads that it is for; None: no tokenizer was at hand to count them."
    )
    cold_start: ColdStart | None = Field(
        default=None, description="Of the recommended configuration, or of the first; None: it was not measured."
    )


KnownBy = Literal["stack", "local", "stated"]
"""How a throughput is known: by the reports of a stack's run, by those of another machine, or from a document only."""


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
            raise ValueError("recommended.known_by: got 'stated', but a recommendation needs a measured rate.")
        return self
