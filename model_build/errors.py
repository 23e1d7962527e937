"""Every error of a build that a person is meant to read, with its exit code."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workloads import ProjectError


class MissingCheckpoint(ProjectError):
    def __init__(self, file: Path, key: str, checkpoint: str, folder: Path) -> None:
        super().__init__(
            f"{file}: model.{key}: got '{checkpoint}', but there is no folder {folder}. "
            "Allowed: a folder (begins with ./, ../ or /), an s3:// URI of a folder, or a model id of the "
            "Hugging Face hub."
        )


class BrokenCheckpoint(ProjectError):
    """A file of the checkpoint that is missing, truncated or not of the kind a build can take."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(f"{file}: {problem}")


class WrongArchitecture(ProjectError):
    def __init__(self, architecture: str, task: str, allowed: Sequence[str]) -> None:
        super().__init__(
            f"model.checkpoint.architecture: '{architecture}' cannot do {task}. Allowed for it: {', '.join(allowed)}."
        )


class UnreachableCheckpoint(ProjectError):
    exit_code = 3

    def __init__(self, checkpoint: str, reason: str, advice: str) -> None:
        super().__init__(f"The checkpoint '{checkpoint}' cannot be fetched: {reason}. {advice}")


class MissingToolchain(ProjectError):
    exit_code = 3

    def __init__(self, module: str) -> None:
        super().__init__(
            f"The Python package '{module}' is not installed, and model_build needs it. "
            "Install the build's tools with `pip install -e '.[build]'`."
        )


class NoSuchBuild(ProjectError):
    def __init__(self, file: Path, target: str, runtime: str, task: str, allowed: Sequence[str]) -> None:
        super().__init__(
            f"{file}: targets.{target}.runtime: '{runtime}' is not built for {task}. Allowed: {', '.join(allowed)}."
        )


class DryRunHere(ProjectError):
    def __init__(self) -> None:
        super().__init__("--dry-run goes with --on sagemaker. What a build here would do is printed by `plan`.")


class NothingToBuild(ProjectError):
    def __init__(self, target: str, workloads: Sequence[str], *, variants: bool) -> None:
        what = f"variant of a target '{target}'" if variants else f"target '{target}'"
        super().__init__(f"There is no {what} in any workload.toml of {', '.join(workloads)}.")


class DiskFull(ProjectError):
    exit_code = 3

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"There is no room for the build in {folder}: {reason}. Nothing half-written was left. "
            "Free some space and build again."
        )


class BuildRunning(ProjectError):
    exit_code = 3

    def __init__(self, workload: str, target: str, lock: Path) -> None:
        super().__init__(
            f"Another build or verification of {workload} for {target} is running (it holds {lock}). "
            "Wait for it to end, then try again."
        )


class StaleArtifact(ProjectError):
    def __init__(self, file: Path, workload: str, target: str) -> None:
        super().__init__(
            f"{file} was built from another checkpoint than the one workload.toml names now. "
            f"Build it again with `python -m model_build build {workload} --target {target}`."
        )


class NotCompared(ProjectError):
    """A build whose parity nobody knows is no build to release."""

    exit_code = 1

    def __init__(self, file: Path, workload: str, target: str) -> None:
        super().__init__(
            f"{file}: parity: the build compared nothing, since the model could not run where it was compiled. "
            f"Run `python -m model_build verify {workload} --target {target}` on the target's hardware."
        )


class UnknownLayer(ProjectError):
    def __init__(self, names: Sequence[str], known: Sequence[str]) -> None:
        super().__init__(
            f"fp32_layers: the graph has no {', '.join(names)}. A name covers all layers that begin with it and a dot. "
            f"Layers: {', '.join(known)}."
        )


class Fp32Fails(ProjectError):
    """Precision is not what is wrong."""

    exit_code = 1

    def __init__(self, layers: int) -> None:
        super().__init__(
            f"The parity gate fails even with all {layers} layers in fp32, so no list of fp32_layers can help. "
            'Build the target with precision = "fp32" and look at what the gate says there.'
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """One example that counts against a model: what it was asked, what was right, what it said."""

    text: str
    expected: str
    got: str


class GateFailed(ProjectError):
    """A model that is not good enough to ship: the reasons and the worst examples."""

    exit_code = 1
    SHOWN = 5

    def __init__(
        self, title: str, reasons: Sequence[str], mistakes: Sequence[Mistake], advice: str, *, of_compiled: bool = False
    ) -> None:
        self.mistakes = tuple(mistakes)
        self.of_compiled = of_compiled  # the original passed
        shown = [
            f"  {mistake.text!r}: expected {mistake.expected!r}, got {mistake.got!r}"
            for mistake in mistakes[: self.SHOWN]
        ]
        heading = [f"The {len(shown)} worst of {len(mistakes)} examples:"] if shown else []
        super().__init__("\n".join([title, *(f"- {reason}" for reason in reasons), *heading, *shown, advice]))

    def advised(self, more: str) -> "GateFailed":
        """The same failure with one more line of advice."""
        self.args = (f"{self}\n{more}",)
        return self
