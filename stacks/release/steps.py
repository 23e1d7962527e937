"""The steps of a release. Each runs a script of scripts/release/ in a CodeBuild project of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import CfnOutput, Duration, pipelines
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_iam as iam

SCRIPTS = "scripts/release"
INSTALL = "bash scripts/install_locked.sh python"
"""Installs what locks pin, each file compared with its hash. The project itself runs from the source."""
RUNTIMES = {"python": "3.11", "nodejs": "22"}
MOST_INPUTS = 5
"""CodePipeline's limit of an action's input artifacts, the source among them."""
LONGEST_JOB = Duration.hours(6)
"""The service ends an advanced job after five hours at most."""
CDK_ASSETS = "4.7.3"
"""The version of cdk-assets that publishes archives: npm's latest, which reads assemblies up to schema 54."""
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
    step = _step(
        f"Build-{model.workload}",
        source,
        [
            f"{INSTALL} requirements/build.txt torch",
            *(" ".join(["bash", f"{SCRIPTS}/build_model.sh", *each]) for each in arguments),
        ],
        large=not all(each.remote for each in builds),
        role=role,
        caching=[f"build/{model.workload}/**/*"],
        timeout=LONGEST_JOB,
    )
    step.add_step_dependency(after)
    return step


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
        f"Record-{model.workload}",
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
        f"ParityGate-{model.workload}",
        source,
        [f"{INSTALL} requirements/build.txt torch", " ".join([*gate, "recorded/outputs.json"] if recorded else gate)],
        inputs={model.folder: built} | ({"recorded": recorded} if recorded else {}),
    )


def collect(
    number: int, source: pipelines.IFileSetProducer, built: Mapping[str, pipelines.IFileSetProducer]
) -> pipelines.CodeBuildStep:
    """Makes one output of several builds, by their folders: an action takes `MOST_INPUTS` at most."""
    return _step(
        f"Collect-{number}", source, ["cp -rL build collected"], inputs=built, primary_output_directory="collected"
    )


def synth(
    source: pipelines.IFileSetProducer, built: Mapping[str, pipelines.IFileSetProducer], gates: Sequence[pipelines.Step]
) -> pipelines.CodeBuildStep:
    """Writes all templates, with the pipeline's own. A template names its model archive by hash."""
    collected = [
        collect(number, source, dict(several))
        for number, several in enumerate(_groups(list(built.items()), MOST_INPUTS - 1), start=1)
    ]
    step = _step(
        "Synth",
        source,
        [
            "npm ci --no-audit --no-fund",
            f"{INSTALL} requirements/cdk.txt",
            "mkdir -p build && cp -rL collected/*/. build/",
            # The stages have their own options; the stacks beside them are not deployed here.
            "npx cdk synth --quiet -c recommendation=ignore",
            RELABEL,
        ],
        inputs={f"collected/{number}": files for number, files in enumerate(collected, start=1)},
        primary_output_directory="cdk.out",
    )
    for gate in gates:
        step.add_step_dependency(gate)
    return step


def smoke_test(
    workload: str, source: pipelines.IFileSetProducer, endpoint: CfnOutput, role: iam.IRole
) -> pipelines.CodeBuildStep:
    return _step(
        f"SmokeTest-{workload}",
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
        command = f'bash {SCRIPTS}/measure_endpoint.sh {model.workload} "$ENDPOINT"'
        outputs = {"ENDPOINT": deployed("EndpointName")}
    else:
        command = f'bash {SCRIPTS}/measure.sh {model.workload} "$MODEL_NAME" "$JOB_ROLE"'
        outputs = {"MODEL_NAME": deployed("ModelName"), "JOB_ROLE": deployed("RecommenderRoleArn")}
    prove = []
    if model.proven:
        prove = [f'bash {SCRIPTS}/prove.sh {model.workload} "$ENDPOINT"']
        outputs |= {"ENDPOINT": deployed("EndpointName")}
    step = _step(
        f"Measure-{model.workload}",
        source,
        [f"{INSTALL} requirements/project.txt", command, *prove],
        inputs={model.folder: built},
        outputs=outputs,
        role=role,
        timeout=LONGEST_JOB,
        primary_output_directory="runs/candidate",
    )
    step.add_step_dependency(after)
    return step


def performance_gate(
    workload: str, source: pipelines.IFileSetProducer, run: pipelines.Step, baselines: str, role: iam.IRole
) -> pipelines.CodeBuildStep:
    return _step(
        f"PerformanceGate-{workload}",
        source,
        [f"{INSTALL} requirements/project.txt", f"bash {SCRIPTS}/performance_gate.sh {workload} {baselines}"],
        inputs={"runs/candidate": run},
        role=role,
    )


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
    step = _step(
        f"Propose-{workload}",
        clone,
        ['git checkout --quiet --detach "$COMMIT"', f"bash {SCRIPTS}/propose.sh {workload}"],
        inputs={"runs/candidate": run},
        env={"COMMIT": commit},
        pushes_by=connection,
        primary_output_directory="proposal",
    )
    step.add_step_dependency(after)
    return step


def keep_baseline(
    workload: str, source: pipelines.IFileSetProducer, run: pipelines.Step, baselines: str, role: iam.IRole
) -> pipelines.CodeBuildStep:
    return _step(
        f"KeepBaseline-{workload}",
        source,
        [f"bash {SCRIPTS}/keep_baseline.sh {workload} {baselines}"],
        inputs={"runs/candidate": run},
        role=role,
    )


def take_down(
    name: str,
    source: pipelines.IFileSetProducer,
    stacks: Sequence[str],
    role: iam.IRole,
    after: pipelines.Step | None = None,
) -> pipelines.CodeBuildStep:
    """Deletes stacks of beta, whose servers cost by the hour."""
    step = _step(name, source, [" ".join(["bash", f"{SCRIPTS}/take_down.sh", *stacks])], role=role)
    if after is not None:
        step.add_step_dependency(after)
    return step


def _groups(
    builds: list[tuple[str, pipelines.IFileSetProducer]], size: int
) -> Iterator[list[tuple[str, pipelines.IFileSetProducer]]]:
    for start in range(0, len(builds), size):
        yield builds[start : start + size]


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
    pushes_by: iam.PolicyStatement | None = None,
    large: bool = False,
    timeout: Duration | None = None,
    primary_output_directory: str | None = None,
) -> pipelines.CodeBuildStep:
    spec: dict[str, object] = {"phases": {"install": {"runtime-versions": RUNTIMES}}}
    if caching:
        spec["cache"] = {"paths": list(caching)}
    if pushes_by is not None:
        spec["env"] = {"git-credential-helper": "yes"}
    return pipelines.CodeBuildStep(
        name,
        input=source,
        commands=commands,
        additional_inputs=inputs,
        env_from_cfn_outputs=outputs,
        role=role,
        role_policy_statements=[pushes_by] if pushes_by is not None else None,
        env=env,
        partial_build_spec=codebuild.BuildSpec.from_object(spec),
        build_environment=codebuild.BuildEnvironment(
            build_image=codebuild.LinuxBuildImage.STANDARD_7_0,
            compute_type=codebuild.ComputeType.LARGE if large else codebuild.ComputeType.MEDIUM,
        ),
        timeout=timeout,
        primary_output_directory=primary_output_directory,
    )
