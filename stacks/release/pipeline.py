"""The pipeline that takes a workload from a commit to production. Each workload has its own.

Production takes only a workload whose recommendation was measured on the artifact that is built. A release of a new
artifact ends with the proposal of its recommendation; the release of the merge reaches production.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from aws_cdk import Annotations, CfnOutput, Environment, RemovalPolicy, Stack, Stage, Token, pipelines
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_codepipeline as codepipeline
from aws_cdk import aws_codepipeline_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.buckets_and_logs import private_bucket
from stacks.context import CONNECTION, PRODUCTION, REPOSITORY, Options, ReleaseStart
from stacks.context import Stage as StageName
from stacks.ecs.measuring import project_name
from stacks.ecs.service_stack import EcsServiceStack
from stacks.endpoint.endpoint_stack import SageMakerEndpointStack
from stacks.grants import acknowledge, acknowledge_policy_to_checkov, acknowledge_to_checkov, acknowledge_wildcards
from stacks.release import steps
from stacks.release.access import ReleaseAccess, build_cache, measurements, publishing, use_of
from stacks.release.images import ReleaseImages
from stacks.workload_stack import refuse_arguments
from workloads import ROOT, ProjectError, Workload
from workloads.instances import NEURON_FAMILIES

AddStacks = Callable[[Construct, Options, Environment], None]
"""Adds the workload's stacks to a scope, in an account and region."""

SERVING = (SageMakerEndpointStack, EcsServiceStack)
"""Stacks whose instances cost by the hour. A batch's cost while it runs."""

REMOTE = (*NEURON_FAMILIES, "tensorrt")
"""Runtimes whose models a SageMaker processing job builds."""
MEASUREMENT_ONLY = ("kms_key_arn", "subnets", "security_groups")
"""Facts of [recommender] that the roles of builds may not use."""

BETA = Options(stage="beta", recommendation="ignore")
"""Beta has one instance, which is invoked and measured and serves no users."""

REASONS = {
    r"Resource::.*:log-group:/aws/codebuild/.*": "A project writes into the log group that CodeBuild names after it.",
    r"Resource::.*:report-group/.*": "A project reports into the groups that CodeBuild names after it.",
    r"Resource::<[^<>]*\.Arn>/.*": "Files that steps hand on have names that each execution makes.",
    r"Resource::arn:<AWS::Partition>:s3:::.*eplicationbucket\w*/\*": "Files for a deployment in another region.",
    r"Action::s3:(GetObject|GetBucket|List|DeleteObject|Abort)\*": "What CDK's grants on a bucket are made of.",
    r"Action::kms:(ReEncrypt|GenerateDataKey)\*": "What CDK's grants on a key are made of.",
    r"Resource::arn:\*:iam::[^:]*:role/\*": "A condition keeps to the roles of CDK's bootstrap, by their tag.",
    r"Resource::\*": "cloudformation:DescribeStacks, s3:ListBucket, codebuild:StartBuild: what CDK Pipelines asks for.",
}
"""Answers to cdk-nag's findings on roles that CDK Pipelines makes or adds to, by pattern."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """The steps that judge beta's server, in order; `run` has the measurements, which `role` compares and keeps."""

    steps: Sequence[pipelines.Step]
    run: pipelines.Step
    role: iam.Role


