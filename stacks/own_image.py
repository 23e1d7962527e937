"""Container images in Amazon ECR, and the image of ours that an ECS task, a processing job or Inferentia runs.

Our image is the one that hosting.image_uri names, else transformers-in-production:KIND in the account and region
deployed to.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Annotations, Aws, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.grants import acknowledge_resources
from workloads import UsageError

REPOSITORY = "transformers-in-production"
BUILDS = {
    "inf1": "containers/neuron/Dockerfile",
    "inf2": "containers/neuron/Dockerfile with the TAG for Inf2 that it names",
    "cpu": "containers/batch/Dockerfile",
}

_ECR_URI = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?"
    r"/(?P<repository>[a-z0-9._/-]+)(:[\w.-]+|@sha256:[0-9a-f]{64})"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EcrImage:
    account: str
    region: str
    repository: str
    uri: str

    def import_repository(self, scope: Construct) -> ecr.IRepository:
        arn = Stack.of(scope).format_arn(
            service="ecr",
            account=self.account,
            region=self.region,
            resource="repository",
            resource_name=self.repository,
        )
        return ecr.Repository.from_repository_attributes(
            scope, "Repository", repository_name=self.repository, repository_arn=arn
        )


def parse_ecr_uri(uri: str) -> EcrImage | None:
    """Returns None for an image that is not in a private Amazon ECR repository."""
    match = _ECR_URI.fullmatch(uri)
    if match is None:
        return None
    return EcrImage(account=match["account"], region=match["region"], repository=match["repository"], uri=uri)


def grant_pull(repository: ecr.IRepository, role: iam.Role) -> None:
    repository.grant_pull(role)
    acknowledge_resources(role, ["*"], "ecr:GetAuthorizationToken is an action on no resource.")


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnImageProps:
    uri: str | None
    """hosting.image_uri."""
    kind: str
    """inf1, inf2 or cpu."""
    workload_file: Path


class OwnImage(Construct):
    """`uri` to run."""

    def __init__(self, scope: Construct, id: str, props: OwnImageProps) -> None:
        super().__init__(scope, id)
        image = self._default(props) if props.uri is None else _named(props.uri, props.workload_file)
        self.uri = image.uri
        self._repository = image.import_repository(self)

    def grant_pull(self, role: iam.Role) -> None:
        grant_pull(self._repository, role)

    def _default(self, props: OwnImageProps) -> EcrImage:
        Annotations.of(self).add_warning_v2(
            "image:own",
            f"{props.workload_file}: hosting.image_uri is not set: {REPOSITORY}:{props.kind} of the account and region "
            f"deployed to is pulled. Build {BUILDS[props.kind]} and push it there first, or set "
            "hosting.image_uri. local_aws pulls nothing.",
        )
        host = f"{Aws.ACCOUNT_ID}.dkr.ecr.{Aws.REGION}.{Aws.URL_SUFFIX}"
        return EcrImage(
            account=Aws.ACCOUNT_ID, region=Aws.REGION, repository=REPOSITORY, uri=f"{host}/{REPOSITORY}:{props.kind}"
        )


def _named(uri: str, workload_file: Path) -> EcrImage:
    if (image := parse_ecr_uri(uri)) is None:
        raise UsageError(
            f"{workload_file}: hosting.image_uri: got '{uri}', but the instances reach private Amazon ECR "
            "only: <account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag> (or @sha256:<digest>). "
            "Push the image there first."
        )
    return image
