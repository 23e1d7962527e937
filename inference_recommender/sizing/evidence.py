"""Sizes a fleet from evidence: the folder of a run or an experiment, or a job's description.

A job's description is a response of DescribeInferenceRecommendationsJob as boto3 or the AWS CLI prints it. NaN,
infinite, null and absent numbers are None. Its ModelLatency is in milliseconds today, but in microseconds in the
developer guide's sample. It is read as microseconds only if one of its latencies is above the timeout of an invocation.
If milliseconds would mean an unlikely number of concurrent requests, a caution asks the user to check.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inference_recommender.measurement import Measurement, latency_unit, local_caution, measurements
from inference_recommender.run_folder import RunFolder, read_json
from inference_recommender.sizing.decision import cheapest, size_candidates
from inference_recommender.sizing.fleet import Demand
from inference_recommender.sizing.prices import PriceList
from workloads import Candidate, Sizing, UsageError, Workload, WorkloadFolder, load_workload
from workloads.folder import table_with_settings

ON_EXISTING = (
    "The response does not name the instances of the existing endpoint. Its capacity counts as that of one instance."
)
UNFINISHED = "The job's Status is {status}: untested configurations are missing, and its rates may be too low."
RESULTS = ("EndpointPerformances", "InferenceRecommendations")
LONGEST_INVOCATION_MS = 60_000
"""The timeout of InvokeEndpoint: a larger latency must be in µs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Measurements and their origin."""

    measured: tuple[Measurement, ...]
    region: str | None = None
    """The region whose prices the measurements may hold."""
    job_limit_per_minute: int | None = None
    workload: Workload | None = None
    """The workload that was measured; None for a job's description."""
    cautions: tuple[str, ...] = ()
    """Sentences that a user should read before trusting the result."""

    def candidates(
        self, demand: Demand, sizing: Sizing, region: str | None = None, price_list: PriceList = "sagemaker"
    ) -> tuple[Candidate, ...]:
        """Judges and sizes every measurement, with the prices of `region`, by default the job's."""
        limit = self.job_limit_per_minute
        return size_candidates(self.measured, demand, sizing, limit, self.region, region, price_list)


@dataclass(frozen=True, kw_only=True, slots=True)
class SizedFleet:
    """Sized candidates for a demand, and the cheapest that meets the objective, if there is one."""

    demand: Demand
    candidates: tuple[Candidate, ...]
    recommended: Candidate | None
    cautions: tuple[str, ...]


def size(
    evidence: str | Path,
    *,
    workload: str | WorkloadFolder | None = None,
    peak_invocations_per_minute: float | None = None,
    latency_limit_ms: float | None = None,
    percentile: str | None = None,
    settings: Sequence[str] = (),
    region: str | None = None,
    prices: PriceList = "sagemaker",
) -> SizedFleet:
    """Sizes a fleet as the command `size` does, without AWS. Returns candidates and the cheapest that suffices.

    `evidence` is the folder of a run or an experiment, or a file with the JSON of DescribeInferenceRecommendationsJob.
    Objective and [sizing] are those of `workload`, by default those in the folder. A peak, or a latency limit at a
    `percentile` such as "P99", replaces the objective's. `settings` are as in --set: "sizing.headroom=0.3". Raises
    `workloads.UsageError`.
    """
    read = read_evidence(Path(evidence))
    measured = read.workload
    if workload is not None and latency_limit_ms is not None:
        raise UsageError("--latency-limit-ms, --workload: both give the objective. Leave one out.")
    if workload is not None:
        folder = load_workload(workload) if isinstance(workload, str) else workload
        measured = folder.measured_on(measured.hosting.target if measured else None).workload
    demand = Demand.of(measured.latency_objective) if measured else None
    peak = peak_invocations_per_minute or (demand.peak_invocations_per_minute if demand else None)
    if peak is None:
        raise UsageError("--peak-invocations-per-minute: is missing. Give it, or --workload NAME for its objective.")
    demand = demand or Demand(peak_invocations_per_minute=peak)
    trough = min(demand.trough_invocations_per_minute, peak)
    demand = replace(demand, peak_invocations_per_minute=peak, trough_invocations_per_minute=trough)
    if latency_limit_ms is not None:
        demand = replace(demand, percentile=percentile or demand.percentile, model_latency_ms=latency_limit_ms)
    sizing = table_with_settings(settings, "sizing", measured.sizing if measured else Sizing())
    candidates = read.candidates(demand, sizing, region, prices)
    return SizedFleet(demand=demand, candidates=candidates, recommended=cheapest(candidates), cautions=read.cautions)


def read_evidence(path: Path) -> Evidence:
    """Reads a folder or a file. Raises `UsageError`, `NoSuchRun` or `InvalidDocument`."""
    if path.is_dir():
        return _from_folder(path)
    try:
        return described_job(path, path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}. Allowed: the JSON of DescribeInferenceRecommendationsJob, or the "
            "folder of a run or an experiment."
        ) from error


