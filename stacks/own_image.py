"""The image of ours that an ECS task or a processing job runs: the one that hosting names, else the one we would push.

In: hosting.image_uri and the kind of machine. Out: the URI, and the repository to grant a pull on.
"""

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Annotations, Aws, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.ecs.errors import ImageOutOfReach
from stacks.grants import acknowledge_resources
from stacks.triton_image import ECR_IMAGE

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
        account, region, name, self.uri = self._unnamed(props) if props.uri is None else _named(props)
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

    def _unnamed(self, props: OwnImageProps) -> tuple[str, str, str, str]:
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
        raise ImageOutOfReach(props.workload_file, str(props.uri))
    return match["account"], match["region"], match["repository"], match.string
