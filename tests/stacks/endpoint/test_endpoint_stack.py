"""The stack of a SageMaker endpoint: one test for each intention."""

from typing import Any

from aws_cdk import App, Duration, Stack
from aws_cdk import aws_iam as iam

from stacks import RecommendedEndpoint
from tests.stacks.miniature import Repository, Synthesis, candidate
from tests.stacks.templates import filled
from workloads import Autoscaling, ScheduledMinimum, file_sha256


def test_the_model_is_the_built_archive_under_its_own_hash(repository: Repository) -> None:
    container = repository.synthesise().only("AWS::SageMaker::Model")["PrimaryContainer"]
    assert container["ModelDataUrl"]["Fn::Sub"].endswith(f"/{file_sha256(repository.archive)}.tar.gz")
    assert container["Environment"] == {
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "spellcheck",
        "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
        "METRICS_WORKLOAD": "spellcheck",
        "METRICS_STACK": "SpellcheckStack",
    }


def test_the_model_waits_for_its_roles_policies(unmeasured: Synthesis) -> None:
    (model,) = unmeasured.of_type("AWS::SageMaker::Model").values()
    policies = [unmeasured.json["Resources"][name] for name in model["DependsOn"]]
    assert {policy["Type"] for policy in policies} == {"AWS::IAM::Policy"}
    assert any("s3:GetObject*" in str(policy) for policy in policies)


def test_a_recommendations_numbers_reach_the_scaling_policy_untouched(repository: Repository) -> None:
    scaling = Autoscaling(min_capacity=4, max_capacity=11, target_invocations_per_instance=1234.5678)
    repository.recommend(candidate(autoscaling=scaling))
    synthesis = repository.synthesise()
    target = synthesis.only("AWS::ApplicationAutoScaling::ScalableTarget")
    assert (target["MinCapacity"], target["MaxCapacity"]) == (4, 11)
    policy = synthesis.only("AWS::ApplicationAutoScaling::ScalingPolicy")["TargetTrackingScalingPolicyConfiguration"]
    assert policy == {
        "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"},
        "TargetValue": 1234.5678,
        "ScaleOutCooldown": Duration.minutes(5).to_seconds(),
        "ScaleInCooldown": Duration.minutes(10).to_seconds(),
    }


def test_a_simulated_policy_reaches_the_scaling_untouched(repository: Repository) -> None:
    """`simulate --optimise` chooses cooldowns and scheduled minimums, too."""
    morning = ScheduledMinimum(schedule="cron(45 6 * * ? *)", min_capacity=7)
    scaling = Autoscaling(
        min_capacity=3,
        max_capacity=9,
        target_invocations_per_instance=4321.0,
        target_share=0.7,
        scale_out_cooldown_s=0,
        scale_in_cooldown_s=1800,
        scheduled_minimums=(morning,),
    )
    repository.recommend(candidate(autoscaling=scaling))
    synthesis = repository.synthesise()
    target = synthesis.only("AWS::ApplicationAutoScaling::ScalableTarget")
    assert (target["MinCapacity"], target["MaxCapacity"]) == (3, 9)
    assert target["ScheduledActions"] == [
        {
            "ScheduledActionName": "Minimum0",
            "Schedule": "cron(45 6 * * ? *)",
            "Timezone": "UTC",
            "ScalableTargetAction": {"MinCapacity": 7},
        }
    ]
    policy = synthesis.only("AWS::ApplicationAutoScaling::ScalingPolicy")["TargetTrackingScalingPolicyConfiguration"]
    assert (policy["TargetValue"], policy["ScaleOutCooldown"], policy["ScaleInCooldown"]) == (4321.0, 0, 1800)


def test_the_scalable_target_is_the_endpoints_variant(measured: Synthesis) -> None:
    target = measured.only("AWS::ApplicationAutoScaling::ScalableTarget")
    assert target["ServiceNamespace"] == "sagemaker"
    assert target["ScalableDimension"] == "sagemaker:variant:DesiredInstanceCount"
    before, endpoint, after = target["ResourceId"]["Fn::Join"][1]
    assert (before, after) == ("endpoint/", "/variant/AllTraffic")
    assert endpoint == measured.json["Outputs"]["EndpointName"]["Value"]


def test_a_host_with_nvme_of_its_own_is_given_no_key(repository: Repository) -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
    repository.host("tensorrt", instance_types=["ml.g4dn.xlarge"], kms_key_arn=key)
    assert "KmsKeyId" not in repository.synthesise().only("AWS::SageMaker::EndpointConfig")


