"""Evidence to size a fleet from: the folder of a run or an experiment, or a job's description.

A job's description is a response of DescribeInferenceRecommendationsJob as boto3 or the AWS CLI prints it. NaN,
infinite, null and absent numbers are None. Its ModelLatency is in milliseconds today, but in microseconds in the
developer guide's sample. It is read as microseconds only if one of its latencies is above the timeout of an invocation.
If milliseconds would mean an unlikely number of concurrent requests, a caution asks the user to check.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError

from inference_recommender.measurement import Measurement, latency_unit, measurements
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.decision import Evidence
from workloads import UsageError
from workloads.errors import InvalidDocument

ON_EXISTING = (
    "The response does not name the instances of the existing endpoint. Its capacity counts as that of one instance."
)

LONGEST_INVOCATION_MS = 60_000
"""The timeout of InvokeEndpoint: a larger latency must be in µs."""


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
        origin = {**_json(path / "origin.json"), "traffic": _json(path / "experiment.json").get("traffic")}
    elif (path / "recommendation.json").exists():
        origin = dict(folder.recommendation().provenance)
    profile = workload.traffic.get(origin.get("traffic") or "")
    return Evidence(
        measured=folder.measurements(),
        region=origin.get("region"),
        job_limit_per_minute=profile.stop.max_invocations_per_minute if profile else None,
        workload=workload,
        cautions=_locality(origin.get("measured_on"), origin.get("machine")),
    )


def _locality(measured_on: str | None, machine: str | None) -> tuple[str, ...]:
    return (f"Measured on this machine ({machine}), not on SageMaker.",) if measured_on == "local" else ()


def _json(file: Path) -> dict[str, Any]:
    """Returns an empty object if the file is missing, because the experiment has measured nothing yet."""
    try:
        return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(file, [f"cannot be read: {error}"]) from error


def _finite(value: Any) -> Any:
    """AWS's JSON writes NaN both as a literal and as text."""
    number = float(value) if value in ("NaN", "Infinity", "-Infinity") else value
    return None if isinstance(number, float) and not math.isfinite(number) else value


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


class _Stopping(BaseModel):
    MaxInvocations: int | None = None


class _Response(BaseModel):
    JobArn: str | None = None
    Status: str | None = None
    FailureReason: str | None = None
    StoppingConditions: _Stopping = _Stopping()
    InferenceRecommendations: tuple[_Recommendation, ...] = ()
    EndpointPerformances: tuple[_Performance, ...] = ()


_KEYS = {_Recommendation: "InferenceRecommendations", _Performance: "EndpointPerformances"}


def described_job(file: Path, text: str) -> Evidence:
    """Reads a response's text. Raises `UsageError`, which names `file`."""
    response = _response(file, text)
    if not response.InferenceRecommendations and not response.EndpointPerformances:
        raise _not_a_description(file, _why_empty(response))
    results: list[_Recommendation | _Performance] = [*response.EndpointPerformances]
    results += response.InferenceRecommendations
    in_us = any((result.Metrics.ModelLatency or 0) > LONGEST_INVOCATION_MS for result in results)
    measured = tuple(_measurement(result, in_us) for result in results)
    return Evidence(
        measured=measured,
        region=_region(response.JobArn),
        job_limit_per_minute=response.StoppingConditions.MaxInvocations,
        cautions=(
            *_unfinished(response.Status),
            *((ON_EXISTING,) if response.EndpointPerformances else ()),
            *(_doubt(measurement) for measurement in measured if _is_doubtful(measurement)),
        ),
    )


def _not_a_description(file: Path, why: str) -> UsageError:
    return UsageError(f"{file} is not a usable response of DescribeInferenceRecommendationsJob: {why}.")


def _unfinished(status: str | None) -> tuple[str, ...]:
    if status in (None, "COMPLETED"):
        return ()
    return (f"The job's Status is {status}: untested configurations are missing, and its rates may be too low.",)


def _response(file: Path, text: str) -> _Response:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "; boto3's response becomes JSON with json.dumps(response, default=str)"
        raise _not_a_description(file, f"it is not JSON ({error}){hint}") from error
    if not isinstance(document, dict):
        raise _not_a_description(file, f"it holds a {type(document).__name__}, not an object")
    try:
        return _Response.model_validate(_without_nulls(document))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        got = "" if problem["type"] == "missing" else f", got {json.dumps(problem['input'], default=str)[:80]}"
        raise _not_a_description(file, f"{key}: {problem['msg']}{got}") from error


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


def _measurement(result: _Recommendation | _Performance, in_us: bool) -> Measurement:
    plain = result.model_dump(exclude_none=True)
    latency = plain["Metrics"].pop("ModelLatency", None)
    (measured,) = measurements({_KEYS[type(result)]: [plain]}, [], {})
    return measured.model_copy(
        update={
            "variant": _variant(result),
            "model_latency_ms": latency / 1000 if latency is not None and in_us else latency,
            "model_latency_unit": "µs" if in_us else "ms",
        }
    )


def _variant(result: _Recommendation | _Performance) -> str | None:
    """Returns the name of the inference specification, or else of the production variant."""
    if isinstance(result, _Performance):
        return None
    return result.ModelConfiguration.InferenceSpecificationName or result.EndpointConfiguration.VariantName


def _is_doubtful(measured: Measurement) -> bool:
    reported = measured.model_latency_ms if measured.model_latency_unit == "ms" else None
    return latency_unit(reported, measured.max_invocations_per_minute, {}) == "µs"


def _doubt(measured: Measurement) -> str:
    rate, latency = measured.max_invocations_per_minute or 0, measured.model_latency_ms or 0
    users = rate / 60 * latency / 1000
    return (
        f"{measured.instance_type}: {latency:g} ms at {rate:,.0f} invocations/min means "
        f"{users:,.0f} concurrent requests. If the job had fewer users, its ModelLatency is in µs."
    )


def _region(arn: str | None) -> str | None:
    """Returns the region in arn:aws:sagemaker:REGION:ACCOUNT:…"""
    parts = (arn or "").split(":")
    return parts[3] if len(parts) > 3 and parts[3] else None
