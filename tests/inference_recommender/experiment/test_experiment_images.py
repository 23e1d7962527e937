"""The container image of each kind of hardware in an experiment."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from inference_recommender.experiment.cells import cells
from inference_recommender.experiment.images import ImageKey, host_ami, resolved, stand_ins
from workloads import UsageError, load_workload
from workloads.own_images import OwnImage, content_of, image_file

ANSWERS = load_workload("question_answering")
"""Its stack hosts Inf1."""
BOTH = cells(ANSWERS, ["inf1-data-parallel", "gpu-autocast"])
KIND = "triton-25.09-gpu"


def images(
    root: Path, named: Mapping[ImageKey, str] | None = None, stacks: Callable[[], str] = lambda: "the stack's"
) -> object:
    return resolved(BOTH, ANSWERS.workload, named or {}, stacks, lambda: "us-east-1", root)


def built(root: Path, content: str, region: str = "us-east-1") -> OwnImage:
    image = OwnImage(
        kind=KIND,
        registry=f"123456789012.dkr.ecr.{region}.amazonaws.com",
        repository="r",
        digest=f"sha256:{'a' * 64}",
        content=content,
    )
    image.write_json(image_file(root, KIND))
    return image


def unknown() -> str:
    raise AssertionError("the stack was asked")


def test_the_stacks_image_runs_on_its_hardware_and_the_projects_own_on_the_other(tmp_path: Path) -> None:
    ours = built(tmp_path, content_of(KIND))
    assert images(tmp_path) == {"inf1": "the stack's", "gpu": ours.uri}


def test_a_named_image_replaces_both(tmp_path: Path) -> None:
    assert images(tmp_path, {"gpu": "g", "all": "rest"}, unknown) == {"inf1": "rest", "gpu": "g"}
    assert images(tmp_path, {"all": "all"}, unknown) == {"inf1": "all", "gpu": "all"}


@pytest.mark.parametrize(
    ("content", "region", "why"),
    [
        (None, "", "the project's own image is not built"),
        ("b" * 64, "us-east-1", "the project's own image was built from other files than containers/ has now"),
        ("", "eu-west-1", "the project's own image is in eu-west-1"),
    ],
)
def test_hardware_without_an_image_is_refused_with_the_command_that_builds_one(
    tmp_path: Path, content: str | None, region: str, why: str
) -> None:
    if content is not None:
        built(tmp_path, content or content_of(KIND), region)
    with pytest.raises(UsageError) as caught:
        images(tmp_path)
    assert str(caught.value) == (
        f"recommender.images: ml.g4dn.xlarge needs another image than the stack's model, and {why}. Build and push one "
        "for us-east-1 with `bash scripts/release/build_image.sh triton-25.09-gpu`, or set recommender.images.gpu."
    )


def test_tritons_image_for_gpus_serves_cpus_too() -> None:
    reviews = load_workload("text_classification")
    mixed = cells(reviews, ["pt-base", "ort-base"])
    assert resolved(mixed, reviews.workload, {}, lambda: "s", unknown) == {"gpu": "s", "cpu": "s"}


def test_a_plan_without_an_account_names_the_kinds_that_would_be_pulled() -> None:
    registry = "ACCOUNT.dkr.ecr.REGION.amazonaws.com/transformers-in-production"
    assert stand_ins(BOTH, ANSWERS.workload, {"gpu": "g"}) == {"inf1": f"{registry}:inf1", "gpu": "g"}
    assert stand_ins(BOTH, ANSWERS.workload, {}) == {"inf1": f"{registry}:inf1", "gpu": f"{registry}:{KIND}"}


@pytest.mark.parametrize(
    ("image", "ami"),
    [
        ("sagemaker-tritonserver:25.09-py3", "al2023-ami-sagemaker-inference-gpu-4-1"),
        ("sagemaker-tritonserver:24.09-py3", "al2-ami-sagemaker-inference-gpu-3-1"),
        ("sagemaker-tritonserver:19.01-py3", None),
        ("team/triton@sha256:0", "al2023-ami-sagemaker-inference-gpu-4-1"),  # hosting.triton_version is 25.09
    ],
)
def test_the_host_ami_is_that_of_the_images_triton(image: str, ami: str | None) -> None:
    workload = load_workload("text_classification").workload
    assert host_ami(workload, {"gpu": f"763104351884.dkr.ecr.us-east-1.amazonaws.com/{image}"}) == ami
    assert host_ami(workload, {"cpu": image}) is None