class ReleasePipeline(Construct):
    """A pipeline that builds a workload's model, deploys it to beta, measures it there and deploys it to production.

    Its steps run `scripts/release/` of the repository. The stages are children of the stack, so a stack has one
    pipeline. `pipeline` is CodePipeline's.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        repository: str,
        connection_arn: str,
        workload: Workload,
        add_stacks: AddStacks,
        branch: str = "main",
        start: ReleaseStart = "push",
        environments: Mapping[StageName, Environment] | None = None,
        is_built: bool = True,
        waiting: ProjectError | None = None,
    ) -> None:
        """Raises `UsageError` with a line for each problem.

        `repository` is OWNER/NAME, and `connection_arn` is of AWS CodeConnections. `add_stacks` adds the workload's
        stacks to a stage. `environments` has the stages of another account or region than the pipeline's. Without
        `is_built` the pipeline has no stages yet, and no production for the reason `waiting`.
        """
        super().__init__(scope, id)
        self._environments = environments or {}
        refuse_arguments(self, self._problems(repository, connection_arn, start))
        self._repository, self._connection_arn, self._branch = repository, connection_arn, branch
        self._workload, self._add_stacks, self._is_built, self._waiting = workload, add_stacks, is_built, waiting
        self._stack, name = Stack.of(self), workload.name
        self._releases = self._bucket()
        self._access = ReleaseAccess(self, "Access", workload=name, releases=self._releases)
        self._model = _model(workload)
        release = self._release()
        self._steps = steps.Steps(self._model, self._commit, self._releases.bucket_name)
        pipeline = pipelines.CodePipeline(
            self,
            "Pipeline",
            synth=self._synth(),
            code_pipeline=release,
            # The version with which the Synth step runs.
            cli_version=json.loads((ROOT / "package.json").read_text("utf-8"))["devDependencies"]["aws-cdk"],
            cdk_assets_cli_version=steps.CDK_ASSETS,
        )
        measurement = self._beta(pipeline)
        self._production(pipeline, measurement)
        pipeline.build_pipeline()
        self._keep_build()
        if start == "push-and-approval":
            self._start_on_approval(release)
        for each in (release, pipeline, self._access, self._images):
            acknowledge_wildcards(each, REASONS)
        _acknowledge_artifacts(pipeline)
        self.pipeline = pipeline.pipeline

    def _problems(self, repository: str, connection_arn: str, start: ReleaseStart) -> Iterator[str]:
        if not REPOSITORY.fullmatch(repository):
            yield f"repository: got '{repository}'. Write it as OWNER/NAME."
        if not CONNECTION.fullmatch(connection_arn):
            form = "arn:aws:codeconnections:REGION:ACCOUNT:connection/ID"
            yield f"connection_arn: got '{connection_arn}'. Write it as {form}."
        if start == "push-and-approval" and "beta" in self._environments:
            yield (
                "start: got 'push-and-approval' with another environment for beta. Approvals are events of beta's "
                "account and region, and start only a pipeline there. Leave one of the two out."
            )

    def _environment(self, stage: StageName) -> Environment:
        """Returns account and region of a stage, by default those of the pipeline; None where they are unknown."""
        own = {"account": self._stack.account, "region": self._stack.region}
        known = {key: value for key, value in own.items() if not Token.is_unresolved(value)}
        return self._environments.get(stage, Environment(**known))

    def _release(self) -> codepipeline.Pipeline:
        """Returns the pipeline with its sources: the files of a commit, and a clone, which can push."""
        files, clone = codepipeline.Artifact("Source"), codepipeline.Artifact("Clone")
        role = iam.Role(
            self._access,
            "Source",
            # CodePipeline's own role assumes it, which CDK adds.
            assumed_by=iam.AccountPrincipal(self._stack.account),
            description="Gets the repository's files.",
        )
        role.add_to_policy(use_of(self._connection_arn))
        source = self._source(files, role, clone=False)
        self._commit = pipelines.CodePipelineFileSet.from_artifact(files)
        self._commit_id = source.variables.commit_id
        self._clone = pipelines.CodePipelineFileSet.from_artifact(clone)
        return codepipeline.Pipeline(
            self,
            "Release",
            pipeline_type=codepipeline.PipelineType.V1,
            stages=[
                codepipeline.StageProps(stage_name="Source", actions=[source, self._source(clone, role, clone=True)])
            ],
            cross_account_keys=True,
            enable_key_rotation=True,
            restart_execution_on_update=True,
            reuse_cross_region_support_stacks=False,  # Each pipeline updates its own stacks.
        )

    def _source(
        self, output: codepipeline.Artifact, role: iam.Role, *, clone: bool
    ) -> actions.CodeStarConnectionsSourceAction:
        owner, _, repository = self._repository.partition("/")
        return actions.CodeStarConnectionsSourceAction(
            action_name="Clone" if clone else "Files",
            owner=owner,
            repo=repository,
            branch=self._branch,
            connection_arn=self._connection_arn,
            output=output,
            code_build_clone_output=clone,
            trigger_on_push=not clone,
            role=role,
        )

    def _bucket(self) -> s3.Bucket:
        bucket = private_bucket(self, "Releases", versioned=True, removal_policy=RemovalPolicy.RETAIN)
        acknowledge(bucket, "AwsSolutions-S1", "Only this pipeline reads and writes it. CloudTrail has its calls.")
        return bucket

    def _synth(self) -> pipelines.CodeBuildStep:
        model, checked = self._model, self._steps.check()
        accounts = sorted({str(each.account) for each in self._environments.values()} - {"None", self._stack.account})
        self._images = ReleaseImages(
            self, "Images", workload=self._workload, source=self._commit, after=checked, readers=accounts
        )
        self._build = self._steps.build(checked, self._access.build())
        builds = {each.folder: self._build.add_output_directory(each.folder) for each in (model, *model.beside)}
        self._built = builds[model.folder]
        recorded = None
        if model.chip is not None:  # The machine that built the model has none.
            recorded = self._steps.record({model.folder: self._built, **self._images.built}, self._access.record())
        gate = self._steps.parity_gate(self._built, recorded)
        publish = publishing([self._stack.account, *accounts])
        return self._steps.synth(self._images.built | builds, gate, publish)

    def _keep_build(self) -> None:
        """Gives the build a cache of its own. CDK's `Cache.bucket` would let it write the whole bucket."""
        project = self._build.project.node.default_child
        assert isinstance(project, codebuild.CfnProject)
        location = f"{self._releases.bucket_name}/{build_cache(self._workload.name)}"
        project.cache = codebuild.CfnProject.ProjectCacheProperty(type="S3", location=location)

    def _beta(self, pipeline: pipelines.CodePipeline) -> Measurement | None:
        """Adds the stage, if the workload is built; returns the measurement of its server, if it has one."""
        if not self._is_built:
            return None
        stage = self._stage("Beta", BETA)
        stack = stage.node.try_find_child(self._workload.stack_name)
        measurement = None
        before: list[pipelines.Step] = []
        after: list[pipelines.Step] = []
        if isinstance(stack, SERVING):
            access = self._access_to("beta")
            if not self._is_out_of_reach(stack):
                measurement = self._measurement(stack, access)
                after += measurement.steps
            role = access.take_down(stack.stack_name)
            # A release that stopped left its servers.
            before.append(self._steps.take_down("Clear", stack.stack_name, role))
            last = after[-1] if after else None
            after.append(self._steps.take_down("TakeDown", stack.stack_name, role, last))
        self._add_stage(pipeline, stage, before, after)
        return measurement

    def _is_out_of_reach(self, stack: Stack) -> bool:
        """Returns True for a service in another account or region, whose VPC no build of the pipeline can enter."""
        if not isinstance(stack, EcsServiceStack) or "beta" not in self._environments:
            return False
        Annotations.of(self._stack).add_warning_v2(
            "release:unmeasured",
            f"{self._workload.name} is not measured in beta: an ECS service is measured only in the pipeline's "
            "account and region. Leave beta-environment out of cdk.json to measure it.",
        )
        return True

    def _measurement(self, stack: SageMakerEndpointStack | EcsServiceStack, access: ReleaseAccess) -> Measurement:
        if isinstance(stack, SageMakerEndpointStack):
            measured = self._endpoint(stack, access)
        else:
            measured = [self._service(stack)]
        run, compare = measured[-1], self._access.compare()
        gate = self._steps.performance_gate(run, compare)
        registered = []
        if isinstance(stack, SageMakerEndpointStack):  # The model of a service has no package.
            role = access.register(self._workload.package_group)
            registered = [self._steps.register(_output(stack, "ModelName"), gate, role)]
        connection = use_of(self._connection_arn)
        last = [gate, *registered][-1]
        proposal = self._steps.propose(self._clone, self._commit_id, last, run, connection)
        return Measurement(steps=(*measured, gate, *registered, proposal), run=run, role=compare)

    def _start_on_approval(self, release: codepipeline.Pipeline) -> None:
        group = self._workload.package_group
        events.Rule(
            self,
            "Approval",
            description=f"Starts a release when a model package of {group} is approved.",
            event_pattern=events.EventPattern(
                source=["aws.sagemaker"],
                detail_type=["SageMaker Model Package State Change"],
                detail={"ModelPackageGroupName": [group], "ModelApprovalStatus": ["Approved"]},
            ),
            targets=[targets.CodePipeline(release)],
        )

    def _endpoint(self, stack: SageMakerEndpointStack, access: ReleaseAccess) -> list[pipelines.CodeBuildStep]:
        """Returns the steps that invoke and measure an endpoint."""
        model, output = self._model, partial(_output, stack)
        ask = access.ask(stack.stack_name, loaded=model.loaded, proven=model.proven)
        smoke_test = self._steps.smoke_test(output("EndpointName"), ask)
        return [smoke_test, self._steps.measure(self._built, smoke_test, output, ask)]

    def _service(self, stack: EcsServiceStack) -> pipelines.CodeBuildStep:
        """Returns the step that invokes and measures a service inside its VPC."""
        workload, project = self._workload, project_name(stack.stack_name)
        return self._steps.measure_in_vpc(
            self._built,
            _output(stack, "ServiceUrl"),
            project=project,
            instance_type=workload.instance_types[0],
            place=f"s3://{self._releases.bucket_name}/{measurements(workload.name)}",
            role=self._access.measure_in_vpc(project),
        )

    def _production(self, pipeline: pipelines.CodePipeline, measurement: Measurement | None) -> None:
        name, reason = self._workload.name, self._waiting
        if reason is not None:
            Annotations.of(self._stack).add_info_v2("release:waiting", f"{name} is not in production yet. {reason}")
            return
        stage = self._stage("Production", PRODUCTION)
        stack = stage.node.try_find_child(self._workload.stack_name)
        before, kept = [], []
        if isinstance(stack, SageMakerEndpointStack):
            role = self._access_to("production").pause_scaling(stack.stack_name)
            before = [self._steps.pause_scaling(stack.stack_name, role)]
        if measurement is not None:
            kept = [self._steps.keep_baseline(measurement.run, measurement.role)]
        self._add_stage(pipeline, stage, before, kept)

    def _stage(self, name: str, options: Options) -> Stage:
        environment = self._environment(options.stage)
        stage = Stage(self._stack, name, env=environment)
        self._add_stacks(stage, options, environment)
        return stage

    def _access_to(self, stage: StageName) -> ReleaseAccess:
        """Returns the roles of the steps that work in a stage. Another account or region has a stack of them."""
        if stage not in self._environments:
            return self._access
        name = self._workload.name
        environment = self._environment(stage)
        stack = Stack(
            Stage(self._stack, f"{stage.title()}Access", env=environment),
            self._stack.stack_name.replace("Stack", "AccessStack"),
            description=f"Roles that the release of {name} assumes in {stage}.",
        )
        return ReleaseAccess(
            stack, "Access", workload=name, releases=self._releases, pipeline=Construct(self._access, stage.title())
        )

    def _add_stage(
        self,
        pipeline: pipelines.CodePipeline,
        stage: Stage,
        before: Sequence[pipelines.Step],
        after: Sequence[pipelines.Step],
    ) -> None:
        """Adds a stage, after that of the roles by which steps work in another account or region."""
        if isinstance(access := self._stack.node.try_find_child(f"{stage.node.id}Access"), Stage):
            pipeline.add_stage(access)
        pipeline.add_stage(stage, pre=before, post=after)


