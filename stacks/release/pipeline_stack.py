"""The pipeline from a commit to production.

Production takes only workloads whose recommendation was measured on the artifact that is built. A release of a new
artifact ends with the proposal of its recommendation; the release of the merge reaches production.
"""

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from aws_cdk import Annotations, CfnOutput, Environment, RemovalPolicy, Stack, Stage, pipelines
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_codepipeline as codepipeline
from aws_cdk import aws_codepipeline_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.context import PRODUCTION, Options, ReleaseSource
from stacks.ecs.service_stack import EcsServiceStack
from stacks.endpoint.endpoint_stack import SageMakerEndpointStack
from stacks.grants import acknowledge, acknowledge_policy_to_checkov, acknowledge_to_checkov, acknowledge_wildcards
from stacks.release import steps
from stacks.release.access import ReleaseAccess, build_cache, use_of
from stacks.release.images import ReleaseImages
from workloads import ROOT, ProjectError, Workload
from workloads.instances import NEURON_FAMILIES

AddStacks = Callable[[Construct, Options, Container[str]], None]
"""Adds the stack of every workload to a scope, except for the names given."""

SERVING = (SageMakerEndpointStack, EcsServiceStack)
"""Stacks whose instances cost by the hour. A batch's cost while it runs."""

REMOTE = (*NEURON_FAMILIES, "tensorrt")
"""Runtimes whose models a SageMaker processing job builds."""
MEASUREMENT_ONLY = ("kms_key_arn", "subnets", "security_groups")
"""Facts of [recommender] that the roles of builds may not use."""

BETA = Options(stage="beta", recommendation="ignore")
"""Beta has one instance of each workload, which is invoked and measured and serves no users."""