def _from_folder(path: Path) -> Evidence:
    """Reads a run's folder, or an experiment's, which keeps traffic, region and machine in two files of its own."""
    folder = RunFolder(path)
    workload = folder.workload()
    origin: Mapping[str, Any] = {}
    if (path / "experiment.json").exists():
        file = path / "origin.json"  # missing if the experiment has measured nothing yet
        origin = read_json(file, dict) if file.exists() else {}
        origin = {**origin, "traffic": read_json(path / "experiment.json", dict).get("traffic")}
    elif (path / "recommendation.json").exists():
        origin = dict(folder.recommendation().provenance)
    profile = workload.traffic.get(origin.get("traffic") or "")
    return Evidence(
        measured=folder.measurements(),
        region=origin.get("region"),
        job_limit_per_minute=profile.stop.max_invocations_per_minute if profile else None,
        workload=workload,
        cautions=local_caution(origin.get("measured_on"), origin.get("machine")),
    )


def described_job(file: Path, text: str) -> Evidence:
    """Reads a response's text. Raises `UsageError`, which names `file`."""
    try:
        response = _finite(json.loads(text))
        why = _why_unusable(response)
        if why is None:
            return _evidence_of(response)
    except json.JSONDecodeError as error:
        why = f"it is not JSON ({error}); boto3's response becomes JSON with json.dumps(response, default=str)"
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        why = f"it is damaged ({type(error).__name__}: {error})"
    raise UsageError(f"{file} is not a usable response of DescribeInferenceRecommendationsJob: {why}.")


def _why_unusable(response: Any) -> str | None:
    if not isinstance(response, dict):
        return f"it holds a {type(response).__name__}, not an object"
    if any(response.get(key) for key in RESULTS):
        return None
    status = f" Its Status is {response['Status']}." if "Status" in response else ""
    return f"it has no InferenceRecommendations.{status} {response.get('FailureReason', '')}".strip().removesuffix(".")


def _evidence_of(response: Mapping[str, Any]) -> Evidence:
    results = [(key, each) for key in RESULTS for each in response.get(key) or ()]
    measured = tuple(_measurement(key, each) for key, each in results)
    in_us = any((each.model_latency_ms or 0) > LONGEST_INVOCATION_MS for each in measured)
    arn, status = str(response.get("JobArn", "")).split(":"), response.get("Status")
    limit = response.get("StoppingConditions", {}).get("MaxInvocations")
    if not isinstance(limit, int | None):
        raise TypeError(f"MaxInvocations is {limit!r}")
    cautions = [] if status in (None, "COMPLETED") else [UNFINISHED.format(status=status)]
    cautions += [ON_EXISTING] if response.get("EndpointPerformances") else []
    cautions += [] if in_us else [doubt for each in measured if (doubt := _doubt(each))]
    return Evidence(
        measured=tuple(_in_ms(each) for each in measured) if in_us else measured,
        region=arn[3] if len(arn) > 3 and arn[3] else None,
        job_limit_per_minute=limit,
        cautions=tuple(cautions),
    )


def _finite(value: Any) -> Any:
    """Removes null and numbers that are not finite, which AWS's JSON writes as literals or as text."""
    match value:
        case dict():
            return {key: known for key, inner in value.items() if (known := _finite(inner)) is not None}
        case list():
            return [known for inner in value if (known := _finite(inner)) is not None]
        case "NaN" | "Infinity" | "-Infinity":
            return None
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _measurement(key: str, result: Mapping[str, Any]) -> Measurement:
    """Reads one result. Its variant is the inference specification, which the user chose, or the production variant."""
    (measured,) = measurements({key: [{"Metrics": {}, "EndpointInfo": {}, **result}]}, [], {})
    latency = result.get("Metrics", {}).get("ModelLatency")
    named = result.get("ModelConfiguration", {}).get("InferenceSpecificationName")
    variant = named or result.get("EndpointConfiguration", {}).get("VariantName")
    if not isinstance(variant, str | None):
        raise TypeError(f"VariantName is {variant!r}")
    unit = {"model_latency_ms": latency, "model_latency_unit": "ms"}
    return measured.model_copy(update={"variant": variant, **unit})


def _in_ms(measured: Measurement) -> Measurement:
    latency = measured.model_latency_ms
    converted = None if latency is None else latency / 1000
    return measured.model_copy(update={"model_latency_ms": converted, "model_latency_unit": "µs"})


def _doubt(measured: Measurement) -> str | None:
    """Returns a caution if milliseconds would mean an unlikely number of concurrent requests."""
    if latency_unit(measured.model_latency_ms, measured.closed_loop_invocations_per_minute, {}) == "ms":
        return None
    rate, latency = measured.closed_loop_invocations_per_minute or 0, measured.model_latency_ms or 0
    return (
        f"{measured.instance_type}: {latency:g} ms at {rate:,.0f} invocations/min means "
        f"{rate / 60 * latency / 1000:,.0f} concurrent requests. If the job had fewer users, its ModelLatency is in µs."
    )
