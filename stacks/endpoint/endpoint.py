"""A SageMaker real-time endpoint for one packed model: role, key, model, config, endpoint.

One variant, `AllTraffic`, of a given size; `EndpointScaling` changes it, `EndpointAlarms` watches it.
L1 for SageMaker: the alpha L2 has neither `RetainAllVariantProperties` nor `InferenceAmiVersion`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from stacks.endpoint.captured_data import CapturedData, CapturedDataProps
from stacks.endpoint.metrics import VARIANT
from stacks.endpoint.network import EndpointVpc, EndpointVpcProps
from stacks.endpoint.served_model import Served, ServedModel, ServedModelProps
from stacks.endpoint.update import deployment_config
from stacks.grants import ENDPOINT_LOGS, allow_container_telemetry
from workloads import EndpointUpdate, SageMakerEndpointHosting
from workloads.instances import has_local_storage

SHADOW = "Shadow"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadEndpointProps:
    name: str
    """Fixed, since the alarms that guard an update are there before the endpoint, and are on its name."""
    hosting: SageMakerEndpointHosting
    production: Served
    shadow: Served | None
    update: EndpointUpdate | None
    """None: as SageMaker does it by itself, all at once."""
    rollback_alarms: Sequence[cloudwatch.IAlarm]


class WorkloadEndpoint(Construct):
    """Names, ARNs and `role` for others; grants by intent. Its metrics are `EndpointMetrics` of its name."""

    def __init__(self, scope: Construct, id: str, props: WorkloadEndpointProps) -> None:
        super().__init__(scope, id)
        hosting = props.hosting
        self._network = (
            EndpointVpc(self, "Network", EndpointVpcProps(network=hosting.network)) if hosting.network else None
        )
        self.role = self._execution_role(props)
        self._key = self._storage_key(props)
        self._capture = self._captured_data(props)
        production = self._served("Production", props.production)
        shadow = self._served(SHADOW, props.shadow) if props.shadow else None
        config = self._config(props, production, shadow)
        endpoint = self._endpoint(props, config)
        self.model_name = production.model.attr_model_name
        self.model_arn = production.model.ref
        self.endpoint_name = endpoint.attr_endpoint_name
        self.endpoint_arn = endpoint.ref

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["sagemaker:InvokeEndpoint"], resource_arns=[self.endpoint_arn]
        )

    def _execution_role(self, props: WorkloadEndpointProps) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
            description="Reads the model archive, pulls the image, writes the endpoint's logs and metrics.",
        )
        for served in _all(props):
            served.archive.grant_read(role)
            served.image.grant_pull(role)
        allow_container_telemetry(role, ENDPOINT_LOGS)
        if self._network is not None:
            self._network.grant_join(role)
        return role

    def _served(self, id: str, served: Served) -> ServedModel:
        return ServedModel(self, id, ServedModelProps(served=served, role=self.role, network=self._network))

    def _config(
        self, props: WorkloadEndpointProps, production: ServedModel, shadow: ServedModel | None
    ) -> sagemaker.CfnEndpointConfig:
        copied = props.hosting.shadow
        return sagemaker.CfnEndpointConfig(
            self,
            "Config",
            production_variants=[production.variant(VARIANT, 1)],
            # The shadow's weight, against the production variant's, is the share of requests that it gets a copy of.
            shadow_production_variants=[shadow.variant(SHADOW, copied.percent / 100)] if shadow and copied else None,
            data_capture_config=self._capture.config if self._capture else None,
            kms_key_id=self._key.key_arn if self._key and _has_volumes(props) else None,
        )

    def _endpoint(self, props: WorkloadEndpointProps, config: sagemaker.CfnEndpointConfig) -> sagemaker.CfnEndpoint:
        return sagemaker.CfnEndpoint(
            self,
            "Endpoint",
            endpoint_name=props.name,
            endpoint_config_name=config.attr_endpoint_config_name,
            # Otherwise every update resets an autoscaled fleet to its initial count.
            retain_all_variant_properties=True,
            deployment_config=deployment_config(props.update, props.rollback_alarms) if props.update else None,
        )

    def _captured_data(self, props: WorkloadEndpointProps) -> CapturedData | None:
        if props.hosting.data_capture is None or self._key is None:
            return None
        captured = CapturedData(self, "Captured", CapturedDataProps(capture=props.hosting.data_capture, key=self._key))
        captured.grant_write(self.role)
        return captured

    def _storage_key(self, props: WorkloadEndpointProps) -> kms.IKey | None:
        """For volumes and captured data; None where there is neither."""
        if not _has_volumes(props) and props.hosting.data_capture is None:
            return None
        key = self._own_key(props) if props.hosting.kms_key_arn is None else self._given_key(props.hosting.kms_key_arn)
        key.grant(self.role, "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext")
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["kms:CreateGrant"],
                resources=[key.key_arn],
                # For the instances' volumes, and for nobody else.
                conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}},
            )
        )
        return key

    def _given_key(self, arn: str) -> kms.IKey:
        return kms.Key.from_key_arn(self, "StorageKey", arn)

    def _own_key(self, props: WorkloadEndpointProps) -> kms.Key:
        # What is captured is kept, and so is its key; volumes end with their instances.
        keeps = props.hosting.data_capture is not None
        return kms.Key(
            self,
            "StorageKey",
            description="Encrypts the storage volumes of the endpoint's instances, and what is captured.",
            enable_key_rotation=True,
            removal_policy=RemovalPolicy.RETAIN if keeps else RemovalPolicy.DESTROY,
        )


def _all(props: WorkloadEndpointProps) -> list[Served]:
    return [props.production, *([props.shadow] if props.shadow else [])]


def _has_volumes(props: WorkloadEndpointProps) -> bool:
    # Hosts with NVMe of their own encrypt it in hardware; a key is refused there according to older API documents,
    # and of no effect according to newer ones.
    return not any(has_local_storage(name) for served in _all(props) for name in served.instance_types)