REASONS = {
    r"Resource::.*:log-group:/aws/codebuild/.*": "A project writes into the log group that CodeBuild names after it.",
    r"Resource::.*:report-group/.*": "A project reports into the groups that CodeBuild names after it.",
    r"Resource::<[^<>]*\.Arn>/.*": "Files that steps hand on have names that each execution makes.",
    r"Action::s3:(GetObject|GetBucket|List|DeleteObject|Abort)\*": "What CDK's grants on a bucket are made of.",
    r"Action::kms:(ReEncrypt|GenerateDataKey)\*": "What CDK's grants on a key are made of.",
    r"Resource::arn:\*:iam::[^:]*:role/\*": "A condition keeps to the roles of CDK's bootstrap, by their tag.",
    r"Resource::\*": "cloudformation:DescribeStacks, s3:ListBucket, codebuild:StartBuild: what CDK Pipelines asks for.",
}
"""Answers to cdk-nag's findings on roles that CDK Pipelines makes or adds to, by pattern."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasePipelineProps:
    source: ReleaseSource
    workloads: Sequence[Workload]
    """The workloads that the release builds."""
    built: Container[str]
    """The names of those that are built where this is synthesised, and can be deployed."""
    waiting: Mapping[str, ProjectError]
    """The reasons why workloads are not in production yet, by workload name."""
    add_stacks: AddStacks
    environment: Environment | None = None


class ReleasePipelineStack(Stack):
    """Has the output PipelineName."""

    def __init__(self, scope: Construct, id: str, props: ReleasePipelineProps) -> None:
        super().__init__(scope, id, env=props.environment, description="Releases models and infrastructure.")
        self._props = props
        self._releases = self._bucket()
        self._access = ReleaseAccess(
            self, "Access", releases=self._releases, connection_arn=props.source.connection_arn
        )
        self._models = {workload.name: _model(workload) for workload in props.workloads}
        self._builds: dict[str, pipelines.CodeBuildStep] = {}
        self._built: dict[str, pipelines.IFileSetProducer] = {}
        self._comparing: dict[str, iam.Role] = {}
        release = self._release()
        pipeline = pipelines.CodePipeline(
            self,
            "Pipeline",
            synth=self._synth(),
            code_pipeline=release,
            cli_version=_cli_version(),
            cdk_assets_cli_version=steps.CDK_ASSETS,
        )
        runs = self._beta(pipeline)
        self._production(pipeline, runs)
        pipeline.build_pipeline()
        self._keep_builds()
        acknowledge_wildcards(release, REASONS)
        acknowledge_wildcards(pipeline, REASONS)
        acknowledge_wildcards(self._access, REASONS)
        acknowledge_wildcards(self._images, REASONS)
        _acknowledge_artifacts(pipeline)
        CfnOutput(self, "PipelineName", value=pipeline.pipeline.pipeline_name)

    def _release(self) -> codepipeline.Pipeline:
        """Returns the pipeline with its sources: the files of a commit, and a clone, which can push."""
        files, clone = codepipeline.Artifact("Source"), codepipeline.Artifact("Clone")
        source = self._source(files, clone=False)
        self._commit = pipelines.CodePipelineFileSet.from_artifact(files)
        self._commit_id = source.variables.commit_id
        self._clone = pipelines.CodePipelineFileSet.from_artifact(clone)
        return codepipeline.Pipeline(
            self,
            "Release",
            pipeline_type=codepipeline.PipelineType.V1,
            stages=[codepipeline.StageProps(stage_name="Source", actions=[source, self._source(clone, clone=True)])],
            cross_account_keys=True,
            enable_key_rotation=True,
            restart_execution_on_update=True,
        )

    def _source(self, output: codepipeline.Artifact, *, clone: bool) -> actions.CodeStarConnectionsSourceAction:
        source = self._props.source
        owner, _, repository = source.repository.partition("/")
        return actions.CodeStarConnectionsSourceAction(
            action_name="Clone" if clone else "Files",
            owner=owner,
            repo=repository,
            branch=source.branch,
            connection_arn=source.connection_arn,
            output=output,
            code_build_clone_output=clone,
            trigger_on_push=not clone,
            role=self._access.source,
        )

    def _bucket(self) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "Releases",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            versioned=True,
            removal_policy=RemovalPolicy.RETAIN,
        )
        acknowledge(bucket, "AwsSolutions-S1", "Only this pipeline reads and writes it. CloudTrail has its calls.")
        return bucket

    def _synth(self) -> pipelines.CodeBuildStep:
        checked = steps.check(self._commit)
        self._images = ReleaseImages(
            self, "Images", workloads=self._props.workloads, source=self._commit, after=checked
        )
        gates: list[pipelines.Step] = []
        built = dict(self._images.built)
        for model in self._models.values():
            role = self._access.build(model.workload)
            step = steps.build(model, self._commit, checked, role, self._releases.bucket_name)
            self._builds[model.workload] = step
            built |= {build.folder: step.add_output_directory(build.folder) for build in (model, *model.beside)}
            self._built[model.workload] = files = built[model.folder]
            gates.append(steps.parity_gate(model, self._commit, files, self._recorded(model, files)))
        return steps.synth(self._commit, built, gates)

    def _recorded(self, model: steps.Model, built: pipelines.IFileSetProducer) -> pipelines.Step | None:
        """Returns the step that runs a model on its chip, where the machine that built it has none."""
        if model.chip is None:
            return None
        role = self._access.record(model.workload)
        inputs = {model.folder: built, **self._images.built}
        return steps.record(model, self._commit, inputs, role, self._releases.bucket_name)

    def _keep_builds(self) -> None:
        """Gives each build a cache of its own. CDK's `Cache.bucket` would let every one write the whole bucket."""
        for workload, step in self._builds.items():
            project = step.project.node.default_child
            assert isinstance(project, codebuild.CfnProject)
            location = f"{self._releases.bucket_name}/{build_cache(workload)}"
            project.cache = codebuild.CfnProject.ProjectCacheProperty(type="S3", location=location)

    def _beta(self, pipeline: pipelines.CodePipeline) -> dict[str, pipelines.Step]:
        """Adds the stage, if anything is built; returns the measuring step of each endpoint, by its workload's name."""
        unbuilt = {workload.name for workload in self._props.workloads if workload.name not in self._props.built}
        if len(unbuilt) == len(self._props.workloads):
            return {}
        stage = self._stage("Beta", BETA, unbuilt)
        runs: dict[str, pipelines.Step] = {}
        last: dict[str, pipelines.Step] = {}
        after: list[pipelines.Step] = []
        for name, stack in _endpoints(stage, self._props.workloads):
            model, built, output = self._models[name], self._built[name], partial(_output, stack)
            ask = self._access.ask(name, stack.stack_name, loaded=model.loaded, proven=model.proven)
            smoke_test = steps.smoke_test(name, self._commit, output("EndpointName"), ask)
            runs[name] = steps.measure(model, self._commit, built, smoke_test, output, ask)
            gate = steps.performance_gate(name, self._commit, runs[name], self._baselines, self._compare(name))
            connection = use_of(self._props.source.connection_arn)
            proposal = steps.propose(name, self._clone, self._commit_id, gate, runs[name], connection)
            after += [smoke_test, runs[name], gate, proposal]
            last[name] = proposal
        cleared, taken_down = self._take_down(stage, last)
        pipeline.add_stage(stage, pre=cleared, post=[*after, *taken_down])
        return runs

    def _compare(self, workload: str) -> iam.Role:
        """Returns the one role of both steps that use a workload's baseline."""
        if workload not in self._comparing:
            self._comparing[workload] = self._access.compare(workload)
        return self._comparing[workload]

    def _take_down(
        self, stage: Stage, last: Mapping[str, pipelines.Step]
    ) -> tuple[list[pipelines.Step], list[pipelines.Step]]:
        """Returns the steps that delete beta's servers: what a release that stopped left, and each after its `last`."""
        stacks = {
            workload.name: stack.stack_name
            for workload in self._props.workloads
            if isinstance(stack := stage.node.try_find_child(workload.stack_name), SERVING)
        }
        if not stacks:
            return [], []
        role = self._access.take_down(list(stacks.values()))
        cleared = steps.take_down("Clear", self._commit, list(stacks.values()), role)
        after = [
            steps.take_down(f"TakeDown-{name}", self._commit, [stack], role, last.get(name))
            for name, stack in stacks.items()
        ]
        return [cleared], after

    def _production(self, pipeline: pipelines.CodePipeline, runs: dict[str, pipelines.Step]) -> None:
        for name, reason in self._props.waiting.items():
            Annotations.of(self).add_info_v2(f"release:waiting-{name}", f"{name} is not in production yet. {reason}")
        if self._props.waiting.keys() >= {workload.name for workload in self._props.workloads}:
            return
        stage = self._stage("Production", PRODUCTION, self._props.waiting.keys())
        baselines = [
            steps.keep_baseline(name, self._commit, runs[name], self._baselines, self._compare(name))
            for name, _ in _endpoints(stage, self._props.workloads)
            if name in runs
        ]
        pipeline.add_stage(stage, post=baselines)

    def _stage(self, name: str, options: Options, without: Container[str]) -> Stage:
        stage = Stage(self, name, env=self._props.environment)
        self._props.add_stacks(stage, options, without)
        return stage

    @property
    def _baselines(self) -> str:
        return f"s3://{self._releases.bucket_name}/baselines"


