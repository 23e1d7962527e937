"""The parts that every stack of a workload shares: its props, and how it refuses and warns at synth."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Annotations, Environment, Stack, Token
from aws_cdk import aws_kms as kms
from aws_cdk.region_info import Fact
from constructs import Construct

from stacks.context import Options
from stacks.model_archive import ModelArchive
from workloads import ModelArtifact, ProjectError, Recommendation, UsageError, WorkloadFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltArtifact:
    artifact: ModelArtifact
    archive_file: Path

    def archive(self, scope: Construct, id: str) -> ModelArchive:
        return ModelArchive(scope, id, file=self.archive_file, sha256=self.artifact.archive_sha256)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadStackProps:
    """A workload that is built. A stack whose `environment` is None fits every account and region."""

    root: Path
    """Has the build/ of the images."""
    folder: WorkloadFolder
    built: BuiltArtifact
    recommendation: Recommendation | None
    options: Options
    environment: Environment | None = None


@dataclass(frozen=True, slots=True)
class SynthWarning:
    """A warning at synth. A user acknowledges it by its `id`."""

    id: str
    text: str


class NotMeasured(UsageError):
    """The stage needs another recommendation. `stacks/app.py` leaves the workload out; a release proposes one."""


def refuse(findings: Iterable[ProjectError | SynthWarning]) -> tuple[SynthWarning, ...]:
    """Returns the warnings if there is no problem. Raises `NotMeasured` if every problem is one, else `UsageError`."""
    all_findings = tuple(findings)
    if problems := [finding for finding in all_findings if isinstance(finding, ProjectError)]:
        kind = NotMeasured if all(isinstance(problem, NotMeasured) for problem in problems) else UsageError
        raise kind("\n".join(map(str, problems)))
    return tuple(finding for finding in all_findings if isinstance(finding, SynthWarning))


def refuse_arguments(construct: Construct, problems: Iterable[str]) -> None:
    """Raises `UsageError` with a line for each problem of the construct's arguments."""
    refuse(UsageError(f"{construct.node.path}: {problem}") for problem in problems)


def add_warnings(stack: Stack, warnings: Iterable[SynthWarning]) -> None:
    for warning in warnings:
        Annotations.of(stack).add_warning_v2(warning.id, warning.text)


def add_legacy_note(stack: Stack, folder: WorkloadFolder) -> None:
    """Adds a note to a stack for Inf1: AWS calls it legacy, and how to move. `--strict` does not fail on it."""
    workload = folder.workload
    if workload.hosted.runtime != "neuron":
        return
    newer = [name for name, target in workload.targets.items() if target.runtime == "neuronx"]
    move = (
        f'build it for {newer[0]} and say hosting.target = "{newer[0]}"'
        if newer
        else 'add a target with runtime = "neuronx" and instance_types of inf2, build it and host it'
    )
    Annotations.of(stack).add_info_v2(
        "inferentia:legacy",
        f"{folder.file}: hosting.target: '{workload.hosting.target}' is for Inf1, which AWS calls legacy: its last "
        f"images are Neuron 2.20's, its last driver is 2.24. New projects go to Inf2: {move}.",
    )


def named_key(stack: Stack, arn: str | None) -> kms.IKey | None:
    """Returns the key that hosting.kms_key_arn names. What it is needed for is granted to roles, not in its policy."""
    return None if arn is None else kms.Key.from_key_arn(stack, "NamedKey", arn)


def region_of(stack: Stack) -> str | None:
    """Returns None for a stack that fits every region. Raises `UsageError` for a region that does not exist."""
    if Token.is_unresolved(stack.region):
        return None
    if stack.region not in (known := Fact.regions):
        raise UsageError(
            f"There is no region '{stack.region}'. Known: {', '.join(known)}. Set AWS_REGION, or the profile's region."
        )
    return stack.region
