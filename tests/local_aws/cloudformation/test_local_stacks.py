"""CloudFormation of the local account: our types, replacement that spreads, rollback, and nothing left."""

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_aws.cloudformation.template import parse
from tests.local_aws.conftest import BUCKET, IMAGE, ROLE, Clients, Stacks

pytestmark = pytest.mark.integration


TEMPLATE = Path(__file__).with_name("whole.yaml").read_text("utf-8")


def template(says: str = "got ", *, target: int = 100, threshold: int = 50_000, **environment: str) -> dict[str, Any]:
    """Returns a template of a model, its endpoint, scaling, an alarm and a dashboard."""
    body = parse(TEMPLATE.replace("{ROLE}", ROLE).replace("{IMAGE}", IMAGE).replace("{BUCKET}", BUCKET))
    properties = {name: each["Properties"] for name, each in body["Resources"].items()}
    properties["Alarm"]["Threshold"] = threshold
    properties["Dashboard"]["DashboardBody"] = json.dumps({"widgets": [], "t": target})
    properties["Policy"]["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] = target
    properties["Target"]["MaxCapacity"] = target // 10
    morning = {"Schedule": "cron(0 6 * * ? *)", "ScalableTargetAction": {"MinCapacity": 3}}
    if target == 100:  # an update takes the schedule away
        properties["Target"]["ScheduledActions"] = [{"ScheduledActionName": "Morning", **morning}]
    properties["Model"]["PrimaryContainer"]["Environment"] = {"SAYS": says, **environment}
    return body


def of_stack(found: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [item for item in found if item[key].startswith("whole-")]


def test_a_stack_is_created_updated_and_deleted_with_every_type_of_ours(stacks: Stacks, client: Clients) -> None:
    sagemaker, cloudwatch, scaling = client("sagemaker"), client("cloudwatch"), client("application-autoscaling")

    stack = stacks.create("whole", template())
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack.get("StackStatusReason")
    (output,) = stack["Outputs"]
    endpoint = output["OutputValue"]
    described = sagemaker.describe_endpoint(EndpointName=endpoint)
    assert described["EndpointStatus"] == "InService"
    assert described["ProductionVariants"][0]["DesiredInstanceCount"] == 2, "the scalable target's minimum"
    assert stacks.answer(endpoint) == "got x"
    (schedule,) = scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"]
    assert (schedule["ScheduledActionName"], schedule["ScalableTargetAction"]["MinCapacity"]) == ("Morning", 3)

    # The model alone changes: its new name replaces the configuration, which updates the endpoint.
    stack = stacks.update("whole", template("now ", target=200, threshold=60_000))
    assert stack["StackStatus"] == "UPDATE_COMPLETE", stack.get("StackStatusReason")
    assert stack["Outputs"][0]["OutputValue"] == endpoint
    assert stacks.answer(endpoint) == "now x"
    assert len(of_stack(sagemaker.list_models()["Models"], "ModelName")) == 1
    assert len(of_stack(sagemaker.list_endpoint_configs()["EndpointConfigs"], "EndpointConfigName")) == 1
    (policy,) = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    assert policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 200
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (2, 20)
    assert scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"] == []
    tracking = cloudwatch.describe_alarms(AlarmNamePrefix=f"TargetTracking-endpoint/{endpoint}/")["MetricAlarms"]
    assert [each["Threshold"] for each in tracking] == [200, 180], "the service's own, of the new target"
    assert [each["AlarmName"] for each in policy["Alarms"]] == [each["AlarmName"] for each in tracking]
    (alarm,) = [each for each in cloudwatch.describe_alarms()["MetricAlarms"] if each not in tracking]
    assert (alarm["Threshold"], alarm["ExtendedStatistic"]) == (60_000, "p99")
    assert alarm["Dimensions"] == [{"Name": "EndpointName", "Value": endpoint}]
    assert '"t": 200' in cloudwatch.get_dashboard(DashboardName="watch")["DashboardBody"]

    assert stacks.delete("whole") == {"StackStatus": "GONE"}
    assert of_stack(sagemaker.list_models()["Models"], "ModelName") == []
    assert of_stack(sagemaker.list_endpoint_configs()["EndpointConfigs"], "EndpointConfigName") == []
    assert of_stack(sagemaker.list_endpoints()["Endpoints"], "EndpointName") == []
    assert scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"] == []
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
    assert cloudwatch.describe_alarms()["MetricAlarms"] == []
    assert cloudwatch.list_dashboards()["DashboardEntries"] == []


def test_an_update_that_fails_is_rolled_back_with_the_reason_and_the_old_endpoint_answers(stacks: Stacks) -> None:
    endpoint = stacks.create("steady", template())["Outputs"][0]["OutputValue"]
    stack = stacks.update("steady", template(BROKEN="1"))
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    (reason,) = stacks.reasons("steady")
    assert reason.startswith(f"Endpoint {endpoint} did not come up: Triton could not load the model 'echo'")
    assert stacks.answer(endpoint) == "got x"
    assert stacks.update("steady", template("again "))["StackStatus"] == "UPDATE_COMPLETE"
    assert stacks.answer(endpoint) == "again x"


def test_a_stack_whose_endpoint_does_not_come_up_is_rolled_back_and_leaves_nothing(
    stacks: Stacks, client: Clients
) -> None:
    stack = stacks.create("failing", template(BROKEN="1"))
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "Triton could not load the model 'echo'" in stacks.reasons("failing")[0]
    left = client("sagemaker").list_models(NameContains="failing")["Models"]
    assert [model for model in left if model["ModelName"].startswith("failing-")] == []


def test_the_previous_value_of_a_parameter_is_the_one_that_was_given(stacks: Stacks) -> None:
    parameter = {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/versions/newest"}
    topic = {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": {"Ref": "Version"}}}
    body = {"Parameters": {"Version": parameter}, "Resources": {"Topic": topic}}
    stacks.client("ssm").put_parameter(Name="/versions/newest", Value="30", Type="String")
    assert stacks.create("versioned", body)["StackStatus"] == "CREATE_COMPLETE"
    topic["Properties"]["TopicName"] = "versioned"  # type: ignore[index]
    previous = [{"ParameterKey": "Version", "UsePreviousValue": True}]
    assert stacks.update("versioned", body, Parameters=previous)["StackStatus"] == "UPDATE_COMPLETE"


def test_two_stacks_may_have_a_change_set_of_the_same_name_as_the_cdk_gives_them(stacks: Stacks) -> None:
    topic = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}
    queue = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}
    cloudformation = stacks.cloudformation
    for name, body in (("one", topic), ("two", queue)):
        cloudformation.create_change_set(
            StackName=name, ChangeSetName="same", ChangeSetType="CREATE", TemplateBody=json.dumps(body)
        )
    for name, kind in (("one", "AWS::SNS::Topic"), ("two", "AWS::SQS::Queue")):
        found = cloudformation.describe_change_set(StackName=name, ChangeSetName="same")
        assert [change["ResourceChange"]["ResourceType"] for change in found["Changes"]] == [kind]
        cloudformation.execute_change_set(StackName=name, ChangeSetName="same")
        assert stacks.settle(name)["StackStatus"] == "CREATE_COMPLETE"
    cloudformation.delete_change_set(StackName="one", ChangeSetName="same")
    cloudformation.delete_change_set(StackName="one", ChangeSetName="same")
    assert cloudformation.describe_change_set(StackName="two", ChangeSetName="same")["StackName"] == "two"
    with pytest.raises(ClientError, match="ChangeSetNotFound"):
        cloudformation.describe_change_set(StackName="one", ChangeSetName="same")


def test_a_bucket_policy_of_the_bootstrap_stack_does_not_lock_the_bucket(stacks: Stacks, client: Clients) -> None:
    def body(action: str) -> dict[str, Any]:
        condition = {"Bool": {"aws:SecureTransport": "false"}}
        without_tls = {"Action": "s3:*", "Effect": "Deny", "Resource": "*", "Principal": "*", "Condition": condition}
        allowed = {"Action": action, "Effect": "Allow", "Resource": "*", "Principal": "*"}
        policy = {"Version": "2012-10-17", "Statement": [without_tls, allowed]}
        return {
            "Resources": {
                "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "guarded"}},
                "Policy": {
                    "Type": "AWS::S3::BucketPolicy",
                    "Properties": {"Bucket": {"Ref": "Bucket"}, "PolicyDocument": policy},
                },
            }
        }

    s3 = client("s3")
    assert stacks.create("policy", body("s3:GetObject"))["StackStatus"] == "CREATE_COMPLETE"
    s3.put_object(Bucket="guarded", Key="key", Body=b"x")
    s3.delete_object(Bucket="guarded", Key="key")
    assert stacks.update("policy", body("s3:PutObject"))["StackStatus"] == "UPDATE_COMPLETE"
    assert "s3:PutObject" in s3.get_bucket_policy(Bucket="guarded")["Policy"]
    assert stacks.delete("policy") == {"StackStatus": "GONE"}


def test_a_protected_stack_is_not_deleted(stacks: Stacks) -> None:
    stacks.create("protected", {"Resources": {"Log": {"Type": "AWS::Logs::LogGroup", "Properties": {}}}})
    stacks.cloudformation.update_termination_protection(StackName="protected", EnableTerminationProtection=True)
    (described,) = stacks.cloudformation.describe_stacks(StackName="protected")["Stacks"]
    assert described["EnableTerminationProtection"] is True
    protected = r"Stack \[protected\] cannot be deleted while TerminationProtection is enabled"
    with pytest.raises(ClientError, match=protected):
        stacks.delete("protected")
    stacks.cloudformation.update_termination_protection(StackName="protected", EnableTerminationProtection=False)
    assert stacks.delete("protected") == {"StackStatus": "GONE"}


def test_a_change_is_in_progress_right_after_its_call_and_the_waiters_of_boto3_see_its_end(stacks: Stacks) -> None:
    aws, named = stacks.cloudformation, {"StackName": "waited"}

    def passes(verb: str, waiter: str, **resources: str) -> str:
        body = json.dumps({"Resources": {name: {"Type": kind} for name, kind in resources.items()}})
        getattr(aws, f"{verb}_stack")(**named, **({"TemplateBody": body} if resources else {}))
        (described,) = aws.describe_stacks(**named)["Stacks"]
        assert described["StackStatus"] == f"{verb.upper()}_IN_PROGRESS"
        aws.get_waiter(f"stack_{waiter}_complete").wait(**named, WaiterConfig={"Delay": 1})
        return str(described["StackId"])

    passes("create", "create", Topic="AWS::SNS::Topic")
    passes("update", "update", Queue="AWS::SQS::Queue")
    passes("update", "rollback", Queue="Custom::Nothing")
    events = reversed(aws.describe_stack_events(StackName=passes("delete", "delete"))["StackEvents"])
    assert [each["ResourceStatus"] for each in events if each["ResourceType"] == "AWS::CloudFormation::Stack"] == [
        *("CREATE_IN_PROGRESS", "CREATE_COMPLETE"),
        *("UPDATE_IN_PROGRESS", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_COMPLETE"),
        *("UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS"),
        *("UPDATE_ROLLBACK_COMPLETE", "DELETE_IN_PROGRESS", "DELETE_COMPLETE"),
    ]
