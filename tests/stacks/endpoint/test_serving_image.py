"""The image and the host AMI: the stock one by region, one's own, and every pair that is refused."""

import re
from pathlib import Path

import pytest
from aws_cdk import Environment

from tests.stacks.miniature import Repository, candidate, make_repository
from workloads import UsageError
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


@pytest.mark.parametrize(
    ("workload", "target", "version", "instance_type"),
    [
        ("spellcheck", "tensorrt", "25.06", "ml.g5.xlarge"),
        ("text_classification", "pytorch", "25.09", "ml.p3.2xlarge"),
        ("text_classification", "pytorch", "25.09", "ml.g6.xlarge"),
    ],
)
def test_a_pair_of_image_and_host_that_is_not_known_to_start_is_refused(
    tmp_path: Path, workload: str, target: str, version: str, instance_type: str
) -> None:
    repository = make_repository(tmp_path, workload)
    repository.host(target, triton_version=version, instance_types=[instance_type])
    with pytest.raises(UsageError) as refusal:
        repository.synthesise()
    assert str(refusal.value) == (
        f"{repository.workload_file}: hosting: no host AMI is known to start Triton {version} on {instance_type}. "
        "Known: Triton 24.01, 24.03, 24.05, 24.09, 25.04, 25.09, 26.05 on g4dn, g5. "
        "Choose such a pair, or a CPU instance type."
    )


def test_a_version_that_sagemaker_does_not_publish_is_refused(repository: Repository) -> None:
    repository.host(triton_version="25.06")
    with pytest.raises(UsageError) as refusal:
        repository.synthesise()
    assert str(refusal.value) == (
        f"{repository.workload_file}: hosting.triton_version: got '25.06', which SageMaker does not publish. "
        f"Published: {', '.join(sorted(triton_registries()))}. "
        "Choose one of them, or set hosting.image_uri to your own image."
    )


def test_a_region_without_the_image_is_refused(repository: Repository) -> None:
    with pytest.raises(UsageError) as refusal:
        repository.synthesise(Environment(account="123456789012", region="us-gov-west-1"))
    assert str(refusal.value) == (
        f"{repository.workload_file}: hosting.triton_version: SageMaker does not publish Triton 25.09 in "
        f"us-gov-west-1, only in {', '.join(sorted(triton_registries()['25.09']))}. Deploy to one of these regions, "
        "choose another version, or set hosting.image_uri to your own image."
    )


@pytest.mark.parametrize("uri", ["nvcr.io/nvidia/tritonserver:25.09-py3", "triton", "1.dkr.ecr.x.amazonaws.com/a:b"])
def test_an_image_outside_amazon_ecr_is_refused(repository: Repository, uri: str) -> None:
    repository.host(image_uri=uri)
    with pytest.raises(UsageError) as refusal:
        repository.synthesise()
    assert str(refusal.value) == (
        f"{repository.workload_file}: hosting.image_uri: got '{uri}', but AWS pulls from private Amazon ECR "
        "only: <account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag> (or @sha256:<digest>). "
        "Push the image there first."
    )
