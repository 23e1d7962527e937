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
from typing import Any

from inference_recommender.measurement import Measurement, latency_unit, local_caution, measurements
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.decision import Evidence
from workloads import UsageError
from workloads.errors import InvalidDocument

ON_EXISTING = (
    "The response does not name the instances of the existing endpoint. Its capacity counts as that of one instance."
)

UNFINISHED = "The job's Status is {status}: untested configurations are missing, and its rates may be too low."
RESULTS = ("EndpointPerformances", "InferenceRecommendations")
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
        cautions=local_caution(origin.get("measured_on"), origin.get("machine")),
    )


def _json(file: Path) -> dict[str, Any]:
    """Returns an empty object if the file is missing, because the experiment has measured nothing yet."""
    try:
        return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(file, [f"cannot be read: {error}"]) from error


def described_job(file: Path, text: str) -> Evidence:
    """Reads a response's text. Raises `UsageError`, which names `file`."""
    response = _response(file, text)
    try:
        return _evidence_of(file, response)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _not_a_description(file, f"it has an unexpected form ({error})") from error


def _evidence_of(file: Path, response: Mapping[str, Any]) -> Evidence:
    results = [(key, each) for key in RESULTS for each in response.get(key) or ()]
    if not results:
        raise _not_a_description(file, _why_empty(response))
    measured = [_measurement(file, key, each) for key, each in results]
    in_us = any((each.model_latency_ms or 0) > LONGEST_INVOCATION_MS for each in measured)
    arn, status = str(response.get("JobArn", "")).split(":"), response.get("Status")
    cautions = [] if status in (None, "COMPLETED") else [UNFINISHED.format(status=status)]
    cautions += [ON_EXISTING] if response.get("EndpointPerformances") else []
    cautions += [] if in_us else [_doubt(each) for each in measured if _is_doubtful(each)]
    return Evidence(
        measured=tuple(_in_ms(each) for each in measured) if in_us else tuple(measured),
        region=arn[3] if len(arn) > 3 and arn[3] else None,
        job_limit_per_minute=response.get("StoppingConditions", {}).get("MaxInvocations"),
        cautions=tuple(cautions),
    )


def _not_a_description(file: Path, why: str) -> UsageError:
    return UsageError(f"{file} is not a usable response of DescribeInferenceRecommendationsJob: {why}.")


def _response(file: Path, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "; boto3's response becomes JSON with json.dumps(response, default=str)"
        raise _not_a_description(file, f"it is not JSON ({error}){hint}") from error
    if not isinstance(document, dict):
        raise _not_a_description(file, f"it holds a {type(document).__name__}, not an object")
    return dict(_finite(document))


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


def _why_empty(response: Mapping[str, Any]) -> str:
    status = f" Its Status is {response['Status']}." if "Status" in response else ""
    return f"it has no InferenceRecommendations.{status} {response.get('FailureReason', '')}".strip().removesuffix(".")


def _measurement(file: Path, key: str, result: Mapping[str, Any]) -> Measurement:
    """Reads one result. Its variant is the inference specification, which the user chose, or the production variant."""
    try:
        (measured,) = measurements({key: [{"Metrics": {}, "EndpointInfo": {}, **result}]}, [], {})
        latency = result.get("Metrics", {}).get("ModelLatency")
        named = result.get("ModelConfiguration", {}).get("InferenceSpecificationName")
        variant = named or result.get("EndpointConfiguration", {}).get("VariantName")
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise _not_a_description(file, f"a result in {key} is damaged ({type(error).__name__}: {error})") from error
    unit = {"model_latency_ms": latency, "model_latency_unit": "ms"}
    return measured.model_copy(update={"variant": variant, **unit})


def _in_ms(measured: Measurement) -> Measurement:
    latency = measured.model_latency_ms
    converted = None if latency is None else latency / 1000
    return measured.model_copy(update={"model_latency_ms": converted, "model_latency_unit": "µs"})


def _is_doubtful(measured: Measurement) -> bool:
    return latency_unit(measured.model_latency_ms, measured.max_invocations_per_minute, {}) == "µs"


def _doubt(measured: Measurement) -> str:
    rate, latency = measured.max_invocations_per_minute or 0, measured.model_latency_ms or 0
    return (
        f"{measured.instance_type}: {latency:g} ms at {rate:,.0f} invocations/min means "
        f"{rate / 60 * latency / 1000:,.0f} concurrent requests. If the job had fewer users, its ModelLatency is in µs."
    )
