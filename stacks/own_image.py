"""The image of ours that an ECS task, a processing job or an Inferentia endpoint runs, and the grant to pull it.

It is the image that hosting.image_uri names, else transformers-in-production:KIND in the account and region deployed
to.
"""

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Annotations, Aws, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.grants import acknowledge_resources
from stacks.triton_image import ECR_IMAGE
from workloads import UsageError

REPOSITORY = "transformers-in-production"
DOCKERFILES = {"inf1": "containers/neuron", "inf2": "containers/neuron", "cpu": "containers/batch"}


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnImageProps:
    uri: str | None
    kind: str
    """inf1, inf2 or cpu."""
    workload_file: Path


class OwnImage(Construct):
    def __init__(self, scope: Construct, id: str, props: OwnImageProps) -> None:
        super().__init__(scope, id)
        account, region, name, self.uri = self._default(props) if props.uri is None else _named(props)
        self._repository = ecr.Repository.from_repository_attributes(
            self,
            "Repository",
            repository_name=name,
            repository_arn=Stack.of(self).format_arn(
                service="ecr", account=account, region=region, resource="repository", resource_name=name
            ),
        )

    def grant_pull(self, role: iam.Role) -> None:
        self._repository.grant_pull(role)
        acknowledge_resources(role, ["*"], "ecr:GetAuthorizationToken is an action on no resource.")

    def _default(self, props: OwnImageProps) -> tuple[str, str, str, str]:
        Annotations.of(self).add_warning_v2(
            "image:own",
            f"{props.workload_file}: hosting.image_uri is not set: {REPOSITORY}:{props.kind} of the account and region "
            f"deployed to is pulled. Build {DOCKERFILES[props.kind]}/Dockerfile and push it there first, or set "
            "hosting.image_uri. local_aws pulls nothing.",
        )
        host = f"{Aws.ACCOUNT_ID}.dkr.ecr.{Aws.REGION}.{Aws.URL_SUFFIX}"
        return Aws.ACCOUNT_ID, Aws.REGION, REPOSITORY, f"{host}/{REPOSITORY}:{props.kind}"


def _named(props: OwnImageProps) -> tuple[str, str, str, str]:
    match = ECR_IMAGE.fullmatch(props.uri or "")
    if match is None:
        raise UsageError(
            f"{props.workload_file}: hosting.image_uri: got '{props.uri}', but the instances reach private Amazon ECR "
            "only: <account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag> (or @sha256:<digest>). "
            "Push the image there first."
        )
    return match["account"], match["region"], match["repository"], match.string
