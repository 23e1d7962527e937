"""The result of an experiment: fleet and cost of each cell, the front, ratios to a baseline, and its report."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.experiment.cells import Cell
from inference_recommender.experiment.experiment_report import experiment_plots, experiment_report
from inference_recommender.experiment.folder import ExperimentOrigin
from inference_recommender.experiment.plan import Experiment
from inference_recommender.experiment.result import ExperimentResult, ExperimentRow, pareto_front, result
from inference_recommender.measurement import Measurement
from inference_recommender.report.document import Report
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.page import page
from workloads import Candidate, LatencyPercentiles, Workload, load_workload

ANSWERS = load_workload("question_answering").workload
"""P99 ≤ 25 ms at 60,000 invocations per minute, headroom 20 %."""
REVIEWS = load_workload("text_classification").workload
"""P95 ≤ 500 ms at 30,000 invocations per minute."""
PRICES = {"ml.inf1.xlarge": 0.3, "ml.inf1.6xlarge": 1.5}
ORIGIN = ExperimentOrigin(
    measured_on="local", machine="Some CPU with 2 cores", region="us-east-1", measured_at="2026-11-21T22:00:00+00:00"
)
BASE = Cell(variant="inf1-data-parallel", instance_type="ml.inf1.xlarge")


def measured(
    variant: str, instance_type: str, rate: float | None, latency_ms: float | None, **fields: object
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
            **fields,
        }
    )


DATA_PARALLEL = measured("inf1-data-parallel", "ml.inf1.xlarge", 60_000.0, 9.0)
LARGE = measured("inf1-data-parallel", "ml.inf1.6xlarge", 200_000.0, 10.0)
PIPELINE = measured("inf1-pipeline", "ml.inf1.6xlarge", 100_000.0, 5.0)
DIED = measured("inf2", "ml.inf2.xlarge", None, None, failure_reason="It <died>.")


LAGGED = "generator lagged: it used 97% of its core"


def on_gpu(variant: str, instance_type: str, rate: float, **fields: object) -> Measurement:
    return measured(variant, instance_type, rate, 400.0, percentile="P95", **fields)


def concluded(
    *tests: Measurement, workload: Workload = ANSWERS, cells: Sequence[Cell] = (), **fields: object
) -> ExperimentResult:
    own = tuple(Cell(variant=each.variant or "", instance_type=each.instance_type) for each in tests)
    experiment = Experiment(
        name="experiment-1", workload=workload.name, traffic="quick", archives={}, cells=tuple(cells) or own
    ).model_copy(update=fields)
    return result(experiment, workload, tests, ORIGIN, ["arn:aws:sagemaker:us-east-1:1:job/a"])


def reported(found: ExperimentResult, workload: Workload = ANSWERS) -> Report:
    return experiment_report("experiment-1", found, workload, FolderInputs())


def test_cells_compare_by_throughput_p95_and_cost() -> None:
    data_parallel, large, pipeline = concluded(DATA_PARALLEL, LARGE, PIPELINE, baseline=BASE).rows
    assert data_parallel.cost_per_million_at_capacity_usd == pytest.approx(0.3 / (60_000 * 60) * 1e6)
    assert pipeline.ratios is not None
    assert pipeline.ratios.invocations_per_minute == pytest.approx(100_000 / 60_000)
    assert pipeline.ratios.p95_latency == pytest.approx(4 / 8)
    assert pipeline.ratios.cost_per_million == pytest.approx((1.5 / 100_000) / (0.3 / 60_000))
    assert (data_parallel.neuron_chips, pipeline.neuron_chips, pipeline.gpus) == (1, 4, 0)
    assert [row.on_pareto_front for row in (data_parallel, large, pipeline)] == [True, False, True]
    assert [row.cheapest for row in (data_parallel, large, pipeline)] == [True, False, False]
    assert data_parallel.candidate is not None
    assert data_parallel.candidate.instance_count == 2  # 60,000 and a fifth more, of 60,000 each
    assert data_parallel.candidate.cost_per_hour_usd == pytest.approx(0.6)


def test_a_baseline_adds_the_published_tables_of_the_best_cells() -> None:
    gpu = measured("gpu-autocast", "ml.g4dn.xlarge", 40_000.0, 13.0)
    slow = measured("inf1-chip-pipeline", "ml.inf1.6xlarge", 10_000.0, 8.0)
    died = measured("inf1-pipeline-6", "ml.inf1.6xlarge", None, None, failure_reason="It died.")
    base = Cell(variant="gpu-autocast", instance_type="ml.g4dn.xlarge")
    report = reported(concluded(DATA_PARALLEL, LARGE, PIPELINE, slow, died, gpu, baseline=base))
    latency, cost = report.table("optimised-for-latency"), report.table("optimised-for-cost")
    assert latency is not None
    assert cost is not None
    variants = ["inf1-data-parallel", "inf1-pipeline", "gpu-autocast"]
    assert [row["variant"] for row in latency.rows] == variants
    assert latency.cells(latency.rows[1])[2:] == ("4", "100,000", "0.250", "0.33", "2.50", "0.81")
    assert [row["variant"] for row in cost.rows] == ["inf1-data-parallel", "inf1-data-parallel", "gpu-autocast"]
    assert cost.cells(cost.rows[1])[2:] == ("9", "200,000", "0.125", "0.75", "5.00", "0.41")
    assert reported(concluded(DATA_PARALLEL, LARGE)).table("optimised-for-cost") is None


def test_requests_of_several_rows_have_figures_per_row() -> None:
    of_one = concluded(DATA_PARALLEL, PIPELINE, baseline=BASE)
    report = reported(
        of_one.model_copy(update={"objective": of_one.objective.model_copy(update={"rows_per_invocation": 6})})
    )
    assert "An invocation has 6 rows; $/1M is of invocations." in report.notes
    table = report.table("optimised-for-cost")
    assert table is not None
    assert table.cells(table.rows[1])[2:] == ("4", "600,000", "0.042", "0.50", "1.67", "3.00")


def test_the_front_is_of_throughput_if_a_price_is_unknown() -> None:
    unpriced = measured("inf2", "ml.trn1.32xlarge", 150_000.0, 4.0)
    found = concluded(DATA_PARALLEL, LARGE, PIPELINE, unpriced)
    assert found.front_against == "invocations per minute"
    assert [row.on_pareto_front for row in found.rows] == [False, True, False, True]
    assert found.rows[-1].cost_per_million_at_capacity_usd is None
    no_price = (
        "ml.trn1.32xlarge: The job reported no price, and prices.json has none for ml.trn1.32xlarge in us-east-1."
    )
    assert no_price in reported(found).notes


@pytest.mark.parametrize(
    ("second", "decision", "note"),
    [
        (
            measured("inf1-pipeline", "ml.inf1.6xlarge", 100_000.0, 40.0),
            "Recommended: 2 × ml.inf1.xlarge with inf1-data-parallel, $0.60/h.",
            "ml.inf1.6xlarge/inf1-pipeline: Misses P99 model latency ≤ 25 ms: 40 ms at 100,000",
        ),
        (
            measured(
                "inf1-pipeline",
                "ml.inf1.6xlarge",
                None,
                None,
                failure_reason="generator lagged: it used 97% of its core",
            ),
            f"No verdict: inf1-pipeline on ml.inf1.6xlarge: {LAGGED}.",
            "ml.inf1.6xlarge/inf1-pipeline: generator lagged",
        ),
        (
            None,
            "Recommended: 2 × ml.inf1.xlarge with inf1-data-parallel, $0.60/h.",
            "ml.inf2.xlarge/inf2: Not measured.",
        ),
    ],
    ids=["missed", "invalid", "not measured"],
)
def test_the_decision_and_a_note_for_each_other_cell(second: Measurement | None, decision: str, note: str) -> None:
    missing = Cell(variant="inf2", instance_type="ml.inf2.xlarge")
    found = concluded(DATA_PARALLEL, second) if second else concluded(DATA_PARALLEL, cells=[BASE, missing])
    report = reported(found)
    assert report.decision == decision
    assert [line for line in report.notes if line.startswith(note)]


def test_of_equal_fleets_the_higher_capacity_is_recommended() -> None:
    weaker = measured("inf2", "ml.trn1.32xlarge", 61_000.0, 9.0)
    stronger = measured("inf1-pipeline", "ml.trn1.32xlarge", 70_000.0, 9.0)
    assert [row.cheapest for row in concluded(weaker, stronger).rows] == [False, True]


def test_the_table_marks_the_cheapest_and_the_front() -> None:
    report = reported(concluded(DATA_PARALLEL, LARGE, PIPELINE))
    assert [row["mark"] for row in report.tables[0].rows] == ["*P", "", "P"]
    assert report.cautions[0].startswith("Measured on this machine, not on SageMaker. Some CPU with 2 cores")


def test_a_row_has_the_columns_of_the_published_table() -> None:
    base, tuned, pinned = concluded(
        on_gpu("pt-base", "ml.g4dn.xlarge", 500.0, gpu_utilization_percent=55.0),
        on_gpu("trt-db-ig", "ml.g4dn.12xlarge", 5_000.0),
        measured("ts-ig", "ml.c5.xlarge", 900.0, 300.0, percentile="P95"),
        workload=REVIEWS,
    ).rows
    assert (base.optimisation, base.dynamic_batching, base.instance_groups) == ("PyTorch", None, "1 per GPU")
    assert (tuned.optimisation, tuned.dynamic_batching) == ("TensorRT fp16", "16; 100 µs")
    assert (tuned.instance_groups, pinned.instance_groups) == ("2 per GPU", "2")
    assert (tuned.vcpus, tuned.memory_gib, tuned.gpus, tuned.gpu_memory_gib) == (48, 192, 4, 64)
    assert (base.gpu_utilization_percent, tuned.gpu_utilization_percent) == (55.0, None)


def test_a_speed_up_is_on_the_same_instance_type() -> None:
    found = concluded(
        on_gpu("pt-base", "ml.g4dn.xlarge", 500.0, gpu_utilization_percent=55.0),
        on_gpu("trt-db", "ml.g4dn.xlarge", 3_000.0),
        on_gpu("pt-base", "ml.g4dn.12xlarge", 2_000.0),
        on_gpu("trt-db", "ml.g4dn.12xlarge", 5_000.0),
        on_gpu("trt-db", "ml.g4dn.2xlarge", 3_000.0),
        workload=REVIEWS,
        baseline=Cell(variant="pt-base", instance_type="ml.g4dn.xlarge"),
    )
    assert [row.speed_up for row in found.rows] == [1.0, 6.0, 1.0, 2.5, None]
    plots = experiment_plots(found)
    assert [name.partition(" ")[0] for name in plots] == ["Latency", "Throughput", "Latency", "Speed-up", "GPU"]
    assert plots == experiment_plots(found), "the same result gives the same bytes"
    assert found.model == "./checkpoint; requests of at most 512 tokens"


def test_a_published_experiment_names_its_model() -> None:
    published = load_workload("text_classification").as_published("cpu-twin").workload
    test = measured("ts-base", "ml.c5.xlarge", 900.0, 300.0, percentile="P95")
    found = concluded(test, workload=published, traffic="published-short", published="cpu-twin")
    assert (found.published, found.model) == (
        "cpu-twin",
        "bert-large-uncased with random weights, layers, heads and width divided by 8; every request of 512 tokens",
    )


def test_an_experiment_without_figures_has_a_report_without_plots() -> None:
    found = concluded(DIED)
    assert experiment_plots(found) == {}
    assert "It &lt;died&gt;." in page(reported(found))


def row(number: int, rate: float, latency_ms: float, cost: float | None) -> ExperimentRow:
    return ExperimentRow(
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
def test_a_cell_on_the_front_beats_every_cell_that_is_not(figures: list[tuple[float, float, float | None]]) -> None:
    rows = [row(number, *each) for number, each in enumerate(figures)]
    against, front = pareto_front(rows)
    known = all(cost is not None for *_, cost in figures)
    assert against == ("cost per million" if known else "invocations per minute")

    def beats(one: ExperimentRow, other: ExperimentRow) -> bool:
        first, second = (
            (each.latency_ms or 0, (each.cost_per_million_at_capacity_usd or 0) if known else -(each.rate or 0))
            for each in (one, other)
        )
        return first != second and first[0] <= second[0] and first[1] <= second[1]

    assert front
    for each in rows:
        beaten_by = [other for other in rows if beats(other, each)]
        assert (each.cell in front) == (not beaten_by)
        assert not beaten_by or any(other.cell in front for other in beaten_by)
