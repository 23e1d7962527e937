"""Evidence to size a fleet from: measurements in a run's or an experiment's folder, what `capacity` found, or a job's
response in a file.

The file holds a response of DescribeInferenceRecommendationsJob as boto3 or the AWS CLI prints it. Only the keys that
sizing needs are read: others may be there or not, times may be text or numbers. A number that is NaN, infinite, null
or absent is None. The result of an existing endpoint does not say on which instances the endpoint runs: its capacity
counts as one instance's, and a caution says so.

ModelLatency is in milliseconds today; the sample in the developer guide is in microseconds. A response is read as
microseconds only where one of its latencies cannot be anything else, because SageMaker ends an invocation after a
minute; each measurement then says so. Where milliseconds would mean more concurrent requests than a job is likely to
have, a caution asks the user to check.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError

from inference_recommender.measurement import Measurement, latency_unit, measurements
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.open_loop import NAME, CapacityFound
from workloads import UsageError, Workload
from workloads.errors import InvalidDocument

ON_EXISTING = (
    "The response does not say on which instances the existing endpoint runs: its capacity is taken for one instance's."
)

LONGEST_INVOCATION_MS = 60_000
"""The timeout of InvokeEndpoint: a larger latency must be in µs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Measurements, and what is known about how they were made."""

    measured: tuple[Measurement, ...]
    region: str | None = None
    """The region whose prices the measurements may hold."""
    job_limit_per_minute: int | None = None
    workload: Workload | None = None
    """The workload that was measured, where the evidence is a folder of ours."""
    cautions: tuple[str, ...] = ()
    """Sentences that a user should read before trusting the result."""


def read_evidence(path: Path) -> Evidence:
    """Reads a folder or a file. Raises `UsageError`, `NoSuchRun` or `InvalidDocument`."""
    if path.is_dir():
        return _from_capacity(path / NAME, path) if (path / NAME).exists() else _from_folder(path)
    if path.name == NAME and path.exists():
        return _from_capacity(path, path.parent)
    try:
        return described_job(path, path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}. --from takes a response of DescribeInferenceRecommendationsJob in a "
            f"file, {NAME}, or the folder of a run, an experiment or a search."
        ) from error


def _from_folder(path: Path) -> Evidence:
    """An experiment's folder reads as a run's, but keeps its traffic, region and machine in files of its own."""
    folder = RunFolder(path)
    workload = folder.workload()
    traffic, region, machine = _experiment(path) if (path / "experiment.json").exists() else _run(folder)
    return Evidence(
        measured=folder.measurements(),
        region=region,
        job_limit_per_minute=_limit(workload, traffic),
        workload=workload,
        cautions=(f"Measured on this machine ({machine}), not on SageMaker.",) if machine else (),
    )


def _from_capacity(file: Path, folder: Path) -> Evidence:
    """Reads what `capacity` found, and the workload beside it, if it is there."""
    found = CapacityFound.from_json(file)
    return Evidence(
        measured=(found.measurement(),),
        workload=RunFolder(folder).workload() if (folder / "workload.json").exists() else None,
        cautions=(f"Measured on this machine ({found.machine}), not on SageMaker.",)
        if found.measured_on == "local"
        else (),
    )


def _run(folder: RunFolder) -> tuple[str | None, str | None, str | None]:
    """Returns traffic, region and the machine that stood in for SageMaker; None where the run came to no verdict."""
    if not (folder.path / "recommendation.json").exists():
        return None, None, None
    origin = folder.recommendation().provenance
    return origin.traffic, origin.region, origin.machine if origin.measured_on == "local" else None


def _experiment(path: Path) -> tuple[str | None, str | None, str | None]:
    """Returns the same of an experiment, from the files that `experiment.folder` writes."""
    plan, origin = _json(path / "experiment.json"), _json(path / "origin.json")
    return (
        plan.get("traffic"),
        origin.get("region"),
        origin.get("machine") if origin.get("measured_on") == "local" else None,
    )


def _json(file: Path) -> dict[str, Any]:
    """Returns an empty object where the file is missing, because the experiment has not come that far."""
    try:
        return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(file, [f"cannot be read: {error}"]) from error


def _limit(workload: Workload, traffic: str | None) -> int | None:
    profile = workload.traffic.get(traffic) if traffic else None
    return profile.stop.max_invocations_per_minute if profile else None


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
    """Reads a response's text. Raises `UsageError` with a sentence about `file`."""
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
    return UsageError(f"{file} is no response of DescribeInferenceRecommendationsJob that can be sized from: {why}.")


def _unfinished(status: str | None) -> tuple[str, ...]:
    if status in (None, "COMPLETED"):
        return ()
    return (f"The job's Status is {status}: what it had not tested by then is missing, and its rates may be too low.",)


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
    """Returns the inference specification's name, which the user chose, or else the production variant's."""
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
        f"{users:,.0f} requests under way at once. If the job had not as many users, its ModelLatency is in µs."
    )


def _region(arn: str | None) -> str | None:
    """Returns the region in arn:aws:sagemaker:REGION:ACCOUNT:…"""
    parts = (arn or "").split(":")
    return parts[3] if len(parts) > 3 and parts[3] else None
