"""Which container image serves a workload's endpoint, and which host AMI starts it.

Triton is SageMaker's stock image or one's own. Inferentia has no stock image that serves our models: it is one's own
(containers/neuron), on the host that SageMaker chooses: its one Neuron AMI has an old driver, and is not for Inf1.
"""

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Aws, CfnMapping, Stack, Token
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.errors import NotAnEcrImage, TritonNotInRegion, UnpublishedTriton
from stacks.grants import acknowledge_resources
from stacks.own_image import OwnImage, OwnImageProps
from stacks.triton_image import ECR_IMAGE, REPOSITORY, host_ami, registry_accounts
from workloads import ModelArtifact
from workloads.instances import family, has_accelerator


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingImageProps:
    image_uri: str | None
    """None: the stock image of `triton_version`."""
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
            account, region, name, self.uri = (
                self._stock(props) if props.image_uri is None else _named(props.image_uri, file)
            )
            self._repository = self._pulled(account, region, name)

    def grant_pull(self, role: iam.Role) -> None:
        if self._own is not None:
            self._own.grant_pull(role)
            return
        self._repository.grant_pull(role)
        acknowledge_resources(role, ["*"], "ecr:GetAuthorizationToken is an action on no resource.")

    def _pulled(self, account: str, region: str, name: str) -> ecr.IRepository:
        return ecr.Repository.from_repository_attributes(
            self,
            "Repository",
            repository_name=name,
            repository_arn=Stack.of(self).format_arn(
                service="ecr", account=account, region=region, resource="repository", resource_name=name
            ),
        )

    def _stock(self, props: ServingImageProps) -> tuple[str, str, str, str]:
        version, region = props.triton_version, Stack.of(self).region
        account = self._registry_account(version, region, props.workload_file)
        processor = "" if has_accelerator(props.instance_type) else "-cpu"
        host = f"{account}.dkr.ecr.{region}.{Aws.URL_SUFFIX}"
        return account, region, REPOSITORY, f"{host}/{REPOSITORY}:{version}-py3{processor}"

    def _registry_account(self, version: str, region: str, file: Path) -> str:
        published = registry_accounts()
        if version not in published:
            raise UnpublishedTriton(file, version, sorted(published))
        accounts = published[version]
        if Token.is_unresolved(region):
            by_region = {name: {"account": account} for name, account in sorted(accounts.items())}
            return CfnMapping(self, "Registries", mapping=by_region).find_in_map(region, "account")
        if region not in accounts:
            raise TritonNotInRegion(file, version, region, sorted(accounts))
        return accounts[region]


def runs_on_neuron(artifact: ModelArtifact) -> bool:
    return artifact.runtime in ("neuron", "neuronx")


def _named(image_uri: str, file: Path) -> tuple[str, str, str, str]:
    match = ECR_IMAGE.fullmatch(image_uri)
    if match is None:
        raise NotAnEcrImage(file, image_uri)
    return match["account"], match["region"], match["repository"], image_uri