def _model(workload: Workload) -> steps.Model:
    hosted, *beside = (
        steps.Build(workload=workload.name, target=name, remote=_runtime(workload, name) in REMOTE)
        for name in workload.deployed
    )
    # An EC2 type is SageMaker's, too, by another name.
    chip = f"ml.{workload.instance_types[0].removeprefix('ml.')}"
    return steps.Model(
        workload=hosted.workload,
        target=hosted.target,
        remote=hosted.remote,
        chip=chip if _runtime(workload, hosted.target) in NEURON_FAMILIES else None,
        image_uri=workload.hosting.image_uri,
        loaded=bool(workload.failing_hosts()),
        proven=workload.recommender.prove,
        beside=tuple(beside),
        unused_facts=tuple(key for key in MEASUREMENT_ONLY if getattr(workload.recommender, key)),
    )


def _runtime(workload: Workload, target: str) -> str:
    return workload.targets[workload.variant(target).target].runtime


def _output(stack: Stack, name: str) -> CfnOutput:
    output = stack.node.find_child(name)
    assert isinstance(output, CfnOutput)
    return output


def _acknowledge_artifacts(pipeline: pipelines.CodePipeline) -> None:
    replicas = (support.replication_bucket for support in pipeline.pipeline.cross_region_support.values())
    for bucket in (pipeline.pipeline.artifact_bucket, *replicas):
        acknowledge(bucket, "AwsSolutions-S1", "Artifacts between steps. Only this pipeline reads and writes them.")
        acknowledge_to_checkov(bucket, "CKV_AWS_21", "Each execution gives its artifacts new names.")
    assets = pipeline.node.try_find_child("Assets")  # Nothing is published before something is built.
    publisher = assets.node.try_find_child("FileRole") if assets else None
    if isinstance(publisher, iam.Role):
        acknowledge_policy_to_checkov(publisher, REASONS[r"Resource::\*"])