def test_only_resources_that_are_never_replaced_have_physical_names(measured: Synthesis) -> None:
    """The alarms that guard an update are there before the endpoint, on its name; CDK names composite alarms."""
    names = {"ModelName", "EndpointName", "RoleName", "AlarmName", "DashboardName", "TopicName", "BucketName"}
    named = {
        (resource["Type"], name)
        for resource in measured.json["Resources"].values()
        for name in names & set(resource.get("Properties", {}))
    }
    assert named == {("AWS::SageMaker::Endpoint", "EndpointName"), ("AWS::CloudWatch::CompositeAlarm", "AlarmName")}


def test_a_bootstrap_bucket_with_its_own_key_can_be_read(unmeasured: Synthesis) -> None:
    """Nobody but S3 in this region may use it, and for the bucket of assets alone."""
    (grant,) = (each for each in statements_of(unmeasured, "Serving") if each["Action"] == "kms:Decrypt")
    via, context = grant["Condition"]["StringEquals"], grant["Condition"]["StringLike"]
    assert filled(via["kms:ViaService"]) == "s3.us-east-1.amazonaws.com"
    bucket, objects = map(filled, context["kms:EncryptionContext:aws:s3:arn"])
    assert objects == f"{bucket}/*"
    assert "cdk-hnb659fds-assets-" in bucket


def test_the_endpoints_role_has_only_the_permissions_to_start_and_report(unmeasured: Synthesis) -> None:
    assert actions_of(unmeasured, "Serving") == {
        "s3:GetBucket*",
        "s3:GetObject*",
        "s3:List*",
        "ecr:BatchCheckLayerAvailability",
        "ecr:BatchGetImage",
        "ecr:GetAuthorizationToken",
        "ecr:GetDownloadUrlForLayer",
        "logs:CreateLogGroup",
        "logs:CreateLogStream",
        "logs:DescribeLogStreams",
        "logs:PutLogEvents",
        "cloudwatch:PutMetricData",
        "kms:Decrypt",
    }


def test_the_recommender_reaches_only_endpoints_of_its_own(unmeasured: Synthesis) -> None:
    for statement in statements_of(unmeasured, "Recommender"):
        touched = [filled(arn) for arn in as_list(statement["Resource"])]
        if any(action.startswith("sagemaker:Delete") for action in as_list(statement["Action"])):
            assert touched
            assert all(arn.split("/")[-1] in {"sm-*", "spellcheck-*"} for arn in touched)


def test_the_recommender_reads_payloads_and_may_hand_on_two_roles(unmeasured: Synthesis) -> None:
    text = [filled(arn) for item in statements_of(unmeasured, "Recommender") for arn in as_list(item["Resource"])]
    assert "arn:aws:s3:::sagemaker-us-east-1-123456789012/inference-recommender/*" in text
    (handing_on,) = [item for item in statements_of(unmeasured, "Recommender") if item["Action"] == "iam:PassRole"]
    assert handing_on["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    assert {arn["Fn::GetAtt"][0][:7] for arn in handing_on["Resource"]} == {"Serving", "Recomme"}


def test_invoking_is_granted_only_on_this_endpoint(repository: Repository) -> None:
    synthesis = repository.synthesise()
    endpoint = synthesis.stack.node.find_child("Default")
    assert isinstance(endpoint, RecommendedEndpoint)
    stack = Stack(App(), "Caller")
    caller = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    grant = endpoint.grant_invoke(caller)
    assert grant.success
    assert grant.principal_statements[0].actions == ["sagemaker:InvokeEndpoint"]
    assert grant.principal_statements[0].resources == [endpoint.endpoint_arn]


def statements_of(synthesis: Synthesis, owner: str) -> list[dict[str, Any]]:
    """Returns the statements of the policies of the role that `owner` holds."""
    policies = [item["Properties"] for item in synthesis.of_type("AWS::IAM::Policy").values()]
    own = [policy for policy in policies if policy["PolicyName"].startswith(owner)]
    assert own
    return [statement for policy in own for statement in policy["PolicyDocument"]["Statement"]]


def actions_of(synthesis: Synthesis, owner: str) -> set[str]:
    return {action for statement in statements_of(synthesis, owner) for action in as_list(statement["Action"])}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
