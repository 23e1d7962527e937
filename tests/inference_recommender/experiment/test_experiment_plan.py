"""The cells, images and jobs of an experiment, before anything is sent."""

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tomllib

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.experiment.plan import (
    LARGEST_JOB,
    LONGEST_NAME,
    Cell,
    Experiment,
    ExperimentAccess,
    baseline_cell,
    batches,
    cells,
    default_image,
    host_ami,
    images,
    job_plan,
    placeholder_image,
)
from tests.builders import an_artifact, message_of
from tests.inference_recommender.api import TESTED
from workloads import ProjectError, load_workload
from workloads.own_images import OwnImage, content_of, image_file

CELLS = tomllib.loads(Path(__file__).with_name("cells.toml").read_text("utf-8"))
REVIEWS = load_workload("text_classification")
ANSWERS = load_workload("question_answering")


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
    assert [counted[name] for name in ("pt-base", "pt-ig-db", "trt-base", "trt-db-ig", "ts-base", "ort-ig-db")] == [
        *(3, 3, 4, 4, 1, 1)
    ]
    assert {cell.variant for cell in cells(ANSWERS)} >= {"inf1-data-parallel", "inf1-pipeline", "inf2"}


@pytest.mark.parametrize("case", CELLS["chosen"], ids=lambda case: " ".join(case["variants"]))
def test_cells_are_the_variants_on_the_types_that_run_them(case: dict[str, Any]) -> None:
    found = cells(load_workload(case["workload"]), case["variants"], case["types"])
    assert list(map(str, found)) == case["cells"]


@pytest.mark.parametrize("case", CELLS["refused"], ids=lambda case: " ".join(case["variants"]))
def test_cells_that_cannot_be_measured_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ProjectError) as caught:
        cells(REVIEWS, case["variants"], case["types"])
    message = case["message"].format(file=REVIEWS.file, known=", ".join(REVIEWS.workload.deployables))
    assert (str(caught.value), caught.value.exit_code) == (message, 2)


def test_a_baseline_is_one_cell() -> None:
    among = cells(ANSWERS, ["inf1-data-parallel", "inf1-pipeline"])
    assert baseline_cell("ml.inf1.xlarge", among) == among[0]
    assert baseline_cell("ml.inf1.6xlarge/inf1-pipeline", among) == among[2]
    assert message_of(ProjectError, baseline_cell, "ml.inf1.6xlarge", among) == (
        "--baseline: 'ml.inf1.6xlarge' is not one cell of this experiment. Name one as INSTANCE_TYPE/VARIANT: "
        "ml.inf1.xlarge/inf1-data-parallel, ml.inf1.6xlarge/inf1-data-parallel, ml.inf1.6xlarge/inf1-pipeline."
    )


def test_batches_hold_every_remaining_cell_once_under_new_names() -> None:
    left = [
        Cell(variant=variant, instance_type=f"ml.c5.{number}xlarge")
        for variant, count in (("ts-base", 23), ("ort-base", 10), ("a-variant-whose-name-is-long-1", 1))
        for number in range(count)
    ]
    left.append(Cell(variant="a-variant-whose-name-is-long-2", instance_type="ml.c5.xlarge"))
    experiment = _experiment(*left)
    earlier = [batch.name for batch in batches(experiment, left[:1], ())]
    planned = batches(experiment, left, earlier)
    assert [cell for batch in planned for cell in batch.cells] == left
    assert max(len(batch.instance_types) for batch in planned) == LARGEST_JOB
    assert [batch.name.removeprefix(f"{experiment.name}-") for batch in planned] == [
        *("ts-base-2", "ts-base-3", "ts-base-4", "ort-base", "a-variant-whose", "a-variant-whos-2")
    ]
    assert max(len(batch.name) for batch in planned) <= LONGEST_NAME


def test_a_job_tests_one_variants_model_on_the_types_of_its_cells() -> None:
    chosen = cells(REVIEWS, ["trt-*"])
    experiment = _experiment(*chosen)
    plans = [job_plan(experiment, batch, REVIEWS.workload, TESTED) for batch in batches(experiment, chosen, ())]
    assert [plan.job_name.removeprefix(f"{experiment.name}-") for plan in plans] == [
        *("trt-base", "trt-db", "trt-ig", "trt-db-ig")
    ]
    for plan in plans:
        (request,) = plan.requests
        types = [one["InstanceType"] for one in request["InputConfig"]["EndpointConfigurations"]]
        assert types == ["ml.g4dn.xlarge", "ml.g4dn.2xlarge", "ml.g4dn.12xlarge", "ml.g5.xlarge"]
        assert request["InputConfig"]["ContainerConfig"]["SupportedInstanceTypes"] == types


