"""The options of an endpoint: fallback types, guarded updates, scaling rules, network, captured data, shadow."""

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Environment

from stacks.context import Options
from stacks.endpoint.served_model import startup_timeouts
from tests.stacks.conftest import SHADOW_IMAGE
from tests.stacks.endpoint.test_endpoint_stack import actions_of
from tests.stacks.miniature import Repository, Synthesis, candidate, make_repository

PRODUCTION = Options(stage="production")
OWN_NEURON = "123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron:1"


def test_a_g4dn_is_tried_where_a_g5_cannot_be_had(everything: Synthesis) -> None:
    (variant,) = everything.only("AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert "InstanceType" not in variant
    assert variant["InstancePools"] == [
        {"InstanceType": "ml.g5.xlarge", "Priority": 1},
        {"InstanceType": "ml.g4dn.xlarge", "Priority": 2},
    ]
    assert variant["InferenceAmiVersion"] == "al2023-ami-sagemaker-inference-gpu-4-1"


@pytest.mark.parametrize(
    ("update", "policy"),
    [
        (
            {"strategy": "all-at-once", "bake_s": 900},
            {
                "BlueGreenUpdatePolicy": {
                    "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
                    "TerminationWaitInSeconds": 900,
                    "MaximumExecutionTimeoutInSeconds": 28800,
                }
            },
        ),
        (
            {"strategy": "canary", "percent": 40},
            {
                "BlueGreenUpdatePolicy": {
                    "TrafficRoutingConfiguration": {
                        "Type": "CANARY",
                        "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 40},
                        "WaitIntervalInSeconds": 600,
                    },
                    "TerminationWaitInSeconds": 600,
                    "MaximumExecutionTimeoutInSeconds": 28800,
                }
            },
        ),
        (
            {"strategy": "linear", "percent": 50},
            {
                "BlueGreenUpdatePolicy": {
                    "TrafficRoutingConfiguration": {
                        "Type": "LINEAR",
                        "LinearStepSize": {"Type": "CAPACITY_PERCENT", "Value": 50},
                        "WaitIntervalInSeconds": 300,
                    },
                    "TerminationWaitInSeconds": 300,
                    "MaximumExecutionTimeoutInSeconds": 28800,
                }
            },
        ),
        (
            {"strategy": "rolling", "percent": 34, "bake_s": 400},
            {
                "RollingUpdatePolicy": {
                    "MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 34},
                    "WaitIntervalInSeconds": 400,
                    "MaximumExecutionTimeoutInSeconds": 28800,
                    "RollbackMaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 100},
                }
            },
        ),
    ],
)
def test_production_is_updated_as_the_workload_says(
    repository: Repository, update: dict[str, object], policy: dict[str, object]
) -> None:
    repository.host(update=update)
    repository.recommend(candidate())
    asked = deployment_config(repository.synthesise(options=PRODUCTION))
    assert {key: value for key, value in asked.items() if key != "AutoRollbackConfiguration"} == policy


@pytest.mark.parametrize(
    ("update", "policy", "size"),
    [
        ({"strategy": "canary"}, ("BlueGreenUpdatePolicy", "TrafficRoutingConfiguration"), "CanarySize"),
        (
            {"strategy": "linear", "percent": 10},
            ("BlueGreenUpdatePolicy", "TrafficRoutingConfiguration"),
            "LinearStepSize",
        ),
        ({"strategy": "rolling"}, ("RollingUpdatePolicy",), "MaximumBatchSize"),
    ],
)
def test_a_share_of_less_than_one_instance_is_one(
    repository: Repository, update: dict[str, object], policy: tuple[str, ...], size: str
) -> None:
    """SageMaker does not document what it makes of a tenth of two instances; one of two is its upper bound, a half."""
    repository.host(update=update)
    repository.recommend(candidate(instance_count=2))
    asked = deployment_config(repository.synthesise(options=PRODUCTION))
    for key in policy:
        asked = asked[key]
    assert asked[size] == {"Type": "INSTANCE_COUNT", "Value": 1}


def test_alarms_on_latency_and_errors_roll_an_update_back(everything: Synthesis) -> None:
    alarms = deployment_config(everything)["AutoRollbackConfiguration"]["Alarms"]
    named = [everything.json["Resources"][alarm["AlarmName"]["Ref"]]["Properties"]["MetricName"] for alarm in alarms]
    assert named == [
        "ModelLatency",
        "OverheadLatency",
        "Invocation5XXErrors",
        "InvocationModelErrors",
        "Invocation4XXErrors",
    ]


def test_beta_is_updated_at_once_since_its_load_test_turns_the_alarms_on(measured: Synthesis) -> None:
    assert "DeploymentConfig" not in measured.only("AWS::SageMaker::Endpoint")


def test_concurrency_is_tracked_too_where_the_workload_asks(everything: Synthesis) -> None:
    policies = everything.of_type("AWS::ApplicationAutoScaling::ScalingPolicy").values()
    tracked = [policy["Properties"]["TargetTrackingScalingPolicyConfiguration"] for policy in policies]
    assert [
        (each["PredefinedMetricSpecification"]["PredefinedMetricType"], each["TargetValue"], each["DisableScaleIn"])
        for each in tracked
    ] == [
        ("SageMakerVariantInvocationsPerInstance", 3210.5, True),
        ("SageMakerVariantConcurrentRequestsPerModelHighResolution", 8, True),
    ]


def test_minimums_follow_the_clock(everything: Synthesis) -> None:
    assert everything.only("AWS::ApplicationAutoScaling::ScalableTarget")["ScheduledActions"] == [
        {
            "ScheduledActionName": "Minimum0",
            "Schedule": "cron(0 7 ? * MON-FRI *)",
            "Timezone": "Europe/Berlin",
            "ScalableTargetAction": {"MinCapacity": 5},
        },
        {
            "ScheduledActionName": "Minimum1",
            "Schedule": "cron(0 22 ? * MON-FRI *)",
            "Timezone": "Europe/Berlin",
            "ScalableTargetAction": {"MinCapacity": 2},
        },
    ]


def test_a_network_of_its_own_has_no_way_out_but_to_the_services(everything: Synthesis) -> None:
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


def test_a_network_that_is_there_is_taken_as_it_is(repository: Repository) -> None:
    network = {"kind": "existing-vpc", "subnet_ids": ["subnet-0a", "subnet-0b"], "security_group_ids": ["sg-0c"]}
    repository.host(network=network)
    synthesis = repository.synthesise()
    assert synthesis.only("AWS::SageMaker::Model")["VpcConfig"] == {
        "Subnets": ["subnet-0a", "subnet-0b"],
        "SecurityGroupIds": ["sg-0c"],
    }
    assert not synthesis.of_type("AWS::EC2::VPC")


def test_what_is_captured_is_encrypted_needs_tls_and_goes_in_time(everything: Synthesis) -> None:
    capture = everything.only("AWS::SageMaker::EndpointConfig")["DataCaptureConfig"]
    assert (capture["EnableCapture"], capture["InitialSamplingPercentage"]) == (True, 5)
    assert [option["CaptureMode"] for option in capture["CaptureOptions"]] == ["Input", "Output"]
    bucket = everything.only("AWS::S3::Bucket")
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert bucket["LifecycleConfiguration"]["Rules"][0]["ExpirationInDays"] == 30
    assert all(bucket["PublicAccessBlockConfiguration"].values())
    denied = everything.only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"][0]
    assert (denied["Effect"], denied["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_a_shadow_gets_its_share_of_the_requests(everything: Synthesis) -> None:
    config = everything.only("AWS::SageMaker::EndpointConfig")
    (shadow,), (production,) = config["ShadowProductionVariants"], config["ProductionVariants"]
    assert (shadow["InstanceType"], shadow["InitialInstanceCount"]) == ("ml.c5.xlarge", 1)
    assert (shadow["InitialVariantWeight"], production["InitialVariantWeight"]) == (0.25, 1)
    assert shadow["ModelName"] != production["ModelName"]
    images = [
        model["Properties"]["PrimaryContainer"]["Image"]
        for model in everything.of_type("AWS::SageMaker::Model").values()
    ]
    assert [image for image in images if isinstance(image, str)] == [SHADOW_IMAGE]


def test_a_key_that_is_given_is_used(repository: Repository) -> None:
    arn = "arn:aws:kms:us-east-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
    repository.host(kms_key_arn=arn, data_capture={"percent": 5})
    synthesis = repository.synthesise()
    config = synthesis.only("AWS::SageMaker::EndpointConfig")
    assert config["KmsKeyId"] == config["DataCaptureConfig"]["KmsKeyId"] == arn
    (rule,) = synthesis.only("AWS::S3::Bucket")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": arn}
    assert len(synthesis.of_type("AWS::KMS::Key")) == 1  # the paging topic's, which CloudWatch has to be let use


def test_inferentia_is_served_by_an_image_of_ones_own_that_is_told_nothing_of_triton(tmp_path: Path) -> None:
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


def test_inf1_says_that_no_alarm_rolls_it_back_and_where_one_does(tmp_path: Path) -> None:
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


def test_a_fleet_that_one_zone_alone_can_hold_is_warned_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    timeouts = startup_timeouts(archive_bytes)
    assert (timeouts.download_s, timeouts.start_s) == (download_s, start_s)


def deployment_config(synthesis: Synthesis) -> dict[str, Any]:
    return dict(synthesis.only("AWS::SageMaker::Endpoint")["DeploymentConfig"])
