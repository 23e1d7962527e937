"""The steps of a workload's release. Each runs a script of scripts/release/ in a CodeBuild project of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_iam as iam
from aws_cdk.pipelines import CodeBuildStep, Step
from aws_cdk.pipelines import IFileSetProducer as Files

from stacks.release.access import AssumingRole

SCRIPTS = "scripts/release"
INSTALL = "bash scripts/install_locked.sh python"
"""Installs what locks pin, each file compared with its hash. The project itself runs from the source."""
FOR_BUILDS = f"{INSTALL} requirements/build.txt torch"
FOR_PROGRAMS = f"{INSTALL} requirements/project.txt"
RUNTIMES = {"python": "3.11", "nodejs": "22"}
LONGEST_JOB = Duration.hours(6)
"""The service ends an advanced job after five hours at most."""
LONGEST_CHANGE = Duration.hours(2)
CDK_ASSETS = "4.7.3"
"""The version of cdk-assets that publishes archives. It reads assemblies up to schema 54."""
RELABEL = r"""find cdk.out -name '*.assets.json' -exec sed -i 's/"version": "55\.0\.0"/"version": "54.0.0"/' {} +"""
"""Lets cdk-assets read what aws-cdk-lib writes: the schemas of assets are the same in versions 54 and 55."""


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

    chip: str | None
    """An instance type with the Inferentia chip that runs the model for the parity gate; None where the build compared
    it on the target's hardware. SageMaker has them for endpoints, not for processing jobs."""
    image_uri: str | None
    """The image of hosting.image_uri; None stands for the one that the release builds."""
    loaded: bool = False
    """True where beta's endpoint itself is loaded, because a job's hosts could not start the model."""
    proven: bool = False
    """True if beta's endpoint must prove the recommendation before the release continues."""
    beside: tuple[Build, ...] = ()
    """A shadow's build. No gate stops it: it gets copies of requests, and its answers are discarded."""