class Account(SageMakerAccount):
    """An account with a stack."""

    region = "us-east-1"

    def __init__(self) -> None:
        """Opens no session."""

    def stack_output(self, stack: str, key: str, instead: str = "") -> str:
        return key

    def model(self, name: str) -> dict[str, Any]:
        return {"PrimaryContainer": {"Image": "the stack's"}}


KIND = "triton-24.09-gpu"


def _pushed(root: Path, content: str, region: str) -> str:
    registry = f"123456789012.dkr.ecr.{region}.amazonaws.com"
    digest = f"sha256:{'a' * 64}"
    image = OwnImage(kind=KIND, registry=registry, repository="r", digest=digest, content=content)
    image.write_json(image_file(root, KIND))
    return image.uri


def test_the_stacks_image_runs_on_its_hardware_and_the_projects_own_on_other(tmp_path: Path) -> None:
    """The stack of question_answering hosts Inf1."""
    workload = ANSWERS.workload
    assert default_image(workload, "ml.inf1.xlarge", "neuron", Account(), tmp_path) == "the stack's"
    assert default_image(REVIEWS.workload, "ml.c5.xlarge", "onnxruntime", Account(), tmp_path) == "the stack's", (
        "a GPU's"
    )
    for content, region in ((None, ""), ("b" * 64, "us-east-1"), (content_of(KIND), "eu-west-1")):
        if content is not None:
            _pushed(tmp_path, content, region)
        with pytest.raises(ProjectError) as caught:
            default_image(workload, "ml.g4dn.xlarge", "torchscript", Account(), tmp_path)
        assert str(caught.value) == (
            "recommender.images: ml.g4dn.xlarge needs another image than the stack's model, and no image of what "
            "containers/ has now was pushed to us-east-1. Build and push it with `bash "
            "scripts/release/build_image.sh triton-24.09-gpu`, or set recommender.images.gpu."
        )
    ours = _pushed(tmp_path, content_of(KIND), "us-east-1")
    assert default_image(workload, "ml.g4dn.xlarge", "torchscript", Account(), tmp_path) == ours


def test_a_named_image_replaces_the_default() -> None:
    both = cells(ANSWERS, ["inf1-data-parallel", "gpu-autocast"])

    def default(instance_type: str, runtime: str) -> str:
        return f"default of {instance_type} for {runtime}"

    assert images(both, ANSWERS.workload, {"gpu": "g"}, default) == {
        "inf1": "default of ml.inf1.xlarge for neuron",
        "gpu": "g",
    }
    assert images(both, ANSWERS.workload, {"gpu": "g", "all": "rest"}, default) == {"inf1": "rest", "gpu": "g"}


def test_a_cuda_target_has_an_image_with_pytorch() -> None:
    both = cells(REVIEWS, ["graphs-base", "trt-base"], ["ml.g4dn.xlarge"])
    chosen = images(both, REVIEWS.workload, {}, partial(placeholder_image, REVIEWS.workload))
    assert {kind: uri.rpartition(":")[2] for kind, uri in chosen.items()} == {
        "gpu": KIND,
        "gpu-torch": f"{KIND}-torch",
    }
    batch = batches(_experiment(*both), both, ())[0]
    access = ExperimentAccess(role_arn="r", images=chosen, bucket="b")
    artifact = an_artifact(workload="text_classification", variant=batch.variant, runtime="cuda")
    assert access.model_request(batch, artifact, datetime.now(UTC))["PrimaryContainer"]["Image"] == chosen["gpu-torch"]


@pytest.mark.parametrize(
    ("image", "instance_type", "named", "ami"),
    [
        ("sagemaker-tritonserver:25.09-py3", "ml.g4dn.xlarge", None, "al2023-ami-sagemaker-inference-gpu-4-1"),
        ("team/triton@sha256:0", "ml.g4dn.xlarge", None, None),  # the default version is 24.09
        ("sagemaker-tritonserver:25.09-py3", "ml.c5.xlarge", None, None),
        ("sagemaker-tritonserver:25.09-py3", "ml.g5.xlarge", "ami", "ami"),
        ("sagemaker-tritonserver:25.09-py3", "ml.c5.xlarge", "ami", None),
        ("sagemaker-tritonserver:25.09-py3", "ml.inf1.xlarge", "ami", None),
    ],
)
def test_the_host_ami_is_the_named_one_or_what_the_image_needs_on_the_type(
    image: str, instance_type: str, named: str | None, ami: str | None
) -> None:
    chosen: dict[Any, str] = {"gpu": f"763104351884.dkr.ecr.us-east-1.amazonaws.com/{image}", "inf1": "i"}
    settings = REVIEWS.workload.recommender.model_copy(update={"host_ami": named})
    workload = REVIEWS.workload.model_copy(update={"recommender": settings})
    assert host_ami(workload, chosen, instance_type) == ami
