"""The calls of two of AWS's notebooks with an account, in their order: names and sizes are ours.

huggingface-inference-recommender.ipynb registers, measures and deploys a model. optimize_endpoint_scaling.ipynb scales
and measures an endpoint. Jobs replay figures, so the metrics that it reads are left out.
"""

import json
from typing import Any

import pytest

from tests.local_aws.conftest import BUCKET, IMAGE, ROLE, Clients, Endpoints, echo_request
from tests.local_aws.sagemaker.test_recommendation_jobs import MEDIAN, ended

pytestmark = [pytest.mark.slow, pytest.mark.integration]

DIMENSION = {"ServiceNamespace": "sagemaker", "ScalableDimension": "sagemaker:variant:DesiredInstanceCount"}


def registered(sagemaker: Any, group: str, **container: Any) -> str:
    """Returns the ARN of a model package in a new group."""
    sagemaker.create_model_package_group(ModelPackageGroupName=group, ModelPackageGroupDescription="models")
    image = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/echo.tar.gz", "Framework": "PYTORCH"}
    arn: str = sagemaker.create_model_package(
        ModelPackageGroupName=group,
        ModelPackageDescription="a model",
        Domain="NATURAL_LANGUAGE_PROCESSING",
        Task="FILL_MASK",
        SamplePayloadUrl=f"s3://{BUCKET}/payloads.tar.gz",
        InferenceSpecification={
            "Containers": [{**image, **container}],
            "SupportedRealtimeInferenceInstanceTypes": ["ml.c5.large", "ml.c5.xlarge"],
            "SupportedContentTypes": ["application/json"],
            "SupportedResponseMIMETypes": ["application/json"],
        },
    )["ModelPackageArn"]
    return arn


def measured(sagemaker: Any, name: str, arn: str, job_type: str = "Default", **more: Any) -> dict[str, Any]:
    """Returns the description of a short job that has ended."""
    sagemaker.create_inference_recommendations_job(
        JobName=name,
        JobDescription="a job",
        JobType=job_type,
        RoleArn=ROLE,
        InputConfig={"ModelPackageVersionArn": arn, "JobDurationInSeconds": 3, **more},
        StoppingConditions=MEDIAN,
    )
    job = ended(sagemaker, name)
    assert job["Status"] == "COMPLETED", job.get("FailureReason")
    return job


