"""A DescribeInferenceRecommendationsJob response from a file, as boto3 or the AWS CLI prints it, read into evidence.

Pure: text in, values out. Of the response only what sizing needs is looked at: other keys may be there or not, times
may be text or numbers. A number that is NaN, infinite, null or absent is None. An existing endpoint's result does not
say on what the endpoint runs: its capacity counts as one instance's, and the evidence says so.

ModelLatency is in milliseconds today; the developer guide's own sample is in microseconds. A response is read as in
microseconds only where one of its latencies cannot be anything else, because an invocation ends after a minute; each
measurement then says so. Where milliseconds would mean more requests under way than a job is likely to have, a caution
does.
"""

import json
import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError

from inference_recommender.errors import NotADescription
from inference_recommender.measurement import Measurement, latency_unit, measurements
from inference_recommender.sizing.evidence import Evidence


def _finite(value: Any) -> Any:
    """AWS's JSON has NaN both as a literal and as a text."""
    number = float(value) if value in ("NaN", "Infinity", "-Infinity") else value
    return None if isinstance(number, float) and not math.isfinite(number) else value


ON_EXISTING = (
    "The response does not say on which instances the existing endpoint runs: its capacity is taken for one instance's."
)

LONGEST_INVOCATION_MS = 60_000
"""After which SageMaker gives a container up: a latency above it is in µs."""

Number = Annotated[float | None, BeforeValidator(_finite)]


class _Metrics(BaseModel):
    CostPerHour: Number = None
    MaxInvocations: Number = None
    MaximumInvocations: Number = None
    ModelLatency: Number = None
    CpuUtilization: Number = None
    MemoryUtilization: Number = None


class _Endpoint(BaseModel):
    EndpointName: str = "unknown"
    VariantName: str | None = None
    InstanceType: str | None = None
    InitialInstanceCount: Annotated[int | None, BeforeValidator(_finite)] = None
    ServerlessConfig: dict[str, Any] | None = None


class _Parameter(BaseModel):
    Key: str
    Value: str


class _Model(BaseModel):
    InferenceSpecificationName: str | None = None
    EnvironmentParameters: tuple[_Parameter, ...] = ()


class _Recommendation(BaseModel):
    Metrics: _Metrics = _Metrics()
    EndpointConfiguration: _Endpoint
    ModelConfiguration: _Model = _Model()


class _Info(BaseModel):
    EndpointName: str | None = None


class _Performance(BaseModel):
    Metrics: _Metrics = _Metrics()
    EndpointInfo: _Info = _Info()


class _Threshold(BaseModel):
    Percentile: str


class _Stopping(BaseModel):
    MaxInvocations: int | None = None
    ModelLatencyThresholds: tuple[_Threshold, ...] = ()


class _Response(BaseModel):
    JobArn: str | None = None
    Status: str | None = None
    FailureReason: str | None = None
    StoppingConditions: _Stopping = _Stopping()
    InferenceRecommendations: tuple[_Recommendation, ...] = ()
    EndpointPerformances: tuple[_Performance, ...] = ()


KEYS = {_Recommendation: "InferenceRecommendations", _Performance: "EndpointPerformances"}


def described_job(file: Path, text: str) -> Evidence:
    """Raises `NotADescription` in a sentence about `file`."""
    response = _response(file, text)
    if not response.InferenceRecommendations and not response.EndpointPerformances:
        raise NotADescription(file, _why_empty(response))
    results: list[_Recommendation | _Performance] = [*response.EndpointPerformances]
    results += response.InferenceRecommendations
    in_us = any((one.Metrics.ModelLatency or 0) > LONGEST_INVOCATION_MS for one in results)
    measured = tuple(_measurement(one, in_us) for one in results)
    thresholds = response.StoppingConditions.ModelLatencyThresholds
    return Evidence(
        measured=measured,
        region=_region(response.JobArn),
        percentile=thresholds[0].Percentile if thresholds else None,
        job_limit_per_minute=response.StoppingConditions.MaxInvocations,
        cautions=(
            *_unfinished(response.Status),
            *((ON_EXISTING,) if response.EndpointPerformances else ()),
            *(_doubt(one) for one in measured if _is_doubtful(one)),
        ),
    )


def _unfinished(status: str | None) -> tuple[str, ...]:
    if status in (None, "COMPLETED"):
        return ()
    return (f"The job's Status is {status}: what it had not tested by then is missing, and its rates may be too low.",)


def _response(file: Path, text: str) -> _Response:
    try:
        document = json.loads(text)
    except ValueError as error:
        hint = "; boto3's response becomes JSON with json.dumps(response, default=str)"
        raise NotADescription(file, f"it is not JSON ({error}){hint}") from error
    if not isinstance(document, dict):
        raise NotADescription(file, f"it holds a {type(document).__name__}, not an object")
    try:
        return _Response.model_validate(_without_nulls(document))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        got = "" if problem["type"] == "missing" else f", got {json.dumps(problem['input'], default=str)[:80]}"
        raise NotADescription(file, f"{key}: {problem['msg']}{got}") from error


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
        case list():
            return [_without_nulls(inner) for inner in value]
        case _:
            return value


def _why_empty(response: _Response) -> str:
    status = f" Its Status is {response.Status}." if response.Status else ""
    reason = f" {response.FailureReason}" if response.FailureReason else ""
    return f"it has no InferenceRecommendations.{status}{reason}".removesuffix(".")


def _measurement(one: _Recommendation | _Performance, in_us: bool) -> Measurement:
    plain = one.model_dump(exclude_none=True)
    latency = plain["Metrics"].pop("ModelLatency", None)
    (measured,) = measurements({KEYS[type(one)]: [plain]}, [], {})
    return measured.model_copy(
        update={
            "variant": _variant(one),
            "model_latency_ms": latency / 1000 if latency is not None and in_us else latency,
            "model_latency_unit": "µs" if in_us else "ms",
        }
    )


def _variant(one: _Recommendation | _Performance) -> str | None:
    """The inference specification's name, which people choose; else the production variant's."""
    if isinstance(one, _Performance):
        return None
    return one.ModelConfiguration.InferenceSpecificationName or one.EndpointConfiguration.VariantName


def _is_doubtful(one: Measurement) -> bool:
    reported = one.model_latency_ms if one.model_latency_unit == "ms" else None
    return latency_unit(reported, one.max_invocations_per_minute, {}) == "µs"


def _doubt(one: Measurement) -> str:
    rate, latency = one.max_invocations_per_minute or 0, one.model_latency_ms or 0
    users = rate / 60 * latency / 1000
    return (
        f"{one.instance_type}: {latency:g} ms at {rate:,.0f} invocations/min means "
        f"{users:,.0f} requests under way at once. If the job had not as many users, its ModelLatency is in µs."
    )


def _region(arn: str | None) -> str | None:
    """arn:aws:sagemaker:REGION:ACCOUNT:…"""
    parts = (arn or "").split(":")
    return parts[3] if len(parts) > 3 and parts[3] else None
