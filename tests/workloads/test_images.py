"""The URIs of AWS's images are those that sagemaker-core returns itself."""

import pytest
from sagemaker.core import image_uris

from workloads.images import PYTORCH_CPU, TRITON, image_uri, pytorch_cpu_image, triton_registries


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
