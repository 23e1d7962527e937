"""The result of an experiment: fleet and cost of each cell, the front, ratios to a baseline; table and page."""

import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from inference_recommender.experiment.cells import Cell
from inference_recommender.experiment.folder import Origin
from inference_recommender.experiment.page import page
from inference_recommender.experiment.plan import Experiment
from inference_recommender.experiment.result import Result, Row, pareto_front, result
from inference_recommender.experiment.terminal import show
from inference_recommender.measurement import Measurement
from workloads import Candidate, LatencyPercentiles, load_workload

WORKLOAD = load_workload("question_answering").workload
"""P99 ≤ 25 ms at 60,000 invocations per minute, headroom 20 %."""
PRICES = {"ml.inf1.xlarge": 0.3, "ml.inf1.6xlarge": 1.5}
ORIGIN = Origin(
    measured_on="local", machine="Some CPU with 2 cores", region="us-east-1", measured_at="2026-11-21T22:00:00+00:00"
)


def _measured(
    variant: str, instance_type: str, rate: float | None, latency_ms: float | None, **more: object
) -> Measurement:
    return Measurement.model_validate(
        {
            "instance_type": instance_type,
            "variant": variant,
            "endpoint_name": f"{variant}-{instance_type}",
            "max_invocations_per_minute": rate,
            "model_latency_ms": latency_ms,
            "percentile": "P99",
            "percentiles_ms": LatencyPercentiles(p50=3.0, p95=latency_ms and latency_ms - 1, p99=latency_ms),
            "price_per_hour_usd": PRICES.get(instance_type),
            **more,
        }
    )


DATA_PARALLEL = _measured("inf1-data-parallel", "ml.inf1.xlarge", 60_000.0, 9.0)
LARGE = _measured("inf1-data-parallel", "ml.inf1.6xlarge", 200_000.0, 10.0)
PIPELINE = _measured("inf1-pipeline", "ml.inf1.6xlarge", 100_000.0, 5.0)


def _result(*measured: Measurement, baseline: Cell | None = None, cells: Sequence[Cell] = ()) -> Result:
    measured_cells = tuple(Cell(variant=each.variant or "", instance_type=each.instance_type) for each in measured)
    experiment = Experiment(
        name="question-answering-experiment-1",
        workload="question_answering",
        traffic="quick",
        archives={},
        cells=tuple(cells) or measured_cells,
        baseline=baseline,
    )
    return result(experiment, WORKLOAD, measured, ORIGIN, ["arn:aws:sagemaker:us-east-1:1:job/a"])


def _table(shown: Result) -> str:
    text = io.StringIO()
    show(shown, Console(file=text, width=190))
    return text.getvalue()


def test_data_parallel_against_pipeline_by_throughput_p95_and_cost() -> None:
    base = Cell(variant="inf1-data-parallel", instance_type="ml.inf1.xlarge")
    data_parallel, large, pipeline = _result(DATA_PARALLEL, LARGE, PIPELINE, baseline=base).rows
    assert data_parallel.cost_per_million_at_capacity_usd == pytest.approx(0.3 / (60_000 * 60) * 1e6)
    assert pipeline.ratios is not None
    assert pipeline.ratios.invocations_per_minute == pytest.approx(100_000 / 60_000)
    assert pipeline.ratios.p95_latency == pytest.approx(4 / 8)
    assert pipeline.ratios.cost_per_million == pytest.approx((1.5 / 100_000) / (0.3 / 60_000))
    assert (data_parallel.neuron_chips, pipeline.neuron_chips, pipeline.gpus) == (1, 4, 0)
    assert [row.on_pareto_front for row in (data_parallel, large, pipeline)] == [True, False, True]
    assert [row.cheapest for row in (data_parallel, large, pipeline)] == [True, False, False]


