"""The report of an experiment: fleet and cost of each cell, the front, and ratios to a baseline."""

from collections.abc import Sequence
from typing import Any

import pytest

from inference_recommender.experiment.experiment_report import experiment_plots, experiment_report
from inference_recommender.experiment.plan import Cell, Experiment
from inference_recommender.experiment.result import ExperimentResult, result
from inference_recommender.measurement import Measurement
from inference_recommender.report.document import Report
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.page import page
from tests.builders import a_measurement, a_provenance
from workloads import LatencyPercentiles, Workload, load_workload

ANSWERS = load_workload("question_answering").workload
"""P99 ≤ 25 ms at 60,000 invocations per minute, headroom 20 %."""
REVIEWS = load_workload("text_classification").workload
"""P95 ≤ 500 ms at 30,000 invocations per minute."""
PRICES = {"ml.inf1.xlarge": 0.3, "ml.inf1.6xlarge": 1.5}
ORIGIN = a_provenance(machine="Some CPU with 2 cores")
BASE = Cell(variant="inf1-data-parallel", instance_type="ml.inf1.xlarge")


def measured(
    variant: str, instance_type: str, rate: float | None, latency_ms: float | None, **fields: object
) -> Measurement:
    members: dict[str, Any] = {
        "variant": variant,
        "instance_type": instance_type,
        "model_latency_ms": latency_ms,
        "percentile": "P99",
        "percentiles_ms": LatencyPercentiles(p50=3.0, p95=latency_ms and latency_ms - 1, p99=latency_ms),
        "price_per_hour_usd": PRICES.get(instance_type),
    }
    return a_measurement(rate, **{**members, **fields})


DATA_PARALLEL = measured("inf1-data-parallel", "ml.inf1.xlarge", 60_000.0, 9.0)
LARGE = measured("inf1-data-parallel", "ml.inf1.6xlarge", 200_000.0, 10.0)
PIPELINE = measured("inf1-pipeline", "ml.inf1.6xlarge", 100_000.0, 5.0)
LAGGED = "generator lagged: it used 97% of its core"


def on_gpu(variant: str, instance_type: str, rate: float, **fields: object) -> Measurement:
    return measured(variant, instance_type, rate, 400.0, percentile="P95", **fields)


def concluded(
    *tests: Measurement, workload: Workload = ANSWERS, cells: Sequence[Cell] = (), **fields: object
) -> ExperimentResult:
    experiment = Experiment(
        name="experiment-1",
        workload=workload.name,
        traffic="quick",
        archives={},
        cells=tuple(cells) or tuple(map(Cell.of, tests)),
    ).model_copy(update=fields)
    return result(experiment, workload, tests, ORIGIN)


def reported(*tests: Measurement, **given: object) -> Report:
    return experiment_report("experiment-1", concluded(*tests, **given), FolderInputs())  # type: ignore[arg-type]


def column(report: Report, *names: str) -> list[tuple[object, ...]]:
    """Returns the values of some columns, row by row."""
    return [tuple(row[name] for name in names) for row in report.tables[0].rows]


def test_cells_compare_by_throughput_p95_and_cost() -> None:
    report = reported(DATA_PARALLEL, LARGE, PIPELINE, baseline=BASE)
    assert [row["mark"] for row in report.tables[0].rows] == ["*P", "", "P"]
    assert column(report, "invocations_ratio", "p95_ratio", "cost_ratio", "cost_at_capacity_usd") == [
        (1, 1, 1, pytest.approx(0.3 / (60_000 * 60) * 1e6)),
        (pytest.approx(200 / 60), pytest.approx(9 / 8), pytest.approx(1.5), pytest.approx(0.125)),
        (pytest.approx(100 / 60), pytest.approx(4 / 8), pytest.approx(3), pytest.approx(0.25)),
    ]
    # 60,000 and a fifth more, of 60,000 each
    assert column(report, "instance_count", "cost_per_hour_usd")[0] == (2, pytest.approx(0.6))
    assert report.highlights[0].value == "2 × ml.inf1.xlarge inf1-data-parallel"
    assert report.cautions[0].startswith("Measured on this machine, not on SageMaker. Some CPU with 2 cores")


def test_the_front_is_of_throughput_if_a_price_is_unknown() -> None:
    report = reported(DATA_PARALLEL, LARGE, PIPELINE, measured("inf2", "ml.trn1n.32xlarge", 150_000.0, 4.0))
    assert ["P" in str(row["mark"]) for row in report.tables[0].rows] == [False, True, False, True]
    assert any("latency and invocations per minute" in note for note in report.notes)
    no_price = "The job reported no price, and prices.json has none for ml.trn1n.32xlarge in us-east-1."
    assert f"ml.trn1n.32xlarge: {no_price}" in report.notes


