"""One model on its instance types: the SageMaker model, and the variant that runs it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_iam as iam
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from stacks.endpoint.network import EndpointVpc
from stacks.grants import ENDPOINT_LOGS, allow_container_telemetry
from stacks.model_archive import ModelArchive
from stacks.own_image import EcrImage

LONGEST_TIMEOUT_S = 3600
DOWNLOAD_BYTES_PER_S, START_BYTES_PER_S = 20_000_000, 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """`instance_types` are tried in turn; the first was measured. A shadow gets `percent` of the requests.

    Without instance types it is serverless, and SageMaker does not isolate its network.
    """

    archive: ModelArchive
    image: EcrImage
    environment: Mapping[str, str]
    instance_types: Sequence[str]
    instance_count: int
    percent: int = 100

    @property
    def is_serverless(self) -> bool:
        return not self.instance_types


class ServedModel(Construct):
    """`model`, and `variant` to put it into an endpoint configuration."""

    def __init__(
        self, scope: Construct, id: str, *, served: Served, role: iam.Role, network: EndpointVpc | None = None
    ) -> None:
        super().__init__(scope, id)
        self._served = served
        self.model = sagemaker.CfnModel(
            self,
            "Model",
            execution_role_arn=role.role_arn,
            # SageMaker fetches archive and image itself, and the container needs no network.
            enable_network_isolation=not served.is_serverless,
            primary_container=sagemaker.CfnModel.ContainerDefinitionProperty(
                image=served.image.uri, model_data_url=served.archive.url, environment=dict(served.environment)
            ),
            vpc_config=sagemaker.CfnModel.VpcConfigProperty(
                subnets=network.subnet_ids, security_group_ids=network.security_group_ids
            )
            if network
            else None,
        )
        # SageMaker reads archive and image when the model is created, so the role's policies have to exist by then.
        self.model.node.add_dependency(*policies_of(role))
        if network is not None:
            self.model.node.add_dependency(*network.routes)

    def variant(self, name: str, weight: float) -> sagemaker.CfnEndpointConfig.ProductionVariantProperty:
        served = self._served
        download_s, start_s = startup_timeouts(served.archive.size_bytes)
        first, *others = served.instance_types
        pools = [
            sagemaker.CfnEndpointConfig.InstancePoolProperty(instance_type=name, priority=priority)
            for priority, name in enumerate(served.instance_types, start=1)
        ]
        return sagemaker.CfnEndpointConfig.ProductionVariantProperty(
            variant_name=name,
            model_name=self.model.attr_model_name,
            instance_type=None if others else first,
            instance_pools=pools if others else None,
            initial_instance_count=served.instance_count,
            initial_variant_weight=weight,
            inference_ami_version=served.image.host_ami,
            model_data_download_timeout_in_seconds=download_s,
            container_startup_health_check_timeout_in_seconds=start_s,
            routing_config=sagemaker.CfnEndpointConfig.RoutingConfigProperty(
                routing_strategy="LEAST_OUTSTANDING_REQUESTS"
            ),
        )


def execution_role(scope: Construct, served: Iterable[Served]) -> iam.Role:
    """Returns the role of an endpoint, which reads the archives and pulls the images of its models."""
    role = iam.Role(
        scope,
        "Role",
        assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
        description="Reads the model archive, pulls the image, writes the endpoint's logs and metrics.",
    )
    for each in served:
        each.archive.grant_read(role)
        each.image.grant_pull(role)
    allow_container_telemetry(role, ENDPOINT_LOGS)
    return role


def policies_of(role: iam.Role) -> list[iam.Policy]:
    return [each for each in role.node.children if isinstance(each, iam.Policy)]


def startup_timeouts(archive_bytes: int) -> tuple[int, int]:
    """Returns the seconds that SageMaker waits for the archive to be downloaded, and then for a healthy /ping.

    60 s + bytes / 20 MB/s, 300 s + bytes / 10 MB/s, at most an hour: low guesses, as a short wait fails a sound model.
    """
    download_s, start_s = 60 + archive_bytes // DOWNLOAD_BYTES_PER_S, 300 + archive_bytes // START_BYTES_PER_S
    return min(LONGEST_TIMEOUT_S, download_s), min(LONGEST_TIMEOUT_S, start_s)
