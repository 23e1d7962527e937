"""The cells and jobs of an experiment, before anything is sent."""

from collections import Counter
from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.experiment.cells import Cell, baseline_cell, cells
from inference_recommender.experiment.plan import LARGEST_JOB, LONGEST_NAME, Experiment, batches, job_plan
from inference_recommender.measure.job_requests import TestedModel
from workloads import ProjectError, load_workload

REVIEWS = load_workload("text_classification")
ANSWERS = load_workload("question_answering")
SUBJECT = TestedModel(model="m", role_arn="arn:aws:iam::123456789012:role/r", payload_url="s3://b/p.tar.gz")
GPU_TYPES = {"pt": 3, "trt": 4}


def _experiment(*chosen: Cell) -> Experiment:
    return Experiment(
        name="text-classification-experiment-20261121-220000",
        workload="text_classification",
        traffic="quick",
        archives={},
        cells=chosen,
    )


def test_every_variant_is_measured_on_every_type_of_its_target() -> None:
    counted = Counter(cell.variant for cell in cells(REVIEWS))
    assert {name: count for name, count in counted.items() if name.startswith(("pt", "trt"))} == {
        name: GPU_TYPES[name.split("-")[0]]
        for name in ("pt-base", "pt-db", "pt-ig", "pt-ig-db", "trt-base", "trt-db", "trt-ig", "trt-db-ig")
    }
    assert {counted[name] for name in ("ts-base", "ts-ig-db", "ort-base", "ort-ig-db")} == {1}


def test_a_workload_without_variants_compares_its_targets() -> None:
    compared = cells(ANSWERS, ["inf1-data-parallel", "inf1-pipeline"])
    assert [str(cell) for cell in compared] == [
        "ml.inf1.xlarge/inf1-data-parallel",
        "ml.inf1.6xlarge/inf1-data-parallel",
        "ml.inf1.6xlarge/inf1-pipeline",
    ]
    assert {cell.variant for cell in cells(ANSWERS)} >= {"inf1-data-parallel", "inf1-pipeline", "inf2"}


def test_named_types_go_to_the_variants_that_can_run_on_them() -> None:
    chosen = cells(REVIEWS, ["pt-base", "trt-base", "ort-base"], ["ml.g5.2xlarge", "ml.c5.2xlarge"])
    assert [str(cell) for cell in chosen] == [
        "ml.g5.2xlarge/pt-base",
        "ml.g5.2xlarge/trt-base",
        "ml.c5.2xlarge/ort-base",
    ]


def test_a_pipeline_needs_an_instance_type_with_enough_cores() -> None:
    chosen = cells(ANSWERS, ["*pipeline"], ["ml.inf1.xlarge", "ml.inf1.6xlarge", "ml.inf1.24xlarge"])
    assert [str(cell) for cell in chosen] == [
        "ml.inf1.xlarge/inf1-chip-pipeline",
        "ml.inf1.6xlarge/inf1-chip-pipeline",
        "ml.inf1.24xlarge/inf1-chip-pipeline",
        "ml.inf1.6xlarge/inf1-pipeline",
        "ml.inf1.24xlarge/inf1-pipeline",
    ]


@pytest.mark.parametrize(
    ("patterns", "types", "problem"),
    [
        (
            ["ort"],
            [],
            f"--variants: 'ort' is none of {REVIEWS.file}. Known: {', '.join(REVIEWS.workload.deployables)}.",
        ),
        (
            ["ort-base"],
            ["c5.xlarge"],
            "--instance-types: got 'c5.xlarge', which is not an instance type of SageMaker endpoints. Example: "
            "ml.c5.xlarge.",
        ),
        (
            ["trt-base", "ort-base"],
            ["ml.inf1.xlarge", "ml.g5.xlarge"],
            "--instance-types: got 'ml.inf1.xlarge', on which none of the chosen variants runs. trt-base is for "
            "ml.g4dn and ml.g5. ort-base is for a CPU.",
        ),
        (
            ["cpu-int8"],
            [],
            f"{REVIEWS.file}: no cell is left: the targets of cpu-int8 name no instance type of SageMaker (ml.…). Add "
            "instance_types to the target, or name types with --instance-types.",
        ),
    ],
)
def test_cells_that_cannot_be_measured_are_refused(patterns: list[str], types: list[str], problem: str) -> None:
    with pytest.raises(ProjectError) as caught:
        cells(REVIEWS, patterns, types)
    assert str(caught.value) == problem
    assert caught.value.exit_code == 2


