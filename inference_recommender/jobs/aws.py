"""AWS as the recommender needs it: four clients, and every refusal turned into one sentence.

The only module that knows boto3. An account on this machine is reached through the same calls (AWS_ENDPOINT_URL).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.config import Config

from aws_api.errors import NO_REGION, AwsRefused, AwsUnavailable, NotFound, translate_aws_errors
from inference_recommender.errors import JobNameTaken, NoSuchJob, NotDeployed
from inference_recommender.jobs.cloudwatch import fetch_course, fetch_series
from inference_recommender.jobs.container_log import fetch_log
from inference_recommender.jobs.existing_endpoint import deployed_endpoint, resource_id
from inference_recommender.measurement import DeployedEndpoint, Series, results

RETRIES = Config(retries={"mode": "standard", "max_attempts": 5})
"""A throttled or dropped call is tried again; a job must not end for want of one poll."""

MEASURED_ON_TAG = "local-aws:measured-on"
"""The tag by which an account that is not AWS says on what a job was measured."""

LATEST = timedelta(seconds=30)
"""How far back the live view of a test looks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StackOutputs:
    endpoint_name: str
    model_name: str
    role_arn: str


class Aws:
    """Clients are made on first use, so that building a request needs none."""

    def __init__(self, session: boto3.Session | None = None) -> None:
        self._session = session or boto3.Session()
        self._clients: dict[str, Any] = {}

    @property
    def region(self) -> str:
        if not self._session.region_name:
            raise AwsUnavailable(NO_REGION)
        return self._session.region_name

    def account(self) -> str:
        with translate_aws_errors("GetCallerIdentity"):
            return str(self._client("sts").get_caller_identity()["Account"])

    def payload_bucket(self) -> str:
        """SageMaker's default bucket of the account and region; the stack's recommender role may read it."""
        return f"sagemaker-{self.region}-{self.account()}"

    def stack_outputs(self, stack: str) -> StackOutputs:
        """Raises `NotDeployed` where the stack or one of its outputs is not there."""
        try:
            with translate_aws_errors("DescribeStacks"):
                found = self._client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
        except AwsRefused as error:
            raise NotDeployed(stack, f"There is no stack called {stack} in {self.region}.") from error
        outputs = {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}
        try:
            return StackOutputs(
                endpoint_name=outputs["EndpointName"],
                model_name=outputs["ModelName"],
                role_arn=outputs["RecommenderRoleArn"],
            )
        except KeyError as error:
            raise NotDeployed(stack, f"{stack} has no output {error.args[0]}.") from error

    def upload(self, url: str, body: bytes) -> None:
        """Put `body` at an s3:// URL, making the bucket where it is missing."""
        bucket, _, key = url.removeprefix("s3://").partition("/")
        s3 = self._client("s3")
        with translate_aws_errors("PutObject"):
            try:
                s3.put_object(Bucket=bucket, Key=key, Body=body)
            except s3.exceptions.NoSuchBucket:
                self._create_bucket(bucket)
                s3.put_object(Bucket=bucket, Key=key, Body=body)

    def deployed_endpoint(self, name: str) -> DeployedEndpoint:
        """An existing endpoint for a job. Raises `UnsuitableEndpoint`."""
        with translate_aws_errors("DescribeEndpoint"):
            endpoint = self._sagemaker.describe_endpoint(EndpointName=name)
            config = self._sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
        with translate_aws_errors("DescribeScalableTargets"):
            ids = [resource_id(name, variant["VariantName"]) for variant in config["ProductionVariants"]]
            targets = self._client("application-autoscaling").describe_scalable_targets(
                ServiceNamespace="sagemaker", ResourceIds=ids
            )["ScalableTargets"]
        return deployed_endpoint(endpoint, config, targets)

    def model(self, name: str) -> dict[str, Any]:
        with translate_aws_errors("DescribeModel"):
            return _without_metadata(self._sagemaker.describe_model(ModelName=name))

    def register(self, group: Mapping[str, Any], package: Mapping[str, Any]) -> str:
        """The ARN of a new version in the registry; its group is made where it is missing."""
        name = group["ModelPackageGroupName"]
        with translate_aws_errors("ListModelPackageGroups"):
            pages = self._sagemaker.get_paginator("list_model_package_groups").paginate(NameContains=name)
            known = {one["ModelPackageGroupName"] for page in pages for one in page["ModelPackageGroupSummaryList"]}
        if name not in known:
            with translate_aws_errors("CreateModelPackageGroup"):
                self._sagemaker.create_model_package_group(**group)
        with translate_aws_errors("CreateModelPackage"):
            return str(self._sagemaker.create_model_package(**package)["ModelPackageArn"])

    def create_job(self, request: Mapping[str, Any]) -> str:
        """The job's ARN. Raises `JobNameTaken`."""
        try:
            with translate_aws_errors("CreateInferenceRecommendationsJob"):
                return str(self._sagemaker.create_inference_recommendations_job(**request)["JobArn"])
        except AwsRefused as error:
            if error.code == "ResourceInUse":
                raise JobNameTaken(request["JobName"]) from error
            raise

    def describe_job(self, name: str) -> dict[str, Any]:
        """Raises `NotFound`."""
        with translate_aws_errors("DescribeInferenceRecommendationsJob"):
            return _without_metadata(self._sagemaker.describe_inference_recommendations_job(JobName=name))

    def existing_job(self, name: str) -> dict[str, Any]:
        """As `describe_job`, of a name that a person gave. Raises `NoSuchJob`."""
        try:
            return self.describe_job(name)
        except NotFound as error:
            raise NoSuchJob(name, self.region) from error

    def jobs(self, name_contains: str | None, most: int) -> list[dict[str, Any]]:
        """The latest `most` jobs, the newest first, as ListInferenceRecommendationsJobs has them."""
        chosen = {"NameContains": name_contains} if name_contains else {}
        with translate_aws_errors("ListInferenceRecommendationsJobs"):
            pages = self._sagemaker.get_paginator("list_inference_recommendations_jobs").paginate(
                SortBy="CreationTime", SortOrder="Descending", PaginationConfig={"MaxItems": most}, **chosen
            )
            return [job for page in pages for job in page["InferenceRecommendationsJobs"]]

    def job_steps(self, name: str) -> list[dict[str, Any]]:
        with translate_aws_errors("ListInferenceRecommendationsJobSteps"):
            pages = self._sagemaker.get_paginator("list_inference_recommendations_job_steps").paginate(JobName=name)
            return [step for page in pages for step in page["Steps"]]

    def stop_job(self, name: str) -> None:
        with translate_aws_errors("StopInferenceRecommendationsJob"):
            self._sagemaker.stop_inference_recommendations_job(JobName=name)

    def job_tags(self, job_arn: str) -> dict[str, str]:
        with translate_aws_errors("ListTags"):
            pages = self._sagemaker.get_paginator("list_tags").paginate(ResourceArn=job_arn)
            return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}

    def measured_on(self, job_arn: str) -> str | None:
        """What an account that is not AWS says it measured on; None on AWS itself."""
        return self.job_tags(job_arn).get(MEASURED_ON_TAG)

    def container_log(self, job_name: str, endpoint_name: str) -> list[str]:
        """The last lines of a test's container; none where there is no log or it may not be read."""
        with translate_aws_errors("GetLogEvents"):
            return fetch_log(self._client("logs"), job_name, endpoint_name)

    def series(
        self, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], deployed: DeployedEndpoint | None
    ) -> dict[str, Series]:
        """The whole course of every test of a job, by endpoint name."""
        name, start = describe["JobName"], describe["CreationTime"]
        end = describe.get("CompletionTime") or datetime.now(UTC)
        with translate_aws_errors("GetMetricData"):
            return {
                endpoint: fetch_series(self._client("cloudwatch"), name, endpoint, variant, start, end)
                for endpoint, variant in _variants(describe, steps, deployed).items()
            }

    def latest_series(self, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> list[Series]:
        """The last moments of every test under way."""
        name, now = describe["JobName"], datetime.now(UTC)
        with translate_aws_errors("GetMetricData"):
            return [
                fetch_course(self._client("cloudwatch"), name, endpoint, now - LATEST, now)
                for endpoint in _variants(describe, steps, None)
            ]

    @property
    def _sagemaker(self) -> Any:
        return self._client("sagemaker")

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            with translate_aws_errors(f"a client of {service}"):
                make: Any = self._session.client  # its stubs list every service by name
                self._clients[service] = make(service, region_name=self.region, config=RETRIES)
        return self._clients[service]

    def _create_bucket(self, bucket: str) -> None:
        s3 = self._client("s3")
        # us-east-1 is the one region that must not be named.
        where = {} if self.region == "us-east-1" else {"LocationConstraint": self.region}
        s3.create_bucket(Bucket=bucket, **({"CreateBucketConfiguration": where} if where else {}))
        blocked = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
        s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=dict.fromkeys(blocked, True))


def _variants(
    describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], deployed: DeployedEndpoint | None
) -> dict[str, str]:
    """Of every test whose endpoint is known."""
    endpoints = [result["EndpointConfiguration"] for result in results(describe, steps, deployed)]
    return {one["EndpointName"]: one["VariantName"] for one in endpoints if "VariantName" in one}


def _without_metadata(response: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in response.items() if key != "ResponseMetadata"}