def test_a_baseline_gives_the_published_tables_optimised_for_latency_and_for_cost() -> None:
    gpu = _measured("gpu-autocast", "ml.g4dn.xlarge", 40_000.0, 13.0)
    slow = _measured("inf1-chip-pipeline", "ml.inf1.6xlarge", 10_000.0, 8.0)
    died = _measured("inf1-pipeline-6", "ml.inf1.6xlarge", None, None, failure_reason="It died.")
    compared = _result(
        DATA_PARALLEL,
        LARGE,
        PIPELINE,
        slow,
        died,
        gpu,
        baseline=Cell(variant="gpu-autocast", instance_type="ml.g4dn.xlarge"),
    )
    assert [str(cell) for cell in compared.lowest_latency] == [
        "ml.inf1.xlarge/inf1-data-parallel",
        "ml.inf1.6xlarge/inf1-pipeline",
        "ml.g4dn.xlarge/gpu-autocast",
    ]
    assert [str(cell) for cell in compared.lowest_cost] == [
        "ml.inf1.xlarge/inf1-data-parallel",
        "ml.inf1.6xlarge/inf1-data-parallel",
        "ml.g4dn.xlarge/gpu-autocast",
    ]
    shown = _table(compared)
    latency = shown.index("Optimised for latency: the lowest P95 of each instance type")
    cost = shown.index("Optimised for cost: the cheapest requests of each instance type")
    assert "ml.inf1.6xlarge inf1-pipeline 4 100,000 0.250 0.33 2.50" in " ".join(shown[latency:cost].split())
    assert "ml.inf1.6xlarge inf1-data-parallel 9 200,000 0.125 0.75 5.00" in " ".join(shown[cost:].split())
    text = page(compared, WORKLOAD)
    assert text.count("<h2>Optimised for") == 2
    assert "× is the ratio to ml.g4dn.xlarge/gpu-autocast." in text
    without = _result(DATA_PARALLEL, LARGE, PIPELINE)
    assert (without.lowest_latency, without.lowest_cost) == ((), ())
    assert "Optimised for" not in _table(without) + page(without, WORKLOAD)


def test_requests_of_several_rows_are_told_apart_from_rows() -> None:
    base = Cell(variant="inf1-data-parallel", instance_type="ml.inf1.xlarge")
    of_one = _result(DATA_PARALLEL, PIPELINE, baseline=base)
    compared = of_one.model_copy(update={"objective": of_one.objective.model_copy(update={"rows_per_invocation": 6})})
    shown = _table(compared)
    assert "P99 ≤ 25 ms at 60,000 invocations/min of 6 rows" in shown
    assert "An invocation has 6 rows; USD/1M is of invocations." in shown
    short = " ".join(shown[shown.index("Optimised for cost") :].split())
    assert "P95 ms rows/min USD/1M rows" in short
    assert "ml.inf1.6xlarge inf1-pipeline 4 600,000 0.042 0.50 1.67 3.00" in short
    assert "An invocation has 6 rows; USD per million is of invocations." in page(compared, WORKLOAD)


def test_the_fleet_and_its_cost_are_those_of_the_sizing() -> None:
    (row,) = _result(DATA_PARALLEL).rows
    assert row.candidate is not None
    assert row.candidate.instance_count == 2  # 60,000 and a fifth more, of 60,000 each
    assert row.candidate.cost_per_hour_usd == pytest.approx(0.6)
    assert row.candidate.cost_per_million_invocations_usd == pytest.approx(0.6 / (60_000 * 60) * 1e6)


def test_where_a_price_is_not_known_the_front_is_of_throughput_and_no_price_is_invented() -> None:
    unpriced = _measured("inf2", "ml.trn1.32xlarge", 150_000.0, 4.0)
    compared = _result(DATA_PARALLEL, LARGE, PIPELINE, unpriced)
    assert compared.front_against == "invocations per minute"
    assert [row.on_pareto_front for row in compared.rows] == [False, True, False, True]
    row = compared.rows[-1]
    assert row.candidate is not None
    assert (row.candidate.cost_per_hour_usd, row.cost_per_million_at_capacity_usd) == (None, None)
    assert (
        "ml.trn1.32xlarge: The job reported no price, and prices.json has none for ml.trn1.32xlarge in us-east-1."
        in _table(compared)
    )


def test_a_cell_that_misses_the_objective_says_so_and_is_sized_all_the_same() -> None:
    slow = _measured("inf1-pipeline", "ml.inf1.6xlarge", 100_000.0, 40.0)
    compared = _result(DATA_PARALLEL, slow)
    candidate = compared.rows[1].candidate
    assert candidate is not None
    assert (candidate.meets_objective, candidate.instance_count) == (False, 1)
    assert "ml.inf1.6xlarge/inf1-pipeline: Misses P99 model latency ≤ 25 ms: 40 ms at 100,000" in _table(compared)


