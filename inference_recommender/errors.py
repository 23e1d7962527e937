"""What the recommender may have to tell a person, and with which exit code."""

import json
from collections.abc import Sequence
from pathlib import Path

from workloads import ProjectError


class AwsUnavailable(ProjectError):
    """AWS is not there or refuses."""

    exit_code = 3


class NoCredentials(AwsUnavailable):
    def __init__(self) -> None:
        super().__init__(
            "No AWS credentials were found. Configure them with `aws configure`, or start an account on this "
            "machine with `python -m local_aws` and export what it prints."
        )


class NoRegion(AwsUnavailable):
    def __init__(self) -> None:
        super().__init__("No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`.")


class AwsUnreachable(AwsUnavailable):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"AWS cannot be reached: {why}. If AWS_ENDPOINT_URL points at an account on this machine, start it "
            "with `python -m local_aws`."
        )


class AwsRefused(AwsUnavailable):
    def __init__(self, operation: str, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"AWS refused {operation}: {code}: {message}")


class NotDeployed(AwsUnavailable):
    def __init__(self, stack: str, missing: str) -> None:
        super().__init__(
            f"{missing} The job tests the model that the stack deploys: run `cdk deploy {stack}` first, "
            "or name a model and a role with --model-name and --role-arn."
        )


class JobNameTaken(AwsUnavailable):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is already a job called '{name}'. Choose another with --job-name.")


class JobFailed(AwsUnavailable):
    def __init__(self, name: str, reason: str, run: Path) -> None:
        super().__init__(f"Job {name} failed: {reason}\nWhat was measured is kept in {run}.")


class InvalidRun(ProjectError):
    """Measured, but nothing may be concluded from it."""

    exit_code = 4

    def __init__(self, why: str, run: Path) -> None:
        super().__init__(f"No verdict: {why} What was measured is kept in {run}.")


class Interrupted(ProjectError):
    exit_code = 130

    def __init__(self, what: str) -> None:
        super().__init__(f"Interrupted: {what}")


class NoVerdictKept(ProjectError):
    def __init__(self, run: Path) -> None:
        super().__init__(
            f"{run} holds no recommendation: its job came to no verdict. What was measured is in measurements.json."
        )


class NoSuchRun(ProjectError):
    def __init__(self, run: Path, missing: str) -> None:
        super().__init__(f"{run} is no run folder: it has no {missing}.")


class NotARow(ProjectError):
    def __init__(self, argument: str, fields: Sequence[str]) -> None:
        example = json.dumps(dict.fromkeys(fields, "…"), ensure_ascii=False)
        super().__init__(f"TEXT: got '{argument[:60]}', but this model has several fields: give {example}.")
