"""The options of an endpoint: types, updates, scaling, network, captured data, shadow, images and host AMIs."""

import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Environment

from stacks.context import Options
from stacks.endpoint.served_model import startup_timeouts
from tests.stacks.endpoint.test_endpoint_stack import actions_of
from tests.stacks.miniature import Repository, Synthesis, candidate, make_repository

PRODUCTION = Options(stage="production")
OWN_NEURON = "123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron:1"


def rollback_alarms(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    named = deployment_config(synthesis)["AutoRollbackConfiguration"]["Alarms"]
    ids = [alarm["AlarmName"]["Ref"] for alarm in named]
    return {id: synthesis.json["Resources"][id]["Properties"] for id in ids}


def test_alarms_on_latency_and_errors_roll_an_update_back(everything: Synthesis) -> None:
    limits = {alarm["MetricName"]: alarm["Threshold"] for alarm in rollback_alarms(everything).values()}
    assert limits == {
        "ModelLatency": 50_000,
        "OverheadLatency": 20_000,
        "Invocation5XXErrors": 0.001,
        "InvocationModelErrors": 0.001,
        "Invocation4XXErrors": 0.05,
    }


def test_rollback_alarms_watch_only_the_new_fleet_so_a_fix_of_a_bad_fleet_can_be_deployed(
    everything: Synthesis,
) -> None:
    (config,) = everything.of_type("AWS::SageMaker::EndpointConfig")
    config_name = {"Fn::GetAtt": [config, "EndpointConfigName"]}
    for alarm in rollback_alarms(everything).values():
        dimensions = {each["Name"]: each["Value"] for each in alarm["Dimensions"]}
        assert dimensions == {
            "EndpointName": "SpellcheckStack",
            "VariantName": "AllTraffic",
            "EndpointConfigName": config_name,
        }
        # A new name for each configuration: CloudWatch keeps the state of an alarm that changes its metric.
        assert config_name in alarm["AlarmName"]["Fn::Join"][1]


def test_the_models_role_may_read_the_rollback_alarms_before_the_update_begins(everything: Synthesis) -> None:
    ((policy, arns),) = (
        (id, statement["Resource"])
        for id, each in everything.of_type("AWS::IAM::Policy").items()
        for statement in each["Properties"]["PolicyDocument"]["Statement"]
        if statement["Action"] == "cloudwatch:DescribeAlarms"
    )
    assert sorted(each["Fn::GetAtt"][0] for each in arns) == sorted(rollback_alarms(everything))
    (model, *_) = everything.of_type("AWS::SageMaker::Model").values()
    roles = everything.json["Resources"][policy]["Properties"]["Roles"]
    assert [each["Ref"] for each in roles] == [model["Properties"]["ExecutionRoleArn"]["Fn::GetAtt"][0]]
    (endpoint,) = everything.of_type("AWS::SageMaker::Endpoint").values()
    assert policy in endpoint["DependsOn"]


def test_a_production_log_outlives_its_endpoint(everything: Synthesis, measured: Synthesis) -> None:
    policies = [
        next(
            (each["DeletionPolicy"], each["Properties"]["RetentionInDays"])
            for each in synthesis.of_type("AWS::Logs::LogGroup").values()
            if each["Properties"].get("LogGroupName") == "/aws/sagemaker/Endpoints/SpellcheckStack"
        )
        for synthesis in (everything, measured)
    ]
    assert policies == [("RetainExceptOnCreate", 30), ("Delete", 30)]


def test_sagemaker_creates_no_log_group_of_its_own(measured: Synthesis) -> None:
    (endpoint,) = measured.of_type("AWS::SageMaker::Endpoint").values()
    assert set(measured.of_type("AWS::Logs::LogGroup")) <= set(endpoint["DependsOn"])


def test_a_new_network_reaches_only_the_aws_services(everything: Synthesis) -> None:
    found = everything.of_type
    zones = [subnet["Properties"]["AvailabilityZoneId"] for subnet in found("AWS::EC2::Subnet").values()]
    assert zones == ["use1-az4", "use1-az6"]
    assert not found("AWS::EC2::InternetGateway")
    assert not found("AWS::EC2::NatGateway")
    called = {
        str(item["Properties"]["ServiceName"]).split(".")[-1].strip("'}]")
        for item in found("AWS::EC2::VPCEndpoint").values()
    }
    assert called == {"s3", "api", "dkr", "logs", "monitoring", "kms"}
    for model in found("AWS::SageMaker::Model").values():
        assert len(model["Properties"]["VpcConfig"]["Subnets"]) == 2


def test_the_endpoints_role_may_join_the_network(everything: Synthesis) -> None:
    assert "ec2:CreateNetworkInterface" in actions_of(everything, "ServingRole")


def test_an_existing_network_is_used_unchanged(repository: Repository) -> None:
    network = {"kind": "existing-vpc", "subnet_ids": ["subnet-0a", "subnet-0b"], "security_group_ids": ["sg-0c"]}
    repository.host(network=network)
    synthesis = repository.synthesise()
    assert synthesis.only("AWS::SageMaker::Model")["VpcConfig"] == {
        "Subnets": ["subnet-0a", "subnet-0b"],
        "SecurityGroupIds": ["sg-0c"],
    }
    assert not synthesis.of_type("AWS::EC2::VPC")


def test_a_named_kms_key_is_used(repository: Repository) -> None:
    arn = "arn:aws:kms:us-east-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
    repository.host(kms_key_arn=arn, data_capture={"percent": 5})
    synthesis = repository.synthesise()
    config = synthesis.only("AWS::SageMaker::EndpointConfig")
    assert config["KmsKeyId"] == config["DataCaptureConfig"]["KmsKeyId"] == arn
    (rule,) = synthesis.only("AWS::S3::Bucket")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": arn}
    assert len(synthesis.of_type("AWS::KMS::Key")) == 1  # the paging topic's, which CloudWatch has to be let use


def test_inferentia_uses_the_named_image_without_triton_settings(tmp_path: Path) -> None:
    repository = make_repository(tmp_path, "question_answering")
    repository.host("inf2", image_uri=OWN_NEURON)
    synthesis = repository.synthesise()
    container = synthesis.only("AWS::SageMaker::Model")["PrimaryContainer"]
    assert container["Image"] == OWN_NEURON
    assert not [name for name in container["Environment"] if name.startswith("SAGEMAKER_TRITON")]
    (variant,) = synthesis.only("AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert variant["InstanceType"] == "ml.inf2.xlarge"
    assert "InferenceAmiVersion" not in variant
    assert [warning for warning in synthesis.warnings() if "recommendation:missing" not in warning] == []


def test_inf1_warns_that_no_alarm_rolls_an_update_back(tmp_path: Path) -> None:
    repository = make_repository(tmp_path, "question_answering")
    repository.host("inf1-data-parallel", image_uri=OWN_NEURON, update={"strategy": "canary"})
    repository.recommend(candidate(instance_type="ml.inf1.xlarge"))
    synthesis = repository.synthesise(options=PRODUCTION)
    assert synthesis.warnings() == [
        f"{repository.workload_file}: hosting: SageMaker excludes endpoints on Inf1 (ml.inf1.xlarge) from deployment "
        "guardrails and shadow tests: an update moves all traffic at once, and no alarm rolls it back. With "
        'hosting.kind = "ecs-service" the same build is rolled back by itself; workloads/query_intent shows how. '
        "[ack: guardrails:inf1]"
    ]
    assert synthesis.notes("inferentia:legacy") == [
        f"{repository.workload_file}: hosting.target: 'inf1-data-parallel' is for Inf1, which AWS calls legacy: its "
        "last images are Neuron 2.20's, its last driver is 2.24. New projects go to Inf2: build it for inf2 and say "
        'hosting.target = "inf2".'
    ]
    assert "DeploymentConfig" not in synthesis.only("AWS::SageMaker::Endpoint")


def test_a_type_in_only_one_zone_gives_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = make_repository(tmp_path, "question_answering")
    repository.host("inf2", image_uri=OWN_NEURON)
    repository.recommend(candidate(instance_type="ml.inf2.xlarge"))
    monkeypatch.setattr("workloads.instances.zones", lambda family: {"us-east-1": ("use1-az4",)})
    virginia = Environment(account="123456789012", region="us-east-1")
    synthesis = repository.synthesise(virginia, PRODUCTION)
    assert synthesis.warnings() == [
        f"{repository.recommendation_file}: recommended.instance_type: only zone use1-az4 of us-east-1 has "
        "ml.inf2.xlarge, so the fleet cannot outlive it. Deploy to another region, or accept it. [ack: zones:one]"
    ]
    assert synthesis.notes("inferentia:legacy") == []
    assert "AutoRollbackConfiguration" in synthesis.only("AWS::SageMaker::Endpoint")["DeploymentConfig"]


@pytest.mark.parametrize(
    ("archive_bytes", "download_s", "start_s"),
    [(7_000_000, 60, 300), (1_340_000_000, 127, 434), (500_000_000_000, 3600, 3600)],
)
def test_the_wait_grows_with_the_archive_within_sagemakers_limits(
    archive_bytes: int, download_s: int, start_s: int
) -> None:
    assert startup_timeouts(archive_bytes) == (download_s, start_s)


def deployment_config(synthesis: Synthesis) -> dict[str, Any]:
    return dict(synthesis.only("AWS::SageMaker::Endpoint")["DeploymentConfig"])


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