@pytest.mark.parametrize(
    ("second", "decision", "note"),
    [
        (
            measured("inf1-pipeline", "ml.inf1.6xlarge", 100_000.0, 40.0),
            "Recommended: 2 × ml.inf1.xlarge inf1-data-parallel, $0.60/h.",
            "ml.inf1.6xlarge/inf1-pipeline: Misses P99 model latency ≤ 25 ms: 40 ms at 100,000",
        ),
        (
            measured("inf1-pipeline", "ml.inf1.6xlarge", None, None, failure_reason=LAGGED),
            f"No verdict: inf1-pipeline on ml.inf1.6xlarge: {LAGGED}.",
            "ml.inf1.6xlarge/inf1-pipeline: generator lagged",
        ),
        (None, "Recommended: 2 × ml.inf1.xlarge inf1-data-parallel, $0.60/h.", "ml.inf2.xlarge/inf2: Not measured."),
    ],
    ids=["missed", "invalid", "not measured"],
)
def test_the_decision_and_a_note_for_each_other_cell(second: Measurement | None, decision: str, note: str) -> None:
    missing = Cell(variant="inf2", instance_type="ml.inf2.xlarge")
    report = reported(DATA_PARALLEL, second) if second else reported(DATA_PARALLEL, cells=[BASE, missing])
    assert report.decision == decision
    assert [line for line in report.notes if line.startswith(note)]


def test_a_row_has_the_columns_of_the_published_table() -> None:
    report = reported(
        on_gpu("pt-base", "ml.g4dn.xlarge", 500.0, gpu_utilization_percent=55.0),
        on_gpu("trt-db-ig", "ml.g4dn.12xlarge", 5_000.0),
        measured("ts-ig", "ml.c5.xlarge", 900.0, 300.0, percentile="P95"),
        workload=REVIEWS,
    )
    shape = ("vcpus", "memory_gib", "gpus", "gpu_memory_gib", "gpu_utilization_percent")
    assert column(report, "runtime", "dynamic_batching", "instance_groups", *shape) == [
        ("torchscript fp32", "no", "1 per GPU", 4, 16, 1, 16, 55.0),
        ("tensorrt fp16", "16; 100 µs", "2 per GPU", 48, 192, 4, 64, None),
        ("torchscript fp32", "no", "2", 4, 8, 0, None, None),
    ]
    assert report.environment["model"] == "./checkpoint; requests of at most 512 tokens"


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
    assert [found.speed_up(row) for row in found.rows] == [1.0, 6.0, 1.0, 2.5, None]
    plots = experiment_plots(found)
    assert [name.partition(" ")[0] for name in plots] == ["Latency", "Latency", "Throughput"]
    assert plots == experiment_plots(found), "the same result gives the same bytes"


def test_cells_with_several_rows_a_request_compare_by_rows() -> None:
    six = measured("inf1-data-parallel-6", "ml.inf1.xlarge", 20_000.0, 9.0)
    cells = {"baseline": BASE, "rows": {"inf1-data-parallel-6": 6}}
    report = reported(DATA_PARALLEL, six, **cells)
    assert column(report, "rows", "invocations_per_minute", "instance_count", "invocations_ratio") == [
        (1, 60_000.0, 2, 1.0),
        (6, 20_000.0, 1, 2.0),
    ]
    one, other = concluded(DATA_PARALLEL, six, **cells).rows  # type: ignore[arg-type]
    assert other.cost_usd == pytest.approx((one.cost_usd or 0) / 2)


def test_costs_may_be_of_ec2_and_a_type_without_a_price_has_its_reason() -> None:
    unpriced = measured("cpu", "ml.c5.24xlarge", 9_000.0, 9.0)
    found = concluded(DATA_PARALLEL, LARGE, unpriced, prices="ec2")
    assert [row.price_per_hour_usd for row in found.rows] == [0.228, 1.18, None]
    (reason,) = (row.candidate.cost_reason for row in found.rows if row.candidate and row.price_per_hour_usd is None)
    assert str(reason).startswith("EC2: prices.json has none for c5.24xlarge in ")


def test_a_published_experiment_names_its_model() -> None:
    published = load_workload("text_classification").as_published("cpu-twin").workload
    test = measured("ts-base", "ml.c5.xlarge", 900.0, 300.0, percentile="P95")
    facts = reported(test, workload=published, published="cpu-twin").environment
    assert (facts["published as"], facts["model"]) == (
        "cpu-twin",
        "bert-large-uncased with random weights, layers, heads and width divided by 8; every request of 512 tokens",
    )


def test_an_experiment_without_figures_has_a_report_without_plots() -> None:
    died = concluded(measured("inf2", "ml.inf2.xlarge", None, None, failure_reason="It <died>."))
    assert experiment_plots(died) == {}
    assert "It &lt;died&gt;." in page(experiment_report("experiment-1", died, FolderInputs()))