def test_one_cell_that_proves_nothing_is_no_verdict() -> None:
    lagged = "generator lagged: it used 97% of its core, so it was the bottleneck"
    compared = _result(DATA_PARALLEL, _measured("inf1-pipeline", "ml.inf1.6xlarge", None, None, failure_reason=lagged))
    assert compared.recommended is None
    assert compared.why_no_verdict == f"inf1-pipeline on ml.inf1.6xlarge: {lagged}."
    assert f"No verdict: {compared.why_no_verdict}" in _table(compared)


def test_a_cell_that_was_never_measured_has_a_row_without_figures() -> None:
    missing = Cell(variant="inf2", instance_type="ml.inf2.xlarge")
    compared = _result(DATA_PARALLEL, cells=[_result(DATA_PARALLEL).rows[0].cell, missing])
    assert compared.rows[1].candidate is None
    assert "ml.inf2.xlarge/inf2: Not measured." in _table(compared)


def test_of_equal_fleets_the_one_that_bears_more_is_recommended() -> None:
    weaker = _measured("inf2", "ml.trn1.32xlarge", 61_000.0, 9.0)
    stronger = _measured("inf1-pipeline", "ml.trn1.32xlarge", 70_000.0, 9.0)
    assert [row.cheapest for row in _result(weaker, stronger).rows] == [False, True]


def test_the_table_marks_the_cheapest_and_the_front() -> None:
    lines = _table(_result(DATA_PARALLEL, LARGE, PIPELINE)).splitlines()
    assert [line.split()[:2] for line in lines if "ml.inf1" in line and "inf1-" in line.split("ml.")[0]] == [
        ["*P", "inf1-data-parallel"],
        ["inf1-data-parallel", "Neuron"],
        ["P", "inf1-pipeline"],
    ]
    assert lines[-1] == (
        "Recommended: 2 × ml.inf1.xlarge with inf1-data-parallel. Measured on this machine (Some CPU with 2 cores), "
        "which stood in for every instance type, not on SageMaker."
    )


def test_the_page_has_every_cell_its_plots_and_says_on_what_it_was_measured() -> None:
    compared = _result(
        DATA_PARALLEL, LARGE, PIPELINE, baseline=Cell(variant="inf1-pipeline", instance_type="ml.inf1.6xlarge")
    )
    text = page(compared, WORKLOAD)
    assert text.count("<svg") == 4, "trade-off, throughput, latency, speed-up"
    assert text.count("<tr class=") == 3
    assert "No instance type here has a GPU" in text
    assert "Measured on this machine (Some CPU with 2 cores)" in text
    assert "Ratios are to ml.inf1.6xlarge/inf1-pipeline" in text
    assert text == page(compared, WORKLOAD), "the same result gives the same bytes"


REVIEWS = load_workload("text_classification").workload
"""The published experiment: P95 ≤ 500 ms at 30,000 invocations per minute."""


def _reviews(*measured: Measurement) -> Result:
    cells = tuple(Cell(variant=each.variant or "", instance_type=each.instance_type) for each in measured)
    experiment = Experiment(
        name="e", workload=REVIEWS.name, traffic="published", archives={}, cells=cells, baseline=cells[0]
    )
    return result(experiment, REVIEWS, measured, ORIGIN, ())


def _on_gpu(variant: str, instance_type: str, rate: float, **more: object) -> Measurement:
    return _measured(variant, instance_type, rate, 400.0, percentile="P95", **more)


