"""The steps of a workload's release. Each runs a script of scripts/release/ in a CodeBuild project of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import CfnOutput, Duration, pipelines
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_iam as iam

from stacks.release.access import AssumingRole

SCRIPTS = "scripts/release"
INSTALL = "bash scripts/install_locked.sh python"
"""Installs what locks pin, each file compared with its hash. The project itself runs from the source."""
RUNTIMES = {"python": "3.11", "nodejs": "22"}
LONGEST_JOB = Duration.hours(6)
"""The service ends an advanced job after five hours at most."""
LONGEST_CHANGE = Duration.hours(2)
CDK_ASSETS = "4.7.3"
"""The version of cdk-assets that publishes archives. It reads assemblies up to schema 54."""
RELABEL = r"""find cdk.out -name '*.assets.json' -exec sed -i 's/"version": "55\.0\.0"/"version": "54.0.0"/' {} +"""
"""Lets cdk-assets read what aws-cdk-lib writes: the schemas of assets are the same in versions 54 and 55."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """A machine with an Inferentia chip. SageMaker has them for endpoints; processing jobs do not run on them."""

    instance_type: str
    image_uri: str | None
    """The image that hosting.image_uri names; None stands for the one that the release builds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """A build that a release makes of a workload: of one target or variant."""

    workload: str
    target: str
    remote: bool
    """True where a SageMaker processing job builds it."""
    unused_facts: tuple[str, ...] = ()
    """Keys of [recommender] that a release's build leaves out: its role may use neither the key nor the network."""

    @property
    def folder(self) -> str:
        return f"build/{self.workload}/{self.target}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Model(Build):
    """The build that a workload hosts."""

    chip: Chip | None
    """Runs the model for the parity gate; None where the build compared it on the target's hardware."""
    loaded: bool = False
    """True where beta's endpoint itself is loaded, because a job's hosts could not start the model."""
    proven: bool = False
    """True if beta's endpoint must prove the recommendation before the release continues."""
    beside: tuple[Build, ...] = ()
    """A shadow's build. No gate stops it: it gets copies of requests, and its answers are discarded."""


def check(source: pipelines.IFileSetProducer) -> pipelines.CodeBuildStep:
    """Runs lint, types and tests; among the tests is the synthesis of every stack."""
    return _step("Check", source, ["make test"], large=True)


def build(
    model: Model, source: pipelines.IFileSetProducer, after: pipelines.Step, role: iam.IRole, bucket_name: str
) -> pipelines.CodeBuildStep:
    """Compiles the model, and a shadow's, where its hardware is. `role` is both the step's and a processing job's."""
    facts = [f"recommender.role_arn={role.role_arn}", f"recommender.bucket={bucket_name}"]
    facts += [f"recommender.{key}=" for key in model.unused_facts]
    on_aws = ["--on", "sagemaker", *(part for fact in facts for part in ("--set", fact))]
    builds = (model, *model.beside)
    arguments = [(each.workload, each.target, *(on_aws if each.remote else [])) for each in builds]
    return _step(
        "BuildModel",
        source,
        [
            f"{INSTALL} requirements/build.txt torch",
            *(" ".join(["bash", f"{SCRIPTS}/build_model.sh", *each]) for each in arguments),
        ],
        large=not all(each.remote for each in builds),
        role=role,
        caching=[f"build/{model.workload}/**/*"],
        timeout=LONGEST_JOB,
        after=after,
    )


def record(
    model: Model,
    source: pipelines.IFileSetProducer,
    inputs: Mapping[str, pipelines.IFileSetProducer],
    role: iam.IRole,
    bucket_name: str,
) -> pipelines.CodeBuildStep:
    """Records the model's outputs for evaluation.jsonl on its chip, on a temporary endpoint."""
    assert model.chip is not None
    arguments = [model.workload, model.target, role.role_arn, bucket_name, model.chip.instance_type]
    named = [model.chip.image_uri] if model.chip.image_uri else []
    return _step(
        "Record",
        source,
        [
            f"{INSTALL} requirements/build.txt torch",
            " ".join(["bash", f"{SCRIPTS}/record_on_chip.sh", *arguments, *named]),
        ],
        inputs=inputs,
        role=role,
        primary_output_directory="recorded",
    )


