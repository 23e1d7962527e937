"""The image and the host AMI: the stock one by region, one's own, and every pair that is refused."""

import re

import pytest
from aws_cdk import Environment

from tests.stacks.miniature import Repository, candidate
from workloads.images import triton_registries
from workloads.instances import HOST_AMIS

IRELAND = Environment(account="123456789012", region="eu-west-1")


def test_the_registries_know_every_version_of_the_ami_table() -> None:
    assert set(HOST_AMIS) <= set(triton_registries())


def test_an_image_of_ones_own_replaces_the_stock_one_and_only_its_repository_may_be_pulled(
    repository: Repository,
) -> None:
    uri = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/triton:25.09"
    repository.host(image_uri=uri)
    synthesis = repository.synthesise(IRELAND)
    assert synthesis.only("AWS::SageMaker::Model")["PrimaryContainer"]["Image"] == uri
    repositories = set(re.findall(r":ecr:[^\"]+", str(synthesis.json).replace("'", '"')))
    generators = ":ecr:eu-west-1:*:repository/pytorch-training"
    assert repositories - {generators} == {":ecr:eu-west-1:123456789012:repository/team/triton"}


@pytest.mark.parametrize(
    ("version", "instance_type", "ami"),
    [
        ("25.04", "ml.g4dn.xlarge", "al2-ami-sagemaker-inference-gpu-3-1"),
        ("25.09", "ml.g5.xlarge", "al2023-ami-sagemaker-inference-gpu-4-1"),
        ("25.09", "ml.c6i.xlarge", None),
    ],
)
def test_the_host_ami_carries_a_driver_for_the_images_cuda(
    repository: Repository, version: str, instance_type: str, ami: str | None
) -> None:
    repository.host("tensorrt" if ami else "cpu", triton_version=version, instance_types=[instance_type])
    synthesis = repository.synthesise()
    (variant,) = synthesis.only("AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert variant.get("InferenceAmiVersion") == ami
    processor = "gpu" if ami else "cpu"
    assert f":triton-{version}-{processor}-" in str(synthesis.only("AWS::SageMaker::Model"))


def test_the_ami_follows_the_recommended_instance_type(repository: Repository) -> None:
    repository.host("tensorrt")
    repository.recommend(candidate(instance_type="ml.g5.xlarge"))
    (variant,) = repository.synthesise().only("AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert variant["InstanceType"] == "ml.g5.xlarge"
    assert variant["InferenceAmiVersion"] == "al2023-ami-sagemaker-inference-gpu-4-1"