def test_huggingface_inference_recommender(sagemaker: Any, runtime: Any, endpoints: Endpoints) -> None:
    arn = registered(sagemaker, "hugging", ContainerHostname="hugging", NearestModelName="bert-base-uncased")
    job = measured(sagemaker, "hugging", arn)
    rows = [
        {**each["EndpointConfiguration"], **each["ModelConfiguration"], **each["Metrics"]}
        for each in job["InferenceRecommendations"]
    ]
    assert {each["InstanceType"] for each in rows} == {"ml.c5.large", "ml.c5.xlarge"}
    fastest = min(rows, key=lambda row: row["ModelLatency"])
    assert fastest["MaxInvocations"] > 0
    assert len(sagemaker.list_inference_recommendations_job_steps(JobName="hugging")["Steps"]) == len(rows)
    (version,) = sagemaker.list_model_packages(ModelPackageGroupName="hugging")["ModelPackageSummaryList"]
    approved = sagemaker.update_model_package(ModelPackageArn=arn, ModelApprovalStatus="Approved")
    assert approved["ModelPackageArn"] == version["ModelPackageArn"]
    sagemaker.create_model(ModelName="hugging", ExecutionRoleArn=ROLE, PrimaryContainer={"ModelPackageName": arn})
    variant = {"VariantName": "AllTrafficVariant", "ModelName": "hugging", "InitialVariantWeight": 1}
    size = {"InstanceType": fastest["InstanceType"], "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="hugging", ProductionVariants=[{**variant, **size}])
    endpoints.create("hugging", config="hugging")
    described = endpoints.settled("hugging")
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    body = echo_request("a sentence")
    answer = runtime.invoke_endpoint(EndpointName="hugging", Body=body, ContentType="application/json")
    assert json.load(answer["Body"])["outputs"][0]["data"] == ["got a sentence"]


@pytest.mark.xfail(reason="moto leaves out ModelPackageName, which the API's answer must have.", strict=True)
def test_huggingface_inference_recommender_describes_its_package(sagemaker: Any) -> None:
    arn = registered(sagemaker, "described")
    assert sagemaker.describe_model_package(ModelPackageName=arn)["ModelPackageArn"] == arn


def test_optimize_endpoint_scaling(sagemaker: Any, client: Clients, endpoints: Endpoints) -> None:
    arn = registered(sagemaker, "optimize", NearestModelName="classifier", FrameworkVersion="2.13.0")
    job = measured(sagemaker, "limit", arn)
    about = job["InferenceRecommendations"][0]["EndpointConfiguration"]
    assert {"EndpointName", "VariantName"} <= about.keys()
    scaled = endpoints.create("scaled", config=endpoints.config("scaled"))
    assert endpoints.settled(scaled)["EndpointStatus"] == "InService"
    scaling = client("application-autoscaling")
    target = {**DIMENSION, "ResourceId": f"endpoint/{scaled}/variant/AllTraffic"}
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=2)
    predefined = {"PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}}
    customized = {
        "MetricName": "CPUUtilization",
        "Namespace": "/aws/sagemaker/Endpoints",
        "Dimensions": [{"Name": "EndpointName", "Value": scaled}, {"Name": "VariantName", "Value": "AllTraffic"}],
        "Statistic": "Average",
        "Unit": "Percent",
    }
    policies: dict[str, Any] = {"invocations": predefined, "cpu": {"CustomizedMetricSpecification": customized}}
    for name, metric in policies.items():
        tracking = {"TargetValue": 1e6, "ScaleOutCooldown": 10, "ScaleInCooldown": 100, "DisableScaleIn": False}
        configuration = {**tracking, **metric}
        policy = {"PolicyType": "TargetTrackingScaling", "TargetTrackingScalingPolicyConfiguration": configuration}
        scaling.put_scaling_policy(PolicyName=name, **target, **policy)
    low = {"MetricIntervalLowerBound": 0.0, "MetricIntervalUpperBound": 80.0, "ScalingAdjustment": 1}
    steps = [low, {"MetricIntervalLowerBound": 80.0, "ScalingAdjustment": 4}]
    adjusting = {"AdjustmentType": "ChangeInCapacity", "MetricAggregationType": "Average", "StepAdjustments": steps}
    policy = {"PolicyType": "StepScaling", "StepScalingPolicyConfiguration": adjusting}
    scaling.put_scaling_policy(PolicyName="steps", **target, **policy)
    phase = {"InitialNumberOfUsers": 1, "SpawnRate": 1, "DurationInSeconds": 3}
    evaluated = measured(
        sagemaker,
        "evaluation",
        arn,
        "Advanced",
        Endpoints=[{"EndpointName": scaled}],
        EndpointConfigurations=[{"InstanceType": "ml.c5.xlarge"}],
        ResourceLimit={"MaxNumberOfTests": 2, "MaxParallelOfTests": 2},
        TrafficPattern={"TrafficType": "PHASES", "Phases": [phase]},
    )
    assert evaluated["EndpointPerformances"][0]["EndpointInfo"] == {"EndpointName": scaled}
    for name in (*policies, "steps"):
        scaling.delete_scaling_policy(PolicyName=name, **target)
    scaling.deregister_scalable_target(**target)
    desired = {"VariantName": "AllTraffic", "DesiredInstanceCount": 1}
    sagemaker.update_endpoint_weights_and_capacities(EndpointName=scaled, DesiredWeightsAndCapacities=[desired])
    assert endpoints.settled(scaled)["EndpointStatus"] == "InService"


@pytest.mark.xfail(reason="moto has no GetMetricWidgetImage, and no command of this project calls it.", strict=True)
def test_optimize_endpoint_scaling_draws_its_metrics(client: Clients) -> None:
    widget = {"metrics": [["AWS/SageMaker", "Invocations", "EndpointName", "scaled", "VariantName", "AllTraffic"]]}
    client("cloudwatch").get_metric_widget_image(MetricWidget=json.dumps(widget), OutputFormat="png")
