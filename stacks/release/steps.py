"""The steps of a release, each of which runs a script of scripts/release/ in a CodeBuild project of its own.

A script says itself what to do when it fails, and another CI can run the same scripts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import CfnOutput, Duration, pipelines
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_iam as iam

SCRIPTS = "scripts/release"
INSTALL = "bash scripts/install_locked.sh python"
"""Installs what locks pin, each file compared with its hash. The project itself runs from the source."""
RUNTIMES = {"python": "3.11", "nodejs": "22"}
LONGEST_JOB = Duration.hours(6)
"""The service ends an advanced job after five hours at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The build of a workload that a release contains."""

    workload: str
    target: str
    remote: bool
    """True where a SageMaker processing job builds it, on the target's hardware."""

    @property
    def folder(self) -> str:
        return f"build/{self.workload}/{self.target}"


def check(source: pipelines.IFileSetProducer) -> pipelines.CodeBuildStep:
    """Runs lint, types and tests; among the tests is the synthesis of every stack."""
    return _step("Check", source, ["make test"], large=True)


def build(
    model: Model,
    source: pipelines.IFileSetProducer,
    after: pipelines.Step,
    role: iam.IRole,
    bucket_name: str,
) -> pipelines.CodeBuildStep:
    """Compiles the model where its hardware is. `role` is both the step's and the processing job's."""
    where = ["--on", "sagemaker", "--role-arn", role.role_arn, "--bucket", bucket_name] if model.remote else []
    step = _step(
        f"Build-{model.workload}",
        source,
        [
            f"{INSTALL} requirements/build.txt torch",
            " ".join(["bash", f"{SCRIPTS}/build_model.sh", model.workload, model.target, *where]),
        ],
        large=not model.remote,
        role=role,
        caching=[f"build/{model.workload}/**/*"],
        timeout=LONGEST_JOB,
    )
    step.add_step_dependency(after)
    return step


def parity_gate(model: Model, source: pipelines.IFileSetProducer, built: pipelines.FileSet) -> pipelines.CodeBuildStep:
    return _step(
        f"ParityGate-{model.workload}",
        source,
        [f"{INSTALL} requirements/build.txt torch", f"bash {SCRIPTS}/parity_gate.sh {model.workload} {model.target}"],
        inputs={model.folder: built},
    )


def synth(
    source: pipelines.IFileSetProducer,
    built: Mapping[str, pipelines.IFileSetProducer],
    gates: Sequence[pipelines.Step],
) -> pipelines.CodeBuildStep:
    step = _step(
        "Synth",
        source,
        ["npm ci --no-audit --no-fund", f"{INSTALL} requirements/cdk.txt", "npx cdk synth --quiet"],
        inputs=built,
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
    workload: str,
    source: pipelines.IFileSetProducer,
    after: pipelines.Step,
    model: CfnOutput,
    job_role: CfnOutput,
    role: iam.IRole,
) -> pipelines.CodeBuildStep:
    """Runs an advanced job. The step's output is the run's folder."""
    step = _step(
        f"Measure-{workload}",
        source,
        [f"{INSTALL} requirements/project.txt", f'bash {SCRIPTS}/measure.sh {workload} "$MODEL_NAME" "$JOB_ROLE"'],
        outputs={"MODEL_NAME": model, "JOB_ROLE": job_role},
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
    workload: str, clone: pipelines.IFileSetProducer, commit: str, after: pipelines.Step, run: pipelines.Step
) -> pipelines.CodeBuildStep:
    """Proposes the recommendation, as a branch for a pull request and as a patch.

    `clone` may be of a later commit than the one that was measured, `commit`.
    """
    step = _step(
        f"Propose-{workload}",
        clone,
        ['git checkout --quiet --detach "$COMMIT"', f"bash {SCRIPTS}/propose.sh {workload}"],
        inputs={"runs/candidate": run},
        env={"COMMIT": commit},
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
    large: bool = False,
    timeout: Duration | None = None,
    primary_output_directory: str | None = None,
) -> pipelines.CodeBuildStep:
    spec: dict[str, object] = {"phases": {"install": {"runtime-versions": RUNTIMES}}}
    if caching:
        spec["cache"] = {"paths": list(caching)}
    return pipelines.CodeBuildStep(
        name,
        input=source,
        commands=commands,
        additional_inputs=inputs,
        env_from_cfn_outputs=outputs,
        role=role,
        env=env,
        partial_build_spec=codebuild.BuildSpec.from_object(spec),
        build_environment=codebuild.BuildEnvironment(
            build_image=codebuild.LinuxBuildImage.STANDARD_7_0,
            compute_type=codebuild.ComputeType.LARGE if large else codebuild.ComputeType.MEDIUM,
        ),
        timeout=timeout,
        primary_output_directory=primary_output_directory,
    )
