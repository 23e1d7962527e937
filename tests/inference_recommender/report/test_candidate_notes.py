"""What a candidate's notes say, and that the terminal says it too."""

import io

import pytest
from rich.console import Console

from inference_recommender.cli.terminal import show
from inference_recommender.report.candidate_notes import client_latencies, notes
from workloads import Candidate, LatencyObjective, Provenance, Recommendation


def _candidate(**keys: object) -> Candidate:
    bare = {"instance_type": "ml.c5.xlarge", "meets_objective": True, "reason": "Keeps it.", "cost_reason": "Listed."}
    return Candidate.model_validate({**bare, **keys})


INFORMED = _candidate(
    instance_count=6,
    instance_count_parts={"peak": 3, "burst_factor": 0, "headroom": 1, "spare_instances": 2},
    max_invocations_interval=(1_000.0, 1_234.5),
    warm_up_s=2.5,
    client_latency_ms={"p99.9": 8.0, "p50": 2.0},
    client_latency_from_intended_ms={"p50": 2.0, "p99.9": 9.5},
)
SAID = (
    "The rate's 95 % interval is 1,000 to 1,234.",
    "Of 6 instances the peak needs 3; added: headroom 1, spare_instances 2.",
    "It warmed up for 2.5 s, which do not count.",
    "Client latency p99.9: 8 ms from send, 9.5 ms from intended send.",
)


def test_what_is_known_is_said() -> None:
    assert notes(INFORMED) == SAID


@pytest.mark.parametrize(
    "bare",
    [
        _candidate(),
        _candidate(warm_up_s=0.0, client_latency_ms={"p50": 1.0}),
        _candidate(instance_count=3, instance_count_parts={"peak": 3, "headroom": 0}),
    ],
)
def test_what_is_not_known_or_nothing_is_not_said(bare: Candidate) -> None:
    assert notes(bare) == ()


def test_latencies_are_compared_at_each_percentile_measured_both_ways_lowest_first() -> None:
    assert [(one.percentile, one.difference_ms) for one in client_latencies(INFORMED)] == [("p50", 0), ("p99.9", 1.5)]


def test_the_terminal_says_them_after_the_reason() -> None:
    shown = io.StringIO()
    recommendation = Recommendation(
        workload="spellcheck",
        target="cpu",
        archive_sha256="0" * 64,
        objective=LatencyObjective(percentile="P99", model_latency_ms=50, peak_invocations_per_minute=30_000),
        recommended=INFORMED,
        candidates=(INFORMED,),
        provenance=Provenance(
            measured_on="sagemaker",
            machine="ml.c5.xlarge",
            job_name="j",
            job_arn="arn",
            traffic="quick",
            percentile="P99",
            measured_at="2026-11-21T12:02:00+00:00",
            region="us-east-1",
            run="runs/j",
        ),
    )
    show(recommendation, Console(file=shown, width=120))
    assert f"ml.c5.xlarge: Keeps it. {' '.join(SAID)} Listed.\n" in shown.getvalue()
