"""Measurements, job descriptions and batch reports for the tests of sizing."""

import json
from pathlib import Path
from typing import Any

from inference_recommender.capacity.time_series import Series
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.evidence import Evidence, described_job
from tests.inference_recommender.api import description, endpoint, recommendation

ARCHIVE, CPU_ARCHIVE = "a" * 64, "c" * 64
OF_USERS = "This is the rate of closed-loop users, who wait for their answers. Other callers may need more instances."


def measurement(rate: float | None = 13_000, latency: float | None = 42.0, **fields: object) -> Measurement:
    """Returns a job's figures: without a documented percentile or a time series."""
    members = {"instance_type": "ml.g5.xlarge", "closed_loop_invocations_per_minute": rate, "model_latency_ms": latency}
    return Measurement.model_validate({"endpoint_name": "e", **members, **fields})


def searched(rate: float | None = 13_000, **fields: object) -> Measurement:
    """Returns a measurement whose search found a rate of open arrivals."""
    search = {"invocations_per_minute": rate, "percentile": "P99", "limit_ms": 50, "latency_ms": 49.0, "reason": "why"}
    return measurement(18_000, open_loop={**search, **fields})


def watched(*minutes: tuple[float, float, float | None]) -> Series:
    """Returns CloudWatch's minutes: users, invocations, P99 of ModelLatency; a point more at either end is left out."""
    users, invocations, latencies = zip(minutes[0], *minutes, minutes[-1], strict=True)
    return Series(
        period_s=60,
        seconds=tuple(60.0 * number for number in range(len(users))),
        users=users,
        invocations=invocations,
        errors=(0.0,) * len(users),
        latency_ms={"p50": (5.0,) * len(users), "p99": latencies},
        model_latency_ms={"p99": latencies},
    )


def job_result(count: int = 1, instance_type: str = "ml.c5.xlarge", **metrics: Any) -> dict[str, Any]:
    return recommendation(Metrics=metrics, EndpointConfiguration=endpoint(instance_type=instance_type, count=count))


def job_text(*results: dict[str, Any], **keys: Any) -> str:
    """Returns a response as the AWS CLI prints it: times are text, NaN is a literal."""
    return json.dumps(description(InferenceRecommendations=results, **keys), default=str)


def job(*results: dict[str, Any], **keys: Any) -> Evidence:
    return described_job(Path("job.json"), job_text(*results, **keys))


def batch_report(file: Path, **changes: object) -> Path:
    """Writes the report of a shard on the stack: 100,000 rows at 4,000 per second, with `changes`."""
    rows = {"rows": 100_000, "answered": 100_000, "bad": 0, "bad_share": 0.0, "rows_per_second": 4000.0}
    values = {**rows, "load_seconds": 20.0, "archive_sha256": ARCHIVE, "stack": "DuplicatesStack"}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**values, **changes}))
    return file
