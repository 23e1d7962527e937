"""One model on one kind of instance: what SageMaker needs to bring it up, and the variant that runs it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_iam as iam
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from stacks.endpoint.network import EndpointVpc
from stacks.endpoint.serving_image import ServingImage, runs_on_neuron
from stacks.endpoint.startup import startup_timeouts
from stacks.model_archive import ModelArchive
from workloads import ModelArtifact


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What is served and on what. `instance_types` are tried in turn; the first is the one that was measured."""

    artifact: ModelArtifact
    archive: ModelArchive
    image: ServingImage
    environment: Mapping[str, str]
    instance_types: Sequence[str]
    instance_count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedModelProps:
    served: Served
    role: iam.Role
    network: EndpointVpc | None


class ServedModel(Construct):
    """`model`, and `variant` to put it into an endpoint configuration."""

    def __init__(self, scope: Construct, id: str, props: ServedModelProps) -> None:
        super().__init__(scope, id)
        served, network = props.served, props.network
        self._served = served
        self.model = sagemaker.CfnModel(
            self,
            "Model",
            execution_role_arn=props.role.role_arn,
            # SageMaker fetches archive and image itself; the container has no business on the network.
            enable_network_isolation=True,
            primary_container=sagemaker.CfnModel.ContainerDefinitionProperty(
                image=served.image.uri,
                model_data_url=served.archive.url,
                environment={**_server_environment(served.artifact), **served.environment},
            ),
            vpc_config=sagemaker.CfnModel.VpcConfigProperty(
                subnets=network.subnet_ids, security_group_ids=network.security_group_ids
            )
            if network
            else None,
        )
        # SageMaker tries archive and image when the model is created: the role's policy has to be there.
        self.model.node.add_dependency(props.role.node.find_child("DefaultPolicy"))
        if network is not None:
            self.model.node.add_dependency(*network.routes)

    def variant(self, name: str, weight: float) -> sagemaker.CfnEndpointConfig.ProductionVariantProperty:
        served = self._served
        timeouts = startup_timeouts(served.artifact.archive_bytes)
        first, *others = served.instance_types
        pools = [
            sagemaker.CfnEndpointConfig.InstancePoolProperty(instance_type=each, priority=priority)
            for priority, each in enumerate(served.instance_types, start=1)
        ]
        return sagemaker.CfnEndpointConfig.ProductionVariantProperty(
            variant_name=name,
            model_name=self.model.attr_model_name,
            instance_type=None if others else first,
            instance_pools=pools if others else None,
            initial_instance_count=served.instance_count,
            initial_variant_weight=weight,
            inference_ami_version=served.image.host_ami,
            model_data_download_timeout_in_seconds=timeouts.download_s,
            container_startup_health_check_timeout_in_seconds=timeouts.start_s,
            routing_config=sagemaker.CfnEndpointConfig.RoutingConfigProperty(
                routing_strategy="LEAST_OUTSTANDING_REQUESTS"
            ),
        )


def _server_environment(artifact: ModelArtifact) -> dict[str, str]:
    """containers/neuron reads all of its settings from the archive."""
    return {} if runs_on_neuron(artifact) else triton_environment(artifact.default_model)


def triton_environment(default_model: str) -> dict[str, str]:
    return {
        "SAGEMAKER_TRITON_ALLOW_METRICS": "true",
        # An archive with more than one model directory answers /invocations with this one.
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": default_model,
        # The image's own default logs every request.
        "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
    }
