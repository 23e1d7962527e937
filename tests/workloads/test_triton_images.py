"""URIs of AWS's images, as sagemaker-core returns them, and the Triton versions that hosts start."""

import pytest
from sagemaker.core import image_uris

from aws_api import service_model
from tests.locks import pins
from workloads import ROOT
from workloads.images import (
    AMI_DRIVERS,
    CPU_DEFAULT,
    DEFAULT_DRIVERS,
    GPU_DEFAULT,
    PYTORCH_CPU,
    TRITON,
    TRITON_IMAGES,
    default_version,
    host_ami,
    image_uri,
    newest_on,
    pytorch_cpu_image,
    starts,
    triton_registries,
    version_in,
)
from workloads.own_images import TRITON_LOCKS


@pytest.mark.parametrize(
    ("version", "instance_type", "ami", "expected"),
    [
        ("24.09", "ml.g4dn.xlarge", None, True),
        ("24.09", "ml.g5.xlarge", None, True),
        ("24.09", "ml.g6.xlarge", None, True),
        ("25.04", "ml.g5.xlarge", None, False),
        ("25.04", "ml.g6.xlarge", None, True),
        ("25.09", "ml.g4dn.xlarge", None, False),
        ("25.09", "ml.g6.xlarge", None, None),
        ("25.09", "ml.g6.xlarge", "al2023-ami-sagemaker-inference-gpu-4-1", True),
        ("26.05", "ml.g4dn.xlarge", "al2023-ami-sagemaker-inference-gpu-4-1", True),
        ("27.01", "ml.g5.xlarge", None, None),
        (None, "ml.g5.xlarge", None, None),
        ("25.09", "ml.p9.xlarge", None, None),
        ("25.09", "ml.c5.xlarge", None, True),
    ],
)
def test_an_image_starts_on_the_drivers_that_the_sources_list(
    version: str | None, instance_type: str, ami: str | None, expected: bool | None
) -> None:
    assert starts(version, instance_type, ami) is expected


def test_the_default_image_starts_on_every_known_gpu_family_without_an_ami() -> None:
    assert all(starts(GPU_DEFAULT, f"ml.{family}.xlarge") for family in DEFAULT_DRIVERS)
    assert default_version("ml.g5.xlarge") == GPU_DEFAULT
    assert default_version("ml.c5.xlarge") == CPU_DEFAULT


@pytest.mark.parametrize("version", TRITON_IMAGES)
@pytest.mark.parametrize("family", ["g4dn", "g5", "g6", "g6e"])
def test_the_ami_of_an_image_has_a_driver_that_starts_it(version: str, family: str) -> None:
    assert starts(version, f"ml.{family}.xlarge", host_ami(version, f"ml.{family}.xlarge"))


def test_a_host_gets_an_ami_only_if_its_default_driver_does_not_start_the_image() -> None:
    assert host_ami("24.09", "ml.g5.xlarge") is None
    assert host_ami("25.04", "ml.g5.xlarge") == "al2-ami-sagemaker-inference-gpu-3-1"
    assert host_ami("25.04", "ml.g6.xlarge") is None
    assert host_ami("25.09", "ml.c5.xlarge") is None
    assert host_ami("27.01", "ml.g5.xlarge") is None


def test_the_newest_image_that_starts_depends_on_the_family() -> None:
    assert newest_on("ml.g4dn.xlarge") == "24.09"
    assert newest_on("ml.g6.xlarge") == "25.04"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("24.09", "24.09"),
        ("24.09-py3", "24.09"),
        ("301217895009.dkr.ecr.eu-west-1.amazonaws.com/sagemaker-tritonserver:25.04-py3", "25.04"),
        ("000000000000.dkr.ecr.eu-west-1.amazonaws.com/transformers-in-production:triton-24.09-gpu-0a1b2c", "24.09"),
        ("nvcr.io/nvidia/tritonserver:24.09-py3", "24.09"),
        ("000000000000.dkr.ecr.eu-west-1.amazonaws.com/team/triton@sha256:00", None),
        ("000000000000.dkr.ecr.eu-west-1.amazonaws.com/team/model:25.04", None),
    ],
)
def test_the_version_is_read_from_a_tag_or_an_image_name(image: str, version: str | None) -> None:
    assert version_in(image) == version


def test_the_amis_are_those_of_the_api() -> None:
    known = service_model.enum("sagemaker", "ProductionVariantInferenceAmiVersion")
    assert set(AMI_DRIVERS) <= set(known)
    assert {image.host_ami for image in TRITON_IMAGES.values()} <= set(AMI_DRIVERS)


@pytest.mark.parametrize("kind", [kind for kind in TRITON_LOCKS if kind.endswith("-gpu")])
def test_the_bindings_of_a_gpu_image_are_of_the_tables_tensorrt_and_cuda(kind: str) -> None:
    image, locked = TRITON_IMAGES[kind.split("-")[1]], pins(ROOT / "containers/triton" / TRITON_LOCKS[kind])
    major = image.cuda.partition(".")[0]
    assert image.tensorrt is not None
    assert image.tensorrt.startswith(locked[f"tensorrt-cu{major}-bindings"])
    assert locked["cuda-bindings"].startswith(f"{major}.")


def test_each_version_that_sagemaker_publishes_has_an_entry() -> None:
    assert set(triton_registries()) <= set(TRITON_IMAGES)


def triton_uri(version: str, region: str) -> str:
    return image_uri(f"{TRITON}:{version}-py3", region, (TRITON, "versions", version), "hosting.image_uri")


def retrieved(version: str, region: str) -> str:
    return str(image_uris.retrieve(TRITON, region, version=version, instance_type="ml.g4dn.xlarge"))


@pytest.mark.parametrize("version", ["24.09", "25.09"])
def test_a_triton_image_has_the_uri_of_sagemaker_core_in_each_region(version: str) -> None:
    regions = triton_registries()[version]
    assert {region: triton_uri(version, region) for region in regions} == {
        region: retrieved(version, region) for region in regions
    }


def test_every_version_has_the_uri_of_sagemaker_core() -> None:
    assert sorted(triton_registries()) == sorted(image_uris.list_versions(TRITON))
    for version in triton_registries():
        assert triton_uri(version, "us-east-1") == retrieved(version, "us-east-1")


def test_the_image_of_processing_jobs_has_the_uri_of_sagemaker_core() -> None:
    version = PYTORCH_CPU.partition(":")[2].partition("-")[0]
    uri = image_uris.retrieve(
        "pytorch",
        "eu-west-1",
        version=version,
        py_version="py313",
        instance_type="ml.c5.xlarge",
        image_scope="training",
    )
    assert pytorch_cpu_image("eu-west-1", "--image-uri") == uri
