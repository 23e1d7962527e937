"""Queue time against compute time by load, and a cold start in words."""

from inference_recommender.capacity.probe import Probe
from inference_recommender.report.queue import queue_table
from inference_recommender.report.sections import cold_start_text
from tests.inference_recommender.report.builders import COLD_START, a_probe, a_searched_measurement


def test_the_table_has_a_row_for_each_load_the_lightest_first() -> None:
    found = queue_table([a_searched_measurement(a_probe(600, 12.0, 8.0), a_probe(60, 0.5, 4.0))])
    assert found is not None
    rows = [(row["invocations_per_minute"], row["queue_ms"], row["infer_ms"]) for row in found.rows]
    assert rows == [(60.0, 0.5, 4.0), (600.0, 12.0, 8.0)]
    silent = Probe(invocations_per_minute=60.0, duration_s=1.0, latency_ms=1.0, late_share=0.0)
    assert queue_table([a_searched_measurement(silent)]) is None


def test_a_cold_start_in_words_names_what_it_does_not_include() -> None:
    assert cold_start_text(COLD_START) == (
        "A new server answers within the objective after 3.32 s: 3 starts of ml.c5.xlarge on two cores. Provisioning "
        "is not included, and the archive came from this machine's memory."
    )
    on_aws = COLD_START.model_copy(
        update={
            "measured_on": "sagemaker",
            "machine": "SageMaker, asked from two cores",
            "starts": 1,
            "fetch_s": None,
            "warm_up_s": None,
            "total_s": None,
        }
    )
    assert cold_start_text(on_aws) == (
        "No answer within the objective in 1 start of ml.c5.xlarge on SageMaker, asked from two cores. Loading "
        "includes the models' warm-up, because the server's log is not verbose. SageMaker does not report instance, "
        "image and archive separately."
    )
