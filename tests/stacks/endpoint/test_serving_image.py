"""The image and the host AMI: the stock one by region, one's own, and every pair that is refused."""

import re

import pytest
from aws_cdk import Environment

from tests.stacks.miniature import Repository, candidate

IRELAND = Environment(account="123456789012", region="eu-west-1")


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
        (None, "ml.g4dn.xlarge", None),
        (None, "ml.g6.xlarge", None),
        ("25.04", "ml.g4dn.xlarge", "al2-ami-sagemaker-inference-gpu-3-1"),
        ("25.09", "ml.g6.xlarge", "al2023-ami-sagemaker-inference-gpu-4-1"),
        ("25.09", "ml.g5.xlarge", "al2023-ami-sagemaker-inference-gpu-4-1"),
        ("25.09", "ml.c6i.xlarge", None),
    ],
)
def test_the_host_ami_carries_a_driver_for_the_images_cuda(
    repository: Repository, version: str | None, instance_type: str, ami: str | None
) -> None:
    gpu = instance_type != "ml.c6i.xlarge"
    named = {"triton_version": version} if version else {}
    repository.build("tensorrt", toolchain={"compute_capability": "7.5, 8.6, 8.9"})
    repository.host("tensorrt" if gpu else "cpu", instance_types=[instance_type], **named)
    synthesis = repository.synthesise()
    (variant,) = synthesis.only("AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert variant.get("InferenceAmiVersion") == ami
    assert f":triton-{version or '24.09'}-{'gpu' if gpu else 'cpu'}-" in str(synthesis.only("AWS::SageMaker::Model"))


def test_the_ami_follows_the_recommended_instance_type(repository: Repository) -> None:
    repository.host("tensorrt", triton_version="25.04")
    repository.recommend(candidate(instance_type="ml.g5.xlarge"))
    (variant,) = repository.synthesise().only("AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert variant["InstanceType"] == "ml.g5.xlarge"
    assert variant["InferenceAmiVersion"] == "al2-ami-sagemaker-inference-gpu-3-1"


def test_a_host_of_which_no_source_says_that_it_starts_the_image_is_a_warning(repository: Repository) -> None:
    uri = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/triton:latest"
    repository.host("tensorrt", image_uri=uri, instance_types=["ml.g5.xlarge"])
    synthesis = repository.synthesise()
    assert any(
        "no source says whether the image of hosting.image_uri starts with the GPU driver of ml.g5.xlarge" in warning
        for warning in synthesis.warnings()
    )
