"""Container images in private Amazon ECR: one that a user names, or that of containers/ by its digest."""

import re
from dataclasses import dataclass

from aws_cdk import Annotations, Aws, Stack, Token
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.grants import acknowledge_resources, arn_of
from stacks.workload_stack import WorkloadStackProps
from workloads import UsageError, own_images

_ECR_URI = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?"
    r"/(?P<repository>[a-z0-9._/-]+)(:[\w.-]+|@sha256:[0-9a-f]{64})"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EcrImage:
    """The URI of an image, and its repository. An image asset has both: `image_uri` and `repository`."""

    repository: ecr.IRepository
    uri: str
    host_ami: str | None = None
    """The InferenceAmiVersion of an endpoint's instances; None is SageMaker's default."""

    @classmethod
    def from_uri(
        cls, scope: Construct, id: str, uri: str, *, host_ami: str | None = None, key: str | None = None
    ) -> "EcrImage":
        """Imports an image. `key` is what the error calls `uri`. Raises `UsageError` for another registry."""
        if (match := _ECR_URI.fullmatch(uri)) is None:
            raise UsageError(
                f"{key or f'{scope.node.path}/{id}: uri'}: got '{uri}', but AWS pulls from private Amazon ECR "
                "only: <account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag> (or @sha256:<digest>). "
                "Push the image there first."
            )
        return cls(repository=import_repository(scope, id, **match.groupdict()), uri=uri, host_ami=host_ami)

    def grant_pull(self, role: iam.Role) -> None:
        self.repository.grant_pull(role)
        acknowledge_resources(role, ["*"], "ecr:GetAuthorizationToken is an action on no resource.")


def import_repository(scope: Construct, id: str, *, account: str, region: str, repository: str) -> ecr.IRepository:
    arn = arn_of(scope, "ecr", "repository", repository, account=account, region=region)
    return ecr.Repository.from_repository_attributes(scope, id, repository_name=repository, repository_arn=arn)


class OwnImage(Construct):
    """`image` to run. A missing image of containers/ is an error of the stack, except on the local account."""

    def __init__(self, scope: Construct, id: str, *, uri: str | None, kind: str, workload: WorkloadStackProps) -> None:
        super().__init__(scope, id)
        self._kind, self._workload = kind, workload
        key = f"{workload.folder.file}: hosting.image_uri"
        self.image = self._ours() if uri is None else EcrImage.from_uri(self, "Repository", uri, key=key)

    def _ours(self) -> EcrImage:
        stack, kind = Stack.of(self), self._kind
        content = own_images.content_of(kind)
        built = own_images.load_image(self._workload.root, kind)
        released_in = self._workload.options.image_account
        if why := self._why_not(built, content):
            self._tell(why)
        fitting = None if why else built
        repository = fitting.repository if fitting else own_images.REPOSITORY
        # Without a digest the name is still one of this very content: it is the tag under which it would be pushed.
        version = f"@{fitting.digest}" if fitting else f":{kind}-{content}"
        # Other regions have a replica in the stack's own account.
        account = released_in if fitting and released_in and fitting.region == stack.region else stack.account
        uri = f"{account}.dkr.ecr.{stack.region}.{Aws.URL_SUFFIX}/{repository}{version}"
        name = {"account": account, "region": stack.region, "repository": repository}
        return EcrImage(repository=import_repository(self, "Repository", **name), uri=uri)

    def _why_not(self, built: own_images.OwnImage | None, content: str) -> str | None:
        """Returns why there is no image of what containers/ has now, where the stack is deployed to."""
        file, kind = own_images.image_file(self._workload.root, self._kind), self._kind
        if built is None:
            return f"{file} does not exist: our image '{kind}', which the workload needs, was not built."
        if built.content != content:
            return f"{file}: our image '{kind}' was built from other files than containers/ has now."
        account, region = Stack.of(self).account, Stack.of(self).region
        # A stack for every account has the image everywhere.
        is_anywhere = Token.is_unresolved(account) or Token.is_unresolved(region)
        if self._workload.options.image_account or is_anywhere or (built.account, built.region) == (account, region):
            return None
        return f"our image '{kind}' is in {built.registry}, and not in account {account} in {region}."

    def _tell(self, why: str) -> None:
        file, kind = self._workload.folder.file, self._kind
        build = f"`bash scripts/release/build_image.sh {kind}`"
        if self._workload.options.local:
            text = f"{file}: local_aws pulls no image. AWS would pull our image '{kind}', which {build} builds."
            Annotations.of(self).add_info_v2("image:local", text)
        elif Token.is_unresolved(Stack.of(self).account):
            text = f"{file}: {why} Before a deployment to AWS, build and push it with {build}."
            Annotations.of(self).add_info_v2("image:missing", text)
        else:
            text = f"{file}: {why} Build and push it with {build}, or set hosting.image_uri to an image of your own."
            Annotations.of(self).add_error(text)
