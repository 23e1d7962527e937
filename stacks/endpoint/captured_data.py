"""A bucket for the share of requests and answers that an endpoint keeps: encrypted, TLS only, and emptied in time."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from stacks.grants import acknowledge, acknowledge_resources
from workloads import DataCapture

PREFIX = "captured"


@dataclass(frozen=True, kw_only=True, slots=True)
class CapturedDataProps:
    capture: DataCapture
    key: kms.IKey


class CapturedData(Construct):
    """`config` for the endpoint configuration, `bucket` to read what was kept. The bucket outlives the stack."""

    def __init__(self, scope: Construct, id: str, props: CapturedDataProps) -> None:
        super().__init__(scope, id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.KMS,
            encryption_key=props.key,
            bucket_key_enabled=True,
            enforce_ssl=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            lifecycle_rules=[s3.LifecycleRule(expiration=Duration.days(props.capture.keep_days))],
        )
        acknowledge(
            self.bucket,
            "AwsSolutions-S1",
            "Only the endpoint writes here; a log of that would need a second bucket.",
        )
        self.config = sagemaker.CfnEndpointConfig.DataCaptureConfigProperty(
            enable_capture=True,
            initial_sampling_percentage=props.capture.percent,
            destination_s3_uri=self.bucket.s3_url_for_object(PREFIX),
            kms_key_id=props.key.key_arn,
            capture_options=[
                sagemaker.CfnEndpointConfig.CaptureOptionProperty(capture_mode=mode) for mode in ("Input", "Output")
            ],
            # Else a JSON body is kept as base64.
            capture_content_type_header=sagemaker.CfnEndpointConfig.CaptureContentTypeHeaderProperty(
                json_content_types=["application/json"]
            ),
        )

    def grant_write(self, role: iam.Role) -> None:
        self.bucket.grant_put(role, f"{PREFIX}/*")
        objects = [self.bucket.arn_for_objects(f"{PREFIX}/*")]
        acknowledge_resources(role, objects, "SageMaker names each object by its time.")