def test_a_variant_whose_batch_does_not_hold_a_request_is_refused() -> None:
    folder = copy(REVIEWS)
    objective = REVIEWS.workload.latency_objective.model_copy(update={"rows_per_invocation": 17})
    folder.workload = REVIEWS.workload.model_copy(update={"objective": objective})
    with pytest.raises(ProjectError) as caught:
        cells(folder, ["ort-base"])
    assert str(caught.value) == (
        f"{REVIEWS.file}: rows_per_invocation: got 17, and a request to 'ort-base' has at most 16 rows, its "
        "serving.max_batch_size. Raise that, or leave the variant out with --variants."
    )


def test_a_baseline_is_one_cell() -> None:
    among = cells(ANSWERS, ["inf1-data-parallel", "inf1-pipeline"])
    assert baseline_cell("ml.inf1.xlarge", among) == among[0]
    assert baseline_cell("ml.inf1.6xlarge/inf1-pipeline", among) == among[2]
    with pytest.raises(ProjectError) as caught:
        baseline_cell("ml.inf1.6xlarge", among)
    assert str(caught.value) == (
        "--baseline: 'ml.inf1.6xlarge' is not one cell of this experiment. Name one as INSTANCE_TYPE/VARIANT: "
        "ml.inf1.xlarge/inf1-data-parallel, ml.inf1.6xlarge/inf1-data-parallel, ml.inf1.6xlarge/inf1-pipeline."
    )


CELLS = st.lists(
    st.builds(
        Cell,
        variant=st.sampled_from(REVIEWS.workload.deployables),
        instance_type=st.integers(1, 24).map(lambda number: f"ml.c5.{number}xlarge"),
    ),
    unique=True,
    max_size=60,
)


@given(left=CELLS, taken=st.integers(0, 3))
def test_the_jobs_hold_every_cell_that_is_left_once_and_no_other(left: list[Cell], taken: int) -> None:
    experiment = _experiment(*left)
    earlier = {batch.name for batch in batches(experiment, left[:taken], ())}
    planned = batches(experiment, left, earlier)
    assert sorted(str(cell) for batch in planned for cell in batch.cells) == sorted(map(str, left))
    assert all(1 <= len(batch.instance_types) <= LARGEST_JOB for batch in planned)
    names = [batch.name for batch in planned]
    assert len({*names, *earlier}) == len(names) + len(earlier)
    assert all(len(name) <= LONGEST_NAME for name in names)
    assert all(name.startswith("text-classification-") for name in names), "the role allows no other"


@given(left=CELLS)
def test_no_variant_has_more_jobs_than_it_needs(left: list[Cell]) -> None:
    jobs = Counter(batch.variant for batch in batches(_experiment(*left), left, ()))
    counts = Counter(cell.variant for cell in left)
    assert jobs == {variant: -(-count // LARGEST_JOB) for variant, count in counts.items()}


def test_a_job_tests_one_variants_model_on_the_types_of_its_cells() -> None:
    chosen = cells(REVIEWS, ["trt-*"])
    experiment = _experiment(*chosen)
    plans = [job_plan(experiment, batch, REVIEWS.workload, SUBJECT) for batch in batches(experiment, chosen, ())]
    assert [plan.job_name.removeprefix(f"{experiment.name}-") for plan in plans] == [
        "trt-base",
        "trt-db",
        "trt-ig",
        "trt-db-ig",
    ]
    for plan in plans:
        (request,) = plan.requests
        types = [one["InstanceType"] for one in request["InputConfig"]["EndpointConfigurations"]]
        assert types == ["ml.g4dn.xlarge", "ml.g4dn.2xlarge", "ml.g4dn.12xlarge", "ml.g5.xlarge"]
        assert request["InputConfig"]["ContainerConfig"]["SupportedInstanceTypes"] == types