def parity_gate(
    model: Model, source: pipelines.IFileSetProducer, built: pipelines.IFileSetProducer, recorded: pipelines.Step | None
) -> pipelines.CodeBuildStep:
    """Judges what the build compared where it was made, or what `recorded` has of the model on its chip."""
    gate = ["bash", f"{SCRIPTS}/parity_gate.sh", model.workload, model.target]
    return _step(
        "ParityGate",
        source,
        [f"{INSTALL} requirements/build.txt torch", " ".join([*gate, "recorded/outputs.json"] if recorded else gate)],
        inputs={model.folder: built} | ({"recorded": recorded} if recorded else {}),
    )


def synth(
    workload: str,
    source: pipelines.IFileSetProducer,
    built: Mapping[str, pipelines.IFileSetProducer],
    gate: pipelines.Step,
    publish: iam.PolicyStatement,
) -> pipelines.CodeBuildStep:
    """Writes the workload's templates, with its pipeline's own. `role` may publish files as CDK's bootstrap does.

    An action of CloudFormation takes an artifact of 256 MB at most, so model archives are published here and leave the
    assembly. Source: https://docs.aws.amazon.com/codepipeline/latest/userguide/limits.html
    """
    return _step(
        "Synth",
        source,
        [
            "npm ci --no-audit --no-fund",
            f"{INSTALL} requirements/cdk.txt",
            # The stages have their own options; the stacks beside them are not deployed here.
            f"npx cdk synth --quiet -c recommendation=ignore -c release={workload}",
            RELABEL,
            f"npm install -g cdk-assets@{CDK_ASSETS}",
            "python -m scripts.release.publish_archives cdk.out",
        ],
        inputs=built,
        statements=[publish],
        primary_output_directory="cdk.out",
        after=gate,
    )


def smoke_test(
    workload: str, source: pipelines.IFileSetProducer, endpoint: CfnOutput, role: iam.IRole
) -> pipelines.CodeBuildStep:
    return _step(
        "SmokeTest",
        source,
        [f"{INSTALL} requirements/project.txt", f'bash {SCRIPTS}/smoke_test.sh {workload} "$ENDPOINT"'],
        outputs={"ENDPOINT": endpoint},
        role=role,
    )


def measure(
    model: Model,
    source: pipelines.IFileSetProducer,
    built: pipelines.IFileSetProducer,
    after: pipelines.Step,
    deployed: Callable[[str], CfnOutput],
    role: iam.IRole,
) -> pipelines.CodeBuildStep:
    """Measures the model of beta with a job or a load test, and proves the recommendation if `proven`.

    `deployed` returns the stack's outputs by name. The step's output is the run's folder.
    """
    if model.loaded:
        command = f'bash {SCRIPTS}/measure_endpoint.sh {model.workload} "$ENDPOINT" {model.target}'
        outputs = {"ENDPOINT": deployed("EndpointName")}
    else:
        command = f'bash {SCRIPTS}/measure.sh {model.workload} "$MODEL_NAME" "$JOB_ROLE"'
        outputs = {"MODEL_NAME": deployed("ModelName"), "JOB_ROLE": deployed("RecommenderRoleArn")}
    prove = []
    if model.proven:
        prove = [f'bash {SCRIPTS}/prove.sh {model.workload} "$ENDPOINT"']
        outputs |= {"ENDPOINT": deployed("EndpointName")}
    return _step(
        "Measure",
        source,
        [f"{INSTALL} requirements/project.txt", command, *prove],
        inputs={model.folder: built},
        outputs=outputs,
        role=role,
        timeout=LONGEST_JOB,
        primary_output_directory="runs/candidate",
        after=after,
    )


def measure_in_vpc(
    model: Model,
    source: pipelines.IFileSetProducer,
    built: pipelines.IFileSetProducer,
    url: CfnOutput,
    *,
    project: str,
    instance_type: str,
    place: str,
    role: iam.IRole,
) -> pipelines.CodeBuildStep:
    """Invokes and measures the ECS service at `url`, by a build of `project` in the service's VPC.

    The build exchanges files by the S3 folder `place`. The step's output is the run's folder.
    """
    arguments = f'{model.workload} {project} "$URL" {instance_type} {place} {role.role_arn}'
    return _step(
        "Measure",
        source,
        [f"bash {SCRIPTS}/measure_in_vpc.sh {arguments}"],
        inputs={model.folder: built},
        outputs={"URL": url},
        role=role,
        timeout=LONGEST_JOB,
        primary_output_directory="runs/candidate",
    )


