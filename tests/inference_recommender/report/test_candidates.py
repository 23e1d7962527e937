"""Sentences about a candidate, and of a cold start."""

import pytest

from inference_recommender.report.candidates import caveats, loss_text, rows_text
from inference_recommender.report.sections import cold_start_text
from tests.builders import a_cold_start
from workloads import Candidate, LatencyObjective


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
    "95 % interval: 1,000 to 1,234.",
    "Instances: 3 for the peak, plus headroom 1, spare_instances 2.",
    "Warm-up: 2.5 s, not counted.",
    "Client latency p99.9: 8 ms from send, 9.5 ms from intended send.",
)


@pytest.mark.parametrize(
    ("count", "capacity", "words"),
    [
        (3, 20_000.0, "The loss of one instance at the peak is covered."),
        (3, 14_000.0, "is not covered: 15,000/min for each of the others. sizing.spare_instances = 1 covers it."),
        (1, 40_000.0, "is not covered. sizing.spare_instances = 1 covers it."),
    ],
)
def test_a_sentence_states_whether_the_loss_of_an_instance_is_covered(count: int, capacity: float, words: str) -> None:
    objective = LatencyObjective(percentile="P99", model_latency_ms=50, peak_invocations_per_minute=30_000)
    assert words in loss_text(_candidate(instance_count=count, max_invocations_per_minute=capacity), objective)


def test_a_caveat_line_has_the_reason_and_names_a_price_source_only_without_a_price() -> None:
    assert caveats(INFORMED) == f"Keeps it. {' '.join(SAID)} Listed."
    assert "Listed." not in caveats(INFORMED.model_copy(update={"cost_per_hour_usd": 1.0}))
    zero = _candidate(warm_up_s=0.0, client_latency_ms={"p50": 1.0}, instance_count_parts={"peak": 3, "headroom": 0})
    assert caveats(_candidate()) == caveats(zero) == "Keeps it. Listed.", "unknown and zero figures are left out"


def test_requests_of_several_rows_have_their_figures_in_rows_too() -> None:
    objective = LatencyObjective(
        percentile="P99", model_latency_ms=50, peak_invocations_per_minute=30_000, rows_per_invocation=4
    )
    assert objective.peak == "30,000 invocations/min of 4 rows"
    binary = objective.model_copy(update={"payload_format": "binary"})
    assert binary.peak == "30,000 invocations/min of 4 rows in KServe's binary form"
    assert rows_text(objective, _candidate(max_invocations_per_minute=1_500.0)).endswith(
        "Capacity per instance: 100 rows/s."
    )
    assert rows_text(objective, None) == "Each invocation has 4 rows: the peak is 120,000 rows/min."
    assert rows_text(objective, _candidate(cost_per_million_invocations_usd=2.0)) == (
        "Each invocation has 4 rows: the peak is 120,000 rows/min, and a million rows cost 0.500 USD."
    )
    assert rows_text(objective.model_copy(update={"rows_per_invocation": 1}), INFORMED) == ""


def test_a_cold_start_in_words_names_what_it_does_not_include() -> None:
    assert cold_start_text(a_cold_start()) == (
        "A new server answers within the objective after 3.32 s: 3 starts of ml.c5.xlarge on two cores. Provisioning "
        "is not included, and the archive came from this machine's memory."
    )
    unknown = dict.fromkeys(("fetch_s", "warm_up_s", "total_s"))
    asked_from = "SageMaker, asked from two cores"
    on_aws = a_cold_start(measured_on="sagemaker", machine=asked_from, starts=1, **unknown)
    assert cold_start_text(on_aws) == (
        "No answer within the objective in 1 start of ml.c5.xlarge on SageMaker, asked from two cores. Loading "
        "includes the models' warm-up, because the server's log is not verbose. SageMaker does not report instance, "
        "image and archive separately."
    )
