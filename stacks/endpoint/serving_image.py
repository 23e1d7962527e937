"""The container image that serves a workload's endpoint, and the host AMI that starts it.

On CPU and GPU it is Triton: SageMaker's stock image or an image of the workload's own. On Inferentia no stock image
serves our models, so it is always our own (containers/neuron), on the host AMI that SageMaker chooses: the one Neuron
AMI that could be named has an old driver and does not support Inf1.

What is inside an image of the workload's own is not known here, beyond the Triton version that the workload states.
"""

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Aws, CfnMapping, Stack, Token
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.own_image import EcrImage, OwnImage, OwnImageProps, grant_pull, parse_ecr_uri
from workloads import ModelArtifact, UsageError, images
from workloads.instances import HOST_AMIS, OLD_DRIVER_FAMILIES, family, has_accelerator


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingImageProps:
    image_uri: str | None
    """None stands for the stock image of `triton_version`."""
    triton_version: str
    artifact: ModelArtifact
    instance_type: str
    workload_file: Path


class ServingImage(Construct):
    """`uri` for the model's container, `host_ami` for the variant."""

    def __init__(self, scope: Construct, id: str, props: ServingImageProps) -> None:
        super().__init__(scope, id)
        file = props.workload_file
        self._own: OwnImage | None = None
        self.host_ami: str | None = None
        if runs_on_neuron(props.artifact):
            kind = family(props.instance_type)
            self._own = OwnImage(self, "Own", OwnImageProps(uri=props.image_uri, kind=kind, workload_file=file))
            self.uri = self._own.uri
        else:
            self.host_ami = host_ami(props.triton_version, props.instance_type, file)
            image = self._stock(props) if props.image_uri is None else _named(props.image_uri, file)
            self.uri = image.uri
            self._repository = image.import_repository(self)

    def grant_pull(self, role: iam.Role) -> None:
        if self._own is not None:
            self._own.grant_pull(role)
        else:
            grant_pull(self._repository, role)

    def _stock(self, props: ServingImageProps) -> EcrImage:
        version, region = props.triton_version, Stack.of(self).region
        account = self._registry_account(version, region, props.workload_file)
        processor = "" if has_accelerator(props.instance_type) else "-cpu"
        host = f"{account}.dkr.ecr.{region}.{Aws.URL_SUFFIX}"
        uri = f"{host}/{images.TRITON}:{version}-py3{processor}"
        return EcrImage(account=account, region=region, repository=images.TRITON, uri=uri)

    def _registry_account(self, version: str, region: str, file: Path) -> str:
        published = images.triton_registries()
        if version not in published:
            raise UsageError(
                f"{file}: hosting.triton_version: got '{version}', which SageMaker does not publish. "
                f"Published: {', '.join(sorted(published))}. "
                "Choose one of them, or set hosting.image_uri to your own image."
            )
        accounts = published[version]
        if Token.is_unresolved(region):
            by_region = {name: {"account": account} for name, account in sorted(accounts.items())}
            return CfnMapping(self, "Registries", mapping=by_region).find_in_map(region, "account")
        if region not in accounts:
            raise UsageError(
                f"{file}: hosting.triton_version: SageMaker does not publish Triton {version} in {region}, only "
                f"in {', '.join(sorted(accounts))}. Deploy to one of these regions, choose another version, or set "
                "hosting.image_uri to your own image."
            )
        return accounts[region]


def runs_on_neuron(artifact: ModelArtifact) -> bool:
    return artifact.runtime in ("neuron", "neuronx")


def host_ami(version: str, instance_type: str, file: Path) -> str | None:
    """Returns the variant's `InferenceAmiVersion`, or None for a CPU type.

    Raises `UsageError`, naming `file`, for a host whose driver is not known to start the image: such a pair hangs
    without a line in the log.
    """
    if not has_accelerator(instance_type):
        return None
    if family(instance_type) not in OLD_DRIVER_FAMILIES or version not in HOST_AMIS:
        raise UsageError(
            f"{file}: hosting: no host AMI is known to start Triton {version} on {instance_type}. "
            f"Known: Triton {', '.join(HOST_AMIS)} on {', '.join(OLD_DRIVER_FAMILIES)}. "
            "Choose such a pair, or a CPU instance type."
        )
    return HOST_AMIS[version]


def _named(image_uri: str, file: Path) -> EcrImage:
    if (image := parse_ecr_uri(image_uri)) is None:
        raise UsageError(
            f"{file}: hosting.image_uri: got '{image_uri}', but SageMaker pulls from private Amazon ECR "
            "only: <account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag> (or @sha256:<digest>). "
            "Push the image there first."
        )
    return image