def performance_gate(
    workload: str, source: pipelines.IFileSetProducer, run: pipelines.Step, baselines: str, role: iam.IRole
) -> pipelines.CodeBuildStep:
    return _step(
        "PerformanceGate",
        source,
        [f"{INSTALL} requirements/project.txt", f"bash {SCRIPTS}/performance_gate.sh {workload} {baselines}"],
        inputs={"runs/candidate": run},
        role=role,
    )


def register(
    workload: str, source: pipelines.IFileSetProducer, model: CfnOutput, after: pipelines.Step, role: iam.IRole
) -> pipelines.CodeBuildStep:
    """Registers the measured model as a model package that awaits approval."""
    command = f'python -m inference_recommender register {workload} --set "recommender.model=$MODEL_NAME"'
    commands = [f"{INSTALL} requirements/project.txt", command]
    return _step("Register", source, commands, outputs={"MODEL_NAME": model}, role=role, after=after)


def propose(
    workload: str,
    clone: pipelines.IFileSetProducer,
    commit: str,
    after: pipelines.Step,
    run: pipelines.Step,
    connection: iam.PolicyStatement,
) -> pipelines.CodeBuildStep:
    """Proposes the recommendation as a branch for a pull request and as a patch.

    `commit` is the measured commit; `clone` may be later. Git gets its credentials by `connection`.
    """
    return _step(
        "Propose",
        clone,
        ['git checkout --quiet --detach "$COMMIT"', f"bash {SCRIPTS}/propose.sh {workload}"],
        inputs={"runs/candidate": run},
        env={"COMMIT": commit},
        statements=[connection],
        pushes=True,
        primary_output_directory="proposal",
        after=after,
    )


def pause_scaling(
    workload: str, source: pipelines.IFileSetProducer, stack: str, role: iam.IRole
) -> pipelines.CodeBuildStep:
    """Prepares a deployment that changes the type of an autoscaled fleet, which SageMaker refuses."""
    commands = [f"{INSTALL} requirements/project.txt", f"python -m scripts.release.pause_scaling {workload} {stack}"]
    return _step("PauseScaling", source, commands, role=role, timeout=LONGEST_CHANGE)


def keep_baseline(
    workload: str, source: pipelines.IFileSetProducer, run: pipelines.Step, baselines: str, role: iam.IRole
) -> pipelines.CodeBuildStep:
    return _step(
        "KeepBaseline",
        source,
        [f"bash {SCRIPTS}/keep_baseline.sh {workload} {baselines}"],
        inputs={"runs/candidate": run},
        role=role,
    )


def take_down(
    name: str,
    source: pipelines.IFileSetProducer,
    stack: str,
    role: iam.IRole,
    after: pipelines.Step | None = None,
) -> pipelines.CodeBuildStep:
    """Deletes a stack of beta, whose servers cost by the hour."""
    command = f"bash {SCRIPTS}/take_down.sh {stack}"
    return _step(name, source, [command], role=role, timeout=LONGEST_CHANGE, after=after)


def _step(
    name: str,
    source: pipelines.IFileSetProducer,
    commands: Sequence[str],
    *,
    inputs: Mapping[str, pipelines.IFileSetProducer] | None = None,
    outputs: Mapping[str, CfnOutput] | None = None,
    role: iam.IRole | None = None,
    env: Mapping[str, str] | None = None,
    caching: Sequence[str] = (),
    statements: Sequence[iam.PolicyStatement] = (),
    pushes: bool = False,
    large: bool = False,
    timeout: Duration | None = None,
    primary_output_directory: str | None = None,
    after: pipelines.Step | None = None,
) -> pipelines.CodeBuildStep:
    spec: dict[str, object] = {"phases": {"install": {"runtime-versions": RUNTIMES}}}
    if caching:
        spec["cache"] = {"paths": list(caching)}
    if pushes:
        spec["env"] = {"git-credential-helper": "yes"}
    step = pipelines.CodeBuildStep(
        name,
        input=source,
        commands=[*(role.commands if isinstance(role, AssumingRole) else ()), *commands],
        additional_inputs=inputs,
        env_from_cfn_outputs=outputs,
        role=role,
        role_policy_statements=list(statements),
        env=env,
        partial_build_spec=codebuild.BuildSpec.from_object(spec),
        build_environment=codebuild.BuildEnvironment(
            build_image=codebuild.LinuxBuildImage.STANDARD_7_0,
            compute_type=codebuild.ComputeType.LARGE if large else codebuild.ComputeType.MEDIUM,
        ),
        timeout=timeout,
        primary_output_directory=primary_output_directory,
    )
    if after is not None:
        step.add_step_dependency(after)
    return step
