"""The step of a release that builds and pushes the workload's images. Its output holds their digests."""

from collections.abc import Iterable, Sequence

from aws_cdk import Duration, RemovalPolicy, pipelines
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.grants import PULL, acknowledge_resources, acknowledge_to_checkov, allow, arn_of
from stacks.release.steps import INSTALL, SCRIPTS, code_build_step
from workloads import Workload, own_images

KEPT_IMAGES = 30
"""How many are kept of each kind. A rollback needs the one before; an endpoint pulls its own whenever it grows."""
FOLDER = "build/images"
LONGEST_BUILD = Duration.hours(3)
PREFIXES = ("inf1-", "inf2-", "cpu-", "triton-")
"""How tags begin, but for those of mirrored bases, which are kept for ever."""


class ReleaseImages(Construct):
    """`built` has the step's output by the folder that it belongs in; it is empty if the workload needs no image."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        workload: Workload,
        source: pipelines.IFileSetProducer,
        after: pipelines.Step,
        readers: Iterable[str],
    ) -> None:
        """`readers` are the other accounts that pull the images."""
        super().__init__(scope, id)
        self._after, self._source = after, source
        kinds = sorted(own_images.kinds_of(workload))
        self.built: dict[str, pipelines.IFileSetProducer] = {}
        if not kinds:
            return
        self._repository = self._make_repository()
        for account in readers:
            self._repository.grant_pull(iam.AccountPrincipal(account))
        self._role = self._make_role(kinds)
        self.built[FOLDER] = self._step(kinds).add_output_directory(FOLDER)

    def _make_repository(self) -> ecr.Repository:
        repository = ecr.Repository(
            self,
            "Repository",
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            image_scan_on_push=True,
            removal_policy=RemovalPolicy.RETAIN,
            lifecycle_rules=[
                ecr.LifecycleRule(tag_prefix_list=[prefix], max_image_count=KEPT_IMAGES) for prefix in PREFIXES
            ],
        )
        acknowledge_to_checkov(repository, "CKV_AWS_136", "Code without secrets; Amazon ECR encrypts it with its key.")
        return repository

    def _make_role(self, kinds: Iterable[str]) -> iam.Role:
        """Returns the role of all images' steps: they build one commit, and a tag that was pushed stays what it is."""
        builder = iam.ServicePrincipal("codebuild.amazonaws.com")
        role = iam.Role(self, "Role", assumed_by=builder, description="Builds and pushes the images of containers/.")
        self._repository.grant_pull_push(role)
        allow(role, ["ecr:DescribeImages"], [self._repository.repository_arn])
        bases = [own_images.image_build(kind) for kind in kinds]
        bases += [own_images.image_build(build.base) for build in bases if not build.base_registries]
        names = sorted({build.base.partition(":")[0] for build in bases if build.base_registries})
        arns = [arn_of(self, "ecr", "repository", name, account="*") for name in names]
        allow(role, PULL, arns, "The account of AWS's registry differs by region.")
        acknowledge_resources(role, ["*"], "ecr:GetAuthorizationToken is an action on no resource.")
        return role

    def _step(self, kinds: Sequence[str]) -> pipelines.CodeBuildStep:
        name = self._repository.repository_name
        return code_build_step(
            "Images",
            self._source,
            [f"{INSTALL} requirements/cdk.txt", *(f"bash {SCRIPTS}/build_image.sh {kind} {name}" for kind in kinds)],
            role=self._role,
            after=self._after,
            large=True,
            privileged=True,  # Docker's daemon requires it.
            cache=codebuild.Cache.local(codebuild.LocalCacheMode.DOCKER_LAYER),
            timeout=LONGEST_BUILD,
        )
