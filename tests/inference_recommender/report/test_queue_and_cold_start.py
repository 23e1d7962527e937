"""The report draws waiting against computing by load, and says what that advises; it shows the stages of a start."""

import json
from typing import Any

import pytest

from inference_recommender.capacity.probe import Probe
from inference_recommender.capacity.rate import Capacity
from inference_recommender.capacity.server_times import ComputeTimes, ServerTimes
from inference_recommender.cli.report import report
from inference_recommender.measurement import Measurement
from inference_recommender.report.cold_start import in_words
from inference_recommender.report.page import page_of
from inference_recommender.report.queue import advice, queue_against_compute, queue_table
from inference_recommender.run_folder import RunFolder
from workloads import ColdStart, Workload, load_workload

WORKLOAD = load_workload("spellcheck").workload
COLD = ColdStart(
    fetch_s=0.001,
    unpack_s=0.02,
    start_s=0.6,
    load_s=2.4,
    warm_up_s=0.2,
    first_answer_s=0.1,
    total_s=3.321,
    starts=3,
    ranges_s={"load_s": (2.1, 2.9), "total_s": (3.0, 3.8)},
    measured_on="local",
    machine="two cores",
    instance_type="ml.c5.xlarge",
    archive_sha256="a" * 64,
    measured_at="2026-11-23T09:30:00+00:00",
)


def probe(rate: float, queue_ms: float, infer_ms: float, *, rows: float = 1.0, latency_ms: float = 20.0) -> Probe:
    times = ServerTimes(
        queue_ms=queue_ms,
        compute_ms=ComputeTimes(input=0.0, infer=infer_ms, output=0.0),
        requests=round(rate),
        rows_per_execution=rows,
    )
    return Probe(invocations_per_minute=rate, duration_s=60.0, latency_ms=latency_ms, late_share=0.0, server=times)


def measured(*probes: Probe) -> Measurement:
    searched = Capacity(
        invocations_per_minute=900.0, percentile="P99", limit_ms=50.0, reason="found", probes=tuple(probes)
    )
    return Measurement(
        instance_type="ml.c5.xlarge",
        endpoint_name="e",
        max_invocations_per_minute=None,
        model_latency_ms=None,
        open_loop=searched,
    )


def delayed(workload: Workload, delay_ms: float) -> Workload:
    """Returns the workload with a batcher that holds requests back for so long."""
    document: dict[str, Any] = workload.model_dump(mode="json")
    document["serving"]["max_queue_delay_ms"] = delay_ms
    for variant in document["variants"].values():
        variant["serving"]["max_queue_delay_ms"] = delay_ms
    return Workload.model_validate_json(json.dumps(document))


@pytest.mark.parametrize(
    ("probes", "delay_ms", "said"),
    [
        (
            (probe(60, 5.0, 4.0), probe(600, 5.0, 4.0)),
            5.0,
            "Even at 60 invocations/min a request waits 5 ms: try a smaller max_queue_delay_ms than 5.",
        ),
        (
            (probe(60, 0.0, 9.0), probe(600, 1.0, 9.0), probe(1200, 90.0, 9.0, latency_ms=130.0)),
            0.0,
            "At 600 invocations/min a request waits 1 of its 10 ms in Triton: computing takes the time, so a faster "
            "model (its target or precision) is what shortens it.",
        ),
        (
            (probe(60, 0.0, 4.0), probe(600, 12.0, 8.0)),
            0.0,
            "At 600 invocations/min a request waits 12 of its 20 ms in Triton, and computes 2.0 times as long as at "
            "60: the machine has nothing left, so a larger one or more of them help, and more instances of the model "
            "do not.",
        ),
        (
            (probe(60, 0.0, 4.0), probe(600, 12.0, 8.0, rows=4.0)),
            0.0,
            "At 600 invocations/min a request waits 12 of its 20 ms in Triton: it waits for a free instance of the "
            "model, so try more of them, or larger batches.",
        ),
        (
            (probe(600, 6.0, 4.0, latency_ms=90.0),),
            0.0,
            "At 600 invocations/min a request waits 6 of its 10 ms in Triton: it waits for a free instance of the "
            "model, so try more of them, or larger batches.",
        ),
    ],
    ids=["delay", "computing", "nothing left", "free instance", "one probe"],
)
def test_what_waiting_against_computing_advises(probes: tuple[Probe, ...], delay_ms: float, said: str) -> None:
    assert advice(delayed(WORKLOAD, delay_ms), measured(*probes)) == said


def test_the_table_has_a_row_for_each_load_the_lightest_first_and_the_plot_its_points() -> None:
    seen = [measured(probe(600, 12.0, 8.0), probe(60, 0.5, 4.0))]
    found = queue_table(WORKLOAD, seen)
    assert found is not None
    rows = [(row["invocations_per_minute"], row["queue_ms"], row["infer_ms"]) for row in found.rows]
    assert rows == [(60.0, 0.5, 4.0), (600.0, 12.0, 8.0)]
    assert found.note.startswith("Means of a request inside Triton, by its own counters;")
    assert found.note.endswith("and more instances of the model do not.")
    plot = queue_against_compute(seen)
    assert plot is not None
    assert "waiting,600.0,12.0" in plot.csv
    assert "together,60.0,4.5" in plot.csv


def test_where_no_server_told_there_is_neither() -> None:
    silent = measured(Probe(invocations_per_minute=60.0, duration_s=1.0, latency_ms=1.0, late_share=0.0))
    assert queue_table(WORKLOAD, [silent]) is None
    assert queue_against_compute([silent]) is None
    assert advice(WORKLOAD, silent) is None


def test_a_runs_report_shows_both_and_no_longer_says_that_they_were_not_measured(kept: RunFolder) -> None:
    told = report(kept.path)
    assert not {"queue", "cold-start"} & {table.name for table in told.tables}
    assert [each for each in told.not_tested if "was not measured" in each] == [
        "How long a new instance takes until it answers within the objective was not measured.",
        "How long requests waited in the server, beside computing, was not measured: SageMaker leads to none of "
        "Triton's counters.",
    ]
    first, *others = kept.measurements()
    searched = measured(probe(60, 0.5, 4.0), probe(600, 12.0, 8.0)).open_loop
    kept.keep_measurements((first.model_copy(update={"open_loop": searched}), *others))
    kept.keep_recommendation(kept.recommendation().model_copy(update={"cold_start": COLD}))
    told = report(kept.path)
    table = told.table("cold-start")
    assert table is not None
    assert table.rows[4] == {"stage": "models loaded", "seconds": 2.4, "shortest_s": 2.1, "longest_s": 2.9}
    assert not [each for each in told.not_tested if "was not measured" in each]
    page = page_of(kept)
    assert page.count("Waiting against computing") >= 2, "the table and the figure"
    assert "first answer within the objective" in page


def test_a_start_is_told_with_what_is_not_in_it() -> None:
    assert in_words(COLD) == (
        "A new server answers within the objective after 3.32 s: 3 starts of ml.c5.xlarge on two cores. An instance's "
        "own provisioning is not in it, and the archive came from this machine's memory."
    )
    on_aws = COLD.model_copy(
        update={
            "measured_on": "sagemaker",
            "machine": "SageMaker, asked from two cores",
            "starts": 1,
            "fetch_s": None,
            "warm_up_s": None,
            "total_s": None,
        }
    )
    assert in_words(on_aws) == (
        "No answer within the objective was timed in 1 start of ml.c5.xlarge on SageMaker, asked from two cores. The "
        "models' loading has their warm-up in it: the log is not verbose, and no counters were asked. SageMaker "
        "does not tell apart how the instance, the image and the archive came."
    )
