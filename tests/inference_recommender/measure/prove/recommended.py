"""Recommendations to prove, and services that answer a probe in a known way."""

from typing import Any

import numpy as np
from inference_recommender.measure.target import Target

from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.capacity.search import SendProbe
from workloads import Autoscaling, Candidate, LatencyObjective, Provenance, Recommendation

OBJECTIVE = LatencyObjective(percentile="P90", model_latency_ms=50.0, peak_invocations_per_minute=12_000)
TARGET = Target(
    name="endpoint-1", instances=1, instance_type="ml.c5.xlarge", archive_sha256="a" * 64, measured_on="local"
)


def a_candidate(count: int | None = 10, capacity: float = 1500.0, **changes: Any) -> Candidate:
    members: dict[str, Any] = {
        "instance_type": "ml.c5.xlarge",
        "max_invocations_per_minute": capacity,
        "max_invocations_interval": (capacity * 0.95, capacity * 1.05),
        "instance_count": count,
        "autoscaling": Autoscaling(min_capacity=1, max_capacity=20, target_invocations_per_instance=capacity / 2),
        "meets_objective": True,
        "reason": "Keeps P90 model latency ≤ 50 ms.",
    }
    return Candidate(**{**members, **changes})


def a_recommendation(chosen: Candidate | None = None, **changes: Any) -> Recommendation:
    chosen = chosen or a_candidate()
    members: dict[str, Any] = {
        "workload": "spellcheck",
        "target": "cpu",
        "archive_sha256": "a" * 64,
        "objective": OBJECTIVE,
        "recommended": chosen,
        "candidates": (chosen,),
        "provenance": Provenance(
            measured_on="local",
            machine="a laptop with 2 cores",
            job_name="job-1",
            job_arn="arn",
            traffic="quick",
            percentile="P90",
            measured_at="2026-11-23T03:00:00+00:00",
            region="us-east-1",
            run="runs/job-1",
        ),
    }
    return Recommendation(**{**members, **changes})


def bearing(capacity_per_minute: float, seed: int = 0) -> SendProbe:
    """Returns a service of independent latencies, whose P90 is 50 ms at that rate and in proportion to it elsewhere."""
    random = np.random.default_rng(seed)

    def probe(rate_per_minute: float, duration_s: float) -> ProbeRecords:
        intended = np.sort(random.uniform(0, duration_s, random.poisson(rate_per_minute / 60 * duration_s)))
        mean = 50.0 / np.log(10) * rate_per_minute / capacity_per_minute
        return ProbeRecords(
            duration_s=duration_s, intended_s=intended, latencies_ms=random.exponential(mean, len(intended))
        )

    return probe