def _model(workload: Workload) -> steps.Model:
    hosted, *beside = (
        steps.Build(workload=workload.name, target=name, remote=_runtime(workload, name) in REMOTE)
        for name in workload.deployed
    )
    return steps.Model(
        workload=hosted.workload,
        target=hosted.target,
        remote=hosted.remote,
        chip=_chip(workload) if _runtime(workload, hosted.target) in NEURON_FAMILIES else None,
        loaded=bool(workload.failing_hosts()),
        proven=workload.recommender.prove,
        beside=tuple(beside),
        unused_facts=tuple(key for key in MEASUREMENT_ONLY if getattr(workload.recommender, key)),
    )


def _runtime(workload: Workload, target: str) -> str:
    return workload.targets[workload.variant(target).target].runtime


def _chip(workload: Workload) -> steps.Chip:
    """Returns the machine on which an endpoint runs the model. An EC2 type is SageMaker's, too, by another name."""
    instance_type = f"ml.{workload.instance_types[0].removeprefix('ml.')}"
    return steps.Chip(instance_type=instance_type, image_uri=workload.hosting.image_uri)


def _endpoints(stage: Stage, workloads: Sequence[Workload]) -> list[tuple[str, SageMakerEndpointStack]]:
    """Returns the stacks that Inference Recommender can measure, each with its workload's name."""
    stacks = ((workload.name, stage.node.try_find_child(workload.stack_name)) for workload in workloads)
    return [(name, stack) for name, stack in stacks if isinstance(stack, SageMakerEndpointStack)]


def _output(stack: SageMakerEndpointStack, name: str) -> CfnOutput:
    output = stack.node.find_child(name)
    assert isinstance(output, CfnOutput)
    return output


def _cli_version() -> str:
    """Returns the version of the CDK CLI that package.json names, with which the Synth step runs."""
    return str(json.loads((ROOT / "package.json").read_text("utf-8"))["devDependencies"]["aws-cdk"])


def _acknowledge_artifacts(pipeline: pipelines.CodePipeline) -> None:
    bucket = pipeline.pipeline.artifact_bucket
    acknowledge(bucket, "AwsSolutions-S1", "Artifacts between steps. Only this pipeline reads and writes them.")
    acknowledge_to_checkov(bucket, "CKV_AWS_21", "Each execution gives its artifacts new names.")
    assets = pipeline.node.try_find_child("Assets")  # Nothing is published before something is built.
    publisher = assets.node.try_find_child("FileRole") if assets else None
    if isinstance(publisher, iam.Role):
        acknowledge_policy_to_checkov(publisher, REASONS[r"Resource::\*"])
