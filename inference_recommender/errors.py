"""What the recommender may have to tell a person, and with which exit code."""

import json
from collections.abc import Sequence
from pathlib import Path

from aws_api.errors import AwsUnavailable
from workloads import ProjectError


class Suspended(AwsUnavailable):
    """A run whose jobs go on, or were never begun, while this program cannot follow them."""

    def __init__(self, why: AwsUnavailable, run: Path) -> None:
        super().__init__(
            f"{why}\nNothing is lost: continue with `python -m inference_recommender run --resume {run}`. "
            "No job is created twice."
        )


class NotDeployed(AwsUnavailable):
    def __init__(self, stack: str, missing: str) -> None:
        super().__init__(
            f"{missing} The job tests the model that the stack deploys: run `cdk deploy {stack}` first, "
            "or name a model and a role with --model-name and --role-arn."
        )


class UnsuitableEndpoint(AwsUnavailable):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"--endpoint: {name} cannot be tested by an Inference Recommender job: {why}")


class Unregistrable(AwsUnavailable):
    def __init__(self, model: str) -> None:
        super().__init__(
            f"Model {model} cannot be registered: it is not one container with an image of its own, which is what a "
            "version in the registry is made from. Name another with --model-name."
        )


class NoSuchJob(AwsUnavailable):
    def __init__(self, name: str, region: str) -> None:
        super().__init__(
            f"There is no Inference Recommender job called '{name}' in {region}. "
            "`python -m inference_recommender list` shows those there are."
        )


class JobNameTaken(AwsUnavailable):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is already a job called '{name}'. Choose another with --job-name.")


class JobFailed(AwsUnavailable):
    """`tests` has a line for each test that failed for a reason which the job's own does not tell."""

    def __init__(self, name: str, reason: str, run: Path, tests: Sequence[str] = ()) -> None:
        told = "\n".join([f"Job {name} failed: {reason}", *tests])
        super().__init__(f"{told}\nWhat was measured is kept in {run}.")


class InvalidRun(ProjectError):
    """Measured, but nothing may be concluded from it."""

    exit_code = 4

    def __init__(self, why: str, run: Path) -> None:
        super().__init__(f"No verdict: {why} What was measured is kept in {run}.")


class ProbeFailed(ProjectError):
    """What a capacity search probes stopped answering, or never did."""

    exit_code = 3

    def __init__(self, url: str, why: str, run: Path) -> None:
        super().__init__(f"{url}: {why.rstrip('.')}. What was measured is kept in {run}.")


class UnlikeRuns(ProjectError):
    def __init__(self, candidate: Path, what: str, got: str, baseline: Path, wanted: str) -> None:
        super().__init__(
            f"{candidate}: its {what} is {got}, but that of the baseline {baseline} is {wanted}. Only runs of the same "
            f"workload and traffic compare: measure the candidate with the baseline's {what}."
        )


class Interrupted(ProjectError):
    exit_code = 130

    def __init__(self, what: str) -> None:
        super().__init__(f"Interrupted: {what}")


class RefusedRequest(ProjectError):
    """A job that the service would refuse: a line for each reason, in the workload's words."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class PayloadTooLarge(ProjectError):
    def __init__(self, workload: str, number: int, size: int, most: int) -> None:
        super().__init__(
            f"workloads/{workload}/payloads.jsonl: request {number} is {size:,} bytes. "
            f"Allowed: {most:,} at most, as InvokeEndpoint takes."
        )


class NoCandidates(ProjectError):
    def __init__(self, run: Path, why: str) -> None:
        super().__init__(f"--from-default: {run} {why}")


class RunExists(ProjectError):
    def __init__(self, run: Path) -> None:
        super().__init__(
            f"{run} holds a run already: go on with it by `python -m inference_recommender run --resume {run}`, "
            "or choose another name with --job-name."
        )


class NothingToResume(ProjectError):
    def __init__(self, run: Path) -> None:
        super().__init__(
            f"--resume: {run} holds no run that can be continued: it has no jobs.json. Runs are in the folder that "
            "--runs names, runs/ by default."
        )


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


class Usage(ProjectError):
    """Options that do not go together."""
