"""A SageMaker real-time endpoint for one packed Triton repository: role, key, model, config, endpoint.

One variant, `AllTraffic`, of a given size; `EndpointScaling` changes it, `EndpointAlarms` watches it.
L1 for SageMaker: the alpha L2 has neither `RetainAllVariantProperties` nor `InferenceAmiVersion`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from stacks.instance_type import has_local_storage
from stacks.model_access import ENDPOINT_LOGS, grant_container_telemetry, grant_model_files
from stacks.model_archive import ModelArchive
from stacks.triton_image import TritonImage

VARIANT = "AllTraffic"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadEndpointProps:
    archive: ModelArchive
    image: TritonImage
    default_model: str
    instance_type: str
    instance_count: int
    environment: Mapping[str, str]


class WorkloadEndpoint(Construct):
    """Names, ARNs and `role` for others; metrics and grants by intent."""

    def __init__(self, scope: Construct, id: str, props: WorkloadEndpointProps) -> None:
        super().__init__(scope, id)
        self.role = self._execution_role(props)
        model = self._model(props)
        config = self._config(props, model)
        endpoint = sagemaker.CfnEndpoint(
            self,
            "Endpoint",
            endpoint_config_name=config.attr_endpoint_config_name,
            # Otherwise every update resets an autoscaled fleet to its initial count.
            retain_all_variant_properties=True,
        )
        self.model_name = model.attr_model_name
        self.model_arn = model.ref
        self.endpoint_name = endpoint.attr_endpoint_name
        self.endpoint_arn = endpoint.ref

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["sagemaker:InvokeEndpoint"], resource_arns=[self.endpoint_arn]
        )

    def metric_model_latency(self, statistic: str) -> cloudwatch.Metric:
        """In µs. CloudWatch has any percentile of it: "p99"."""
        return self._metric("ModelLatency", statistic)

    def metric_overhead_latency(self) -> cloudwatch.Metric:
        """In µs, the average: percentiles of this one are not documented."""
        return self._metric("OverheadLatency", "Average")

    def metric_invocations(self) -> cloudwatch.Metric:
        return self._metric("Invocations", "Sum")

    def metric_invocations_per_instance(self) -> cloudwatch.Metric:
        return self._metric("InvocationsPerInstance", "Sum")

    def metric_client_errors(self) -> cloudwatch.Metric:
        return self._metric("Invocation4XXErrors", "Sum")

    def metric_server_errors(self) -> cloudwatch.Metric:
        return self._metric("Invocation5XXErrors", "Sum")

    def metric_cpu_utilization(self) -> cloudwatch.Metric:
        """In percent of one core: 400 is four busy cores."""
        return self._metric("CPUUtilization", "Average", "/aws/sagemaker/Endpoints")

    def metric_memory_utilization(self) -> cloudwatch.Metric:
        return self._metric("MemoryUtilization", "Average", "/aws/sagemaker/Endpoints")

    def _metric(self, name: str, statistic: str, namespace: str = "AWS/SageMaker") -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=namespace,
            metric_name=name,
            statistic=statistic,
            period=Duration.minutes(1),
            dimensions_map={"EndpointName": self.endpoint_name, "VariantName": VARIANT},
        )

    def _execution_role(self, props: WorkloadEndpointProps) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
            description="Reads the model archive, pulls the image, writes the endpoint's logs and metrics.",
        )
        grant_model_files(role, props.archive, props.image)
        grant_container_telemetry(role, ENDPOINT_LOGS)
        return role

    def _model(self, props: WorkloadEndpointProps) -> sagemaker.CfnModel:
        model = sagemaker.CfnModel(
            self,
            "Model",
            execution_role_arn=self.role.role_arn,
            # SageMaker fetches archive and image itself; the container has no business on the network.
            enable_network_isolation=True,
            primary_container=sagemaker.CfnModel.ContainerDefinitionProperty(
                image=props.image.uri,
                model_data_url=props.archive.url,
                environment={**triton_environment(props.default_model), **props.environment},
            ),
        )
        # SageMaker tries archive and image when the model is created: the role's policy has to be there.
        model.node.add_dependency(self.role.node.find_child("DefaultPolicy"))
        return model

    def _config(self, props: WorkloadEndpointProps, model: sagemaker.CfnModel) -> sagemaker.CfnEndpointConfig:
        variant = sagemaker.CfnEndpointConfig.ProductionVariantProperty(
            variant_name=VARIANT,
            model_name=model.attr_model_name,
            instance_type=props.instance_type,
            initial_instance_count=props.instance_count,
            initial_variant_weight=1,
            inference_ami_version=props.image.host_ami,
        )
        return sagemaker.CfnEndpointConfig(
            self,
            "Config",
            production_variants=[variant],
            kms_key_id=self._volume_key_arn(props.instance_type),
        )

    def _volume_key_arn(self, instance_type: str) -> str | None:
        # Hosts with NVMe of their own encrypt it in hardware; a key is refused there according to older API
        # documents, and of no effect according to newer ones.
        if has_local_storage(instance_type):
            return None
        key = kms.Key(
            self,
            "VolumeKey",
            description="Encrypts the storage volumes of the endpoint's instances.",
            enable_key_rotation=True,
            # It encrypts nothing that outlives the instances.
            removal_policy=RemovalPolicy.DESTROY,
        )
        key.grant(self.role, "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext")
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["kms:CreateGrant"],
                resources=[key.key_arn],
                # For the instances' volumes, and for nobody else.
                conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}},
            )
        )
        return key.key_arn


def triton_environment(default_model: str) -> dict[str, str]:
    return {
        "SAGEMAKER_TRITON_ALLOW_METRICS": "true",
        # An archive with more than one model directory answers /invocations with this one.
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": default_model,
        # The image's own default logs every request.
        "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
    }