class Steps:
    """The steps of one model's release. `source` has the files of the commit, `bucket` is the releases' bucket."""

    def __init__(self, model: Model, source: Files, bucket: str) -> None:
        self._model, self._workload, self._source, self._bucket = model, model.workload, source, bucket

    def check(self) -> CodeBuildStep:
        """Runs lint, types and tests; among the tests is the synthesis of every stack."""
        return self._step("Check", ["make test"], large=True)

    def build(self, after: Step, role: iam.IRole) -> CodeBuildStep:
        """Compiles the model, and a shadow's, where its hardware is. `role` is the step's and a processing job's."""
        model = self._model
        facts = [f"recommender.role_arn={role.role_arn}", f"recommender.bucket={self._bucket}"]
        facts += [f"recommender.{key}=" for key in model.unused_facts]
        on_aws = ["--on", "sagemaker", *(part for fact in facts for part in ("--set", fact))]
        builds = (model, *model.beside)
        arguments = [(each.workload, each.target, *(on_aws if each.remote else [])) for each in builds]
        return self._step(
            "BuildModel",
            [FOR_BUILDS, *(" ".join(["bash", f"{SCRIPTS}/build_model.sh", *each]) for each in arguments)],
            large=not all(each.remote for each in builds),
            role=role,
            spec={"cache": {"paths": [f"build/{self._workload}/**/*"]}},
            timeout=LONGEST_JOB,
            after=after,
        )

    def record(self, inputs: Mapping[str, Files], role: iam.IRole) -> CodeBuildStep:
        """Records the model's outputs for evaluation.jsonl on its chip, on a temporary endpoint."""
        model = self._model
        assert model.chip is not None
        arguments = [model.workload, model.target, role.role_arn, self._bucket, model.chip]
        named = [model.image_uri] if model.image_uri else []
        return self._step(
            "Record",
            [FOR_BUILDS, " ".join(["bash", f"{SCRIPTS}/record_on_chip.sh", *arguments, *named])],
            inputs=inputs,
            role=role,
            primary_output_directory="recorded",
        )

    def parity_gate(self, built: Files, recorded: Step | None) -> CodeBuildStep:
        """Judges what the build compared where it was made, or what `recorded` has of the model on its chip."""
        gate = f"bash {SCRIPTS}/parity_gate.sh {self._workload} {self._model.target}"
        return self._step(
            "ParityGate",
            [FOR_BUILDS, f"{gate} recorded/outputs.json" if recorded else gate],
            inputs={self._model.folder: built} | ({"recorded": recorded} if recorded else {}),
        )

    def synth(self, built: Mapping[str, Files], gate: Step, publish: iam.PolicyStatement) -> CodeBuildStep:
        """Writes the workload's templates, with its pipeline's own. It may publish files as CDK's bootstrap does.

        An action of CloudFormation takes an artifact of 256 MB at most, so model archives are published here and leave
        the assembly. Source: https://docs.aws.amazon.com/codepipeline/latest/userguide/limits.html
        """
        return self._step(
            "Synth",
            [
                "npm ci --no-audit --no-fund",
                f"{INSTALL} requirements/cdk.txt",
                # The stages have their own options; the stacks beside them are not deployed here.
                f"npx cdk synth --quiet -c recommendation=ignore -c release={self._workload}",
                RELABEL,
                f"npm install -g cdk-assets@{CDK_ASSETS}",
                "python -m scripts.release.publish_archives cdk.out",
            ],
            inputs=built,
            role_policy_statements=[publish],
            primary_output_directory="cdk.out",
            after=gate,
        )

    def smoke_test(self, endpoint: CfnOutput, role: iam.IRole) -> CodeBuildStep:
        return self._step(
            "SmokeTest",
            [FOR_PROGRAMS, f'bash {SCRIPTS}/smoke_test.sh {self._workload} "$ENDPOINT"'],
            env_from_cfn_outputs={"ENDPOINT": endpoint},
            role=role,
        )

    def measure(
        self, built: Files, after: Step, deployed: Callable[[str], CfnOutput], role: iam.IRole
    ) -> CodeBuildStep:
        """Measures the model of beta with a job or a load test, and proves the recommendation if `proven`.

        `deployed` returns the stack's outputs by name. The step's output is the run's folder.
        """
        model = self._model
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
        return self._step(
            "Measure",
            [FOR_PROGRAMS, command, *prove],
            inputs={model.folder: built},
            env_from_cfn_outputs=outputs,
            role=role,
            timeout=LONGEST_JOB,
            primary_output_directory="runs/candidate",
            after=after,
        )

    def measure_in_vpc(
        self, built: Files, url: CfnOutput, *, project: str, instance_type: str, place: str, role: iam.IRole
    ) -> CodeBuildStep:
        """Invokes and measures the ECS service at `url`, by a build of `project` in the service's VPC.

        The build exchanges files by the S3 folder `place`. The step's output is the run's folder.
        """
        arguments = f'{self._workload} {project} "$URL" {instance_type} {place} {role.role_arn}'
        return self._step(
            "Measure",
            [f"bash {SCRIPTS}/measure_in_vpc.sh {arguments}"],
            inputs={self._model.folder: built},
            env_from_cfn_outputs={"URL": url},
            role=role,
            timeout=LONGEST_JOB,
            primary_output_directory="runs/candidate",
        )

    def performance_gate(self, run: Step, role: iam.IRole) -> CodeBuildStep:
        gate = f"bash {SCRIPTS}/performance_gate.sh {self._workload} {self._baselines}"
        return self._step("PerformanceGate", [FOR_PROGRAMS, gate], {"runs/candidate": run}, role=role)

    def register(self, model: CfnOutput, after: Step, role: iam.IRole) -> CodeBuildStep:
        """Registers the measured model as a model package that awaits approval."""
        command = f'python -m inference_recommender register {self._workload} --set "recommender.model=$MODEL_NAME"'
        outputs = {"MODEL_NAME": model}
        return self._step("Register", [FOR_PROGRAMS, command], env_from_cfn_outputs=outputs, role=role, after=after)

    def propose(
        self, clone: Files, commit: str, after: Step, run: Step, connection: iam.PolicyStatement
    ) -> CodeBuildStep:
        """Proposes the recommendation as a branch for a pull request and as a patch.

        `commit` is the measured commit; `clone` may be later. Git gets its credentials by `connection`.
        """
        return code_build_step(
            "Propose",
            clone,
            ['git checkout --quiet --detach "$COMMIT"', f"bash {SCRIPTS}/propose.sh {self._workload}"],
            additional_inputs={"runs/candidate": run},
            env={"COMMIT": commit},
            role_policy_statements=[connection],
            spec={"env": {"git-credential-helper": "yes"}},
            primary_output_directory="proposal",
            after=after,
        )

    def pause_scaling(self, stack: str, role: iam.IRole) -> CodeBuildStep:
        """Prepares a deployment that changes the type of an autoscaled fleet, which SageMaker refuses."""
        command = f"python -m scripts.release.pause_scaling {self._workload} {stack}"
        return self._step("PauseScaling", [FOR_PROGRAMS, command], role=role, timeout=LONGEST_CHANGE)

    def keep_baseline(self, run: Step, role: iam.IRole) -> CodeBuildStep:
        command = f"bash {SCRIPTS}/keep_baseline.sh {self._workload} {self._baselines}"
        return self._step("KeepBaseline", [command], inputs={"runs/candidate": run}, role=role)

    def take_down(self, name: str, stack: str, role: iam.IRole, after: Step | None = None) -> CodeBuildStep:
        """Deletes a stack of beta, whose servers cost by the hour."""
        command = f"bash {SCRIPTS}/take_down.sh {stack}"
        return self._step(name, [command], role=role, timeout=LONGEST_CHANGE, after=after)

    @property
    def _baselines(self) -> str:
        return f"s3://{self._bucket}/baselines"

    def _step(
        self, name: str, commands: Sequence[str], inputs: Mapping[str, Files] | None = None, **properties: Any
    ) -> CodeBuildStep:
        return code_build_step(name, self._source, commands, additional_inputs=inputs, **properties)


def code_build_step(
    name: str,
    source: Files,
    commands: Sequence[str],
    *,
    role: iam.IRole | None = None,
    after: Step | None = None,
    large: bool = False,
    privileged: bool = False,
    spec: Mapping[str, object] | None = None,
    **properties: Any,
) -> CodeBuildStep:
    """Returns a step. `spec` adds to its build specification. `properties` are those of `CodeBuildStep`."""
    step = CodeBuildStep(
        name,
        input=source,
        commands=[*(role.commands if isinstance(role, AssumingRole) else ()), *commands],
        role=role,
        partial_build_spec=codebuild.BuildSpec.from_object(
            {"phases": {"install": {"runtime-versions": RUNTIMES}}, **(spec or {})}
        ),
        build_environment=codebuild.BuildEnvironment(
            build_image=codebuild.LinuxBuildImage.STANDARD_7_0,
            compute_type=codebuild.ComputeType.LARGE if large else codebuild.ComputeType.MEDIUM,
            privileged=privileged,
        ),
        **properties,
    )
    if after is not None:
        step.add_step_dependency(after)
    return step
