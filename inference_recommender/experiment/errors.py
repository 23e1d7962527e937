"""What an experiment may have to tell a person, and with which exit code."""

from collections.abc import Sequence
from pathlib import Path

from workloads import ProjectError


class NoSuchVariant(ProjectError):
    def __init__(self, file: Path, pattern: str, known: Sequence[str]) -> None:
        super().__init__(f"--variants: '{pattern}' is none of {file}. Known: {', '.join(known)}.")


class NoWorkload(ProjectError):
    def __init__(self) -> None:
        super().__init__(
            "WORKLOAD: missing. Name the workload to measure, or an experiment to go on with --resume RUN."
        )


class NothingToCompare(ProjectError):
    def __init__(self, file: Path, variants: Sequence[str]) -> None:
        super().__init__(
            f"{file}: no cell is left: the targets of {', '.join(variants)} name no instance type of SageMaker "
            "(ml.…). Add instance_types to the target, or name types with --instance-types."
        )


class UnfitInstanceType(ProjectError):
    """An instance type on which none of the chosen variants runs."""

    def __init__(self, instance_type: str, fits: Sequence[str]) -> None:
        super().__init__(
            f"--instance-types: got '{instance_type}', on which none of the chosen variants runs. {' '.join(fits)}"
        )


class NotAnInstanceType(ProjectError):
    def __init__(self, got: str) -> None:
        super().__init__(
            f"--instance-types: got '{got}', which is no instance type that a SageMaker endpoint can have, such as "
            "ml.c5.xlarge."
        )


class NoSuchBaseline(ProjectError):
    def __init__(self, got: str, cells: Sequence[str]) -> None:
        super().__init__(
            f"--baseline: '{got}' is not one cell of this experiment. Name one as INSTANCE_TYPE/VARIANT: "
            f"{', '.join(cells)}."
        )


class MissingArtifacts(ProjectError):
    """Variants that were never built: one command for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))


class NotAnExperiment(ProjectError):
    def __init__(self, path: Path) -> None:
        super().__init__(f"--resume: {path} is no experiment's folder: it has no experiment.json.")


class NothingMeasured(ProjectError):
    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: no cell is measured yet. Go on with `experiment --resume {path}`.")


class ResumedDifferently(ProjectError):
    """What was asked is already written down in the folder."""

    def __init__(self, path: Path, options: Sequence[str]) -> None:
        super().__init__(
            f"--resume: {path} says what is measured; leave out {', '.join(options)}, or start a new experiment."
        )


class BuiltAnew(ProjectError):
    """The archive is another than the one that the finished cells were measured with."""

    def __init__(self, path: Path, variant: str, then: str, now: str) -> None:
        super().__init__(
            f"--resume: {path} began with an archive of '{variant}' whose sha256 is {then}; the one in build/ now has "
            f"{now}. Cells of different archives cannot be compared: start a new experiment."
        )


class ModelTaken(ProjectError):
    exit_code = 3

    def __init__(self, name: str) -> None:
        super().__init__(f"There is already a SageMaker model called '{name}' that this experiment did not make.")


class EndpointFailed(ProjectError):
    exit_code = 3

    def __init__(self, name: str, status: str, reason: str | None) -> None:
        super().__init__(f"Endpoint {name} is {status}: {reason or 'the service gave no reason.'}")


class ExperimentSuspended(ProjectError):
    """What was measured is kept; the error says what became of the rest."""

    def __init__(self, why: ProjectError, path: Path, finished: int, cells: int) -> None:
        self.exit_code = why.exit_code
        super().__init__(
            f"{why}\n{finished} of {cells} cells are measured. Go on with `python -m inference_recommender experiment "
            f"--resume {path}`: none of them is measured again."
        )