def test_a_row_has_the_columns_of_the_published_table() -> None:
    base, tuned, pinned = _reviews(
        _on_gpu("pt-base", "ml.g4dn.xlarge", 500.0, gpu_utilization_percent=55.0),
        _on_gpu("trt-db-ig", "ml.g4dn.12xlarge", 5_000.0),
        _measured("ts-ig", "ml.c5.xlarge", 900.0, 300.0, percentile="P95"),
    ).rows
    assert (base.optimisation, base.dynamic_batching, base.instance_groups) == ("PyTorch", None, "1 per GPU")
    assert (tuned.optimisation, tuned.dynamic_batching) == ("TensorRT fp16", "16; 100 µs")
    assert (tuned.instance_groups, pinned.instance_groups) == ("2 per GPU", "2")
    assert (tuned.vcpus, tuned.memory_gib, tuned.gpus, tuned.gpu_memory_gib) == (48, 192, 4, 64)
    assert (base.gpu_utilization_percent, tuned.gpu_utilization_percent) == (55.0, None)


def test_a_speed_up_is_that_of_the_optimisation_on_the_same_instance_type() -> None:
    compared = _reviews(
        _on_gpu("pt-base", "ml.g4dn.xlarge", 500.0, gpu_utilization_percent=55.0),
        _on_gpu("trt-db", "ml.g4dn.xlarge", 3_000.0),
        _on_gpu("pt-base", "ml.g4dn.12xlarge", 2_000.0),
        _on_gpu("trt-db", "ml.g4dn.12xlarge", 5_000.0),
        _on_gpu("trt-db", "ml.g4dn.2xlarge", 3_000.0),
    )
    assert [row.speed_up for row in compared.rows] == [1.0, 6.0, 1.0, 2.5, None]
    text = page(compared, REVIEWS)
    assert "./checkpoint; requests of at most 512 tokens" in text
    assert "Speed-up by optimisation" in text
    assert "GPU utilisation" in text


def test_the_page_of_a_published_experiment_says_what_model_was_measured() -> None:
    asked = load_workload("text_classification").as_published("cpu-twin").workload
    measured = _measured("ts-base", "ml.c5.xlarge", 900.0, 300.0, percentile="P95")
    cell = Cell(variant="ts-base", instance_type="ml.c5.xlarge")
    experiment = Experiment(
        name="e", workload=asked.name, traffic="published-short", archives={}, cells=(cell,), published="cpu-twin"
    )
    shown = result(experiment, asked, [measured], ORIGIN, ())
    assert (shown.published, shown.model) == (
        "cpu-twin",
        "bert-large-uncased with random weights, layers, heads and width divided by 8; every request of 512 tokens",
    )


def test_a_page_without_any_figure_still_says_why() -> None:
    text = page(_result(_measured("inf2", "ml.inf2.xlarge", None, None, failure_reason="It <died>.")), WORKLOAD)
    assert "It &lt;died&gt;." in text
    assert "<svg" not in text


def _row(number: int, rate: float, latency_ms: float, cost: float | None) -> Row:
    return Row(
        variant=f"v{number}",
        optimisation="ONNX Runtime",
        dynamic_batching=None,
        instance_groups="1",
        instance_type="ml.c5.xlarge",
        vcpus=4,
        memory_gib=8,
        gpus=0,
        gpu_memory_gib=None,
        neuron_chips=0,
        cost_per_million_at_capacity_usd=cost,
        candidate=Candidate(
            instance_type="ml.c5.xlarge",
            max_invocations_per_minute=rate,
            model_latency_ms=latency_ms,
            meets_objective=True,
            reason="",
        ),
    )


FIGURES = st.integers(1, 6).map(float)


@given(st.lists(st.tuples(FIGURES, FIGURES, FIGURES | st.none()), min_size=1, max_size=12))
def test_the_front_is_what_no_cell_beats_and_all_others_are_beaten_by_one_on_it(
    figures: list[tuple[float, float, float | None]],
) -> None:
    rows = [_row(number, *row) for number, row in enumerate(figures)]
    against, front = pareto_front(rows)
    known = all(cost is not None for *_, cost in figures)
    assert against == ("cost per million" if known else "invocations per minute")

    def beats(one: Row, other: Row) -> bool:
        first, second = (
            (row.latency_ms or 0, (row.cost_per_million_at_capacity_usd or 0) if known else -(row.rate or 0))
            for row in (one, other)
        )
        return first != second and first[0] <= second[0] and first[1] <= second[1]

    assert front
    for row in rows:
        beaten_by = [other for other in rows if beats(other, row)]
        assert (row.cell in front) == (not beaten_by)
        assert not beaten_by or any(other.cell in front for other in beaten_by)
