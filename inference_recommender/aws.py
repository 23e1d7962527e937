"""AWS as the recommender needs it: four clients, and every refusal turned into one sentence.

The only module that knows boto3. An account on this machine is reached through the same calls (AWS_ENDPOINT_URL).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)

from inference_recommender.cloudwatch import fetch_course, fetch_series
from inference_recommender.errors import (
    AwsRefused,
    AwsUnreachable,
    JobNameTaken,
    NoCredentials,
    NoRegion,
    NotDeployed,
)
from inference_recommender.measurement import Series

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
            raise NoRegion()
        return self._session.region_name

    def account(self) -> str:
        with _speaking_plainly("GetCallerIdentity"):
            return str(self._client("sts").get_caller_identity()["Account"])

    def payload_bucket(self) -> str:
        """SageMaker's default bucket of the account and region; the stack's recommender role may read it."""
        return f"sagemaker-{self.region}-{self.account()}"

    def stack_outputs(self, stack: str) -> StackOutputs:
        """Raises `NotDeployed` where the stack or one of its outputs is not there."""
        try:
            with _speaking_plainly("DescribeStacks"):
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
        with _speaking_plainly("PutObject"):
            try:
                s3.put_object(Bucket=bucket, Key=key, Body=body)
            except s3.exceptions.NoSuchBucket:
                self._create_bucket(bucket)
                s3.put_object(Bucket=bucket, Key=key, Body=body)

    def invoke(self, endpoint: str, body: bytes) -> bytes:
        """What the endpoint answers to one JSON request."""
        with _speaking_plainly("InvokeEndpoint"):
            response = self._client("sagemaker-runtime").invoke_endpoint(
                EndpointName=endpoint, ContentType="application/json", Body=body
            )
            return bytes(response["Body"].read())

    def create_job(self, request: Mapping[str, Any]) -> str:
        """The job's ARN. Raises `JobNameTaken`."""
        try:
            with _speaking_plainly("CreateInferenceRecommendationsJob"):
                return str(self._sagemaker.create_inference_recommendations_job(**request)["JobArn"])
        except AwsRefused as error:
            if error.code == "ResourceInUse":
                raise JobNameTaken(request["JobName"]) from error
            raise

    def describe_job(self, name: str) -> dict[str, Any]:
        with _speaking_plainly("DescribeInferenceRecommendationsJob"):
            return _without_metadata(self._sagemaker.describe_inference_recommendations_job(JobName=name))

    def job_steps(self, name: str) -> list[dict[str, Any]]:
        with _speaking_plainly("ListInferenceRecommendationsJobSteps"):
            pages = self._sagemaker.get_paginator("list_inference_recommendations_job_steps").paginate(JobName=name)
            return [step for page in pages for step in page["Steps"]]

    def stop_job(self, name: str) -> None:
        with _speaking_plainly("StopInferenceRecommendationsJob"):
            self._sagemaker.stop_inference_recommendations_job(JobName=name)

    def measured_on(self, job_arn: str) -> str | None:
        """What an account that is not AWS says it measured on; None on AWS itself."""
        with _speaking_plainly("ListTags"):
            tags = self._sagemaker.list_tags(ResourceArn=job_arn)["Tags"]
        return next((tag["Value"] for tag in tags if tag["Key"] == MEASURED_ON_TAG), None)

    def series(self, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, Series]:
        """The whole course of every test of a job, by endpoint name."""
        name, start = describe["JobName"], describe["CreationTime"]
        end = describe.get("CompletionTime") or datetime.now(UTC)
        with _speaking_plainly("GetMetricData"):
            return {
                endpoint: fetch_series(self._client("cloudwatch"), name, endpoint, variant, start, end)
                for endpoint, variant in _variants(describe, steps).items()
            }

    def latest_series(self, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> list[Series]:
        """The last moments of every test under way."""
        name, now = describe["JobName"], datetime.now(UTC)
        with _speaking_plainly("GetMetricData"):
            return [
                fetch_course(self._client("cloudwatch"), name, endpoint, now - LATEST, now)
                for endpoint in _variants(describe, steps)
            ]

    @property
    def _sagemaker(self) -> Any:
        return self._client("sagemaker")

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            with _speaking_plainly(f"a client of {service}"):
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


def _variants(describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    results = [*describe.get("InferenceRecommendations", []), *(s.get("InferenceBenchmark", {}) for s in steps)]
    endpoints = [result["EndpointConfiguration"] for result in results if "EndpointConfiguration" in result]
    return {endpoint["EndpointName"]: endpoint["VariantName"] for endpoint in endpoints}


def _without_metadata(response: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in response.items() if key != "ResponseMetadata"}


@contextmanager
def _speaking_plainly(operation: str) -> Iterator[None]:
    """Turn what boto3 raises into this package's errors."""
    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        raise AwsRefused(operation, details.get("Code", "Unknown"), details.get("Message", str(error))) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise NoCredentials() from error
    except NoRegionError as error:
        raise NoRegion() from error
    except (ConnectionError, HTTPClientError, BotoCoreError) as error:
        raise AwsUnreachable(str(error).rstrip(".")) from error
