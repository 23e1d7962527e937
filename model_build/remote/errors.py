"""What a remote build may have to tell a person, and with which exit code."""

import re
from collections.abc import Sequence
from pathlib import Path

from workloads import ProjectError

LOG_GROUP = "/aws/sagemaker/ProcessingJobs"


class AwsUnavailable(ProjectError):
    """AWS is not there or refuses."""

    exit_code = 3


class NoCredentials(AwsUnavailable):
    def __init__(self) -> None:
        super().__init__("No AWS credentials were found. Configure them with `aws configure`.")


class NoRegion(AwsUnavailable):
    def __init__(self) -> None:
        super().__init__("No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`.")


class AwsUnreachable(AwsUnavailable):
    def __init__(self, why: str) -> None:
        super().__init__(f"AWS cannot be reached: {why}.")


class AwsRefused(AwsUnavailable):
    def __init__(self, operation: str, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"AWS refused {operation}: {code}: {message}")


class NoQuota(AwsUnavailable):
    def __init__(self, instance_type: str, message: str) -> None:
        super().__init__(
            f"AWS refused CreateProcessingJob for want of quota: {message}\nAsk for more of '{instance_type} for "
            "processing job usage' in Service Quotas, or choose another machine with --instance-type."
        )


class JobNameTaken(AwsUnavailable):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is already a processing job called '{name}'. Start the build again: names carry the time."
        )


class NoRole(ProjectError):
    def __init__(self) -> None:
        super().__init__(
            "--role-arn: missing. A processing job assumes an IAM role that sagemaker.amazonaws.com may assume, that "
            "may read and write the bucket, pull the image and write logs. Give --role-arn "
            "arn:aws:iam::ACCOUNT:role/NAME."
        )


class NotARole(ProjectError):
    def __init__(self, got: str) -> None:
        super().__init__(f"--role-arn: got '{got}', but a role's ARN is arn:aws:iam::ACCOUNT:role/NAME.")


class HalfAVpc(ProjectError):
    def __init__(self, given: str, missing: str) -> None:
        super().__init__(f"{given} was given without {missing}. A job in a VPC needs both.")


class RefusedInstance(ProjectError):
    """An instance type that a processing job of this target cannot have."""

    def __init__(self, instance_type: str, why: str) -> None:
        super().__init__(f"--instance-type: got '{instance_type}'. {why}")


class NoImageData(ProjectError):
    exit_code = 3

    def __init__(self) -> None:
        super().__init__(
            "The Python package 'sagemaker-core' is not installed, and it knows the accounts of AWS's images. "
            "Install it with `pip install -e '.[cdk]'`, or name an image with --image-uri."
        )


class UnknownImage(ProjectError):
    def __init__(self, image: str, region: str, known: Sequence[str]) -> None:
        super().__init__(
            f"sagemaker-core does not know {image} in the region {region}. Known: {', '.join(known)}. "
            "Choose one of these with AWS_DEFAULT_REGION, or copy an image into your own registry and name it with "
            "--image-uri."
        )


class UnpublishedTriton(ProjectError):
    def __init__(self, file: Path, version: str, known: Sequence[str]) -> None:
        super().__init__(
            f"{file}: hosting.triton_version: got '{version}', but sagemaker-core knows no such SageMaker Triton "
            f"image. Known: {', '.join(known)}. Choose one, or name an image with --image-uri."
        )


class CheckpointLeftBehind(ProjectError):
    def __init__(self, file: Path, key: str, got: str, folder: Path) -> None:
        super().__init__(
            f"{file}: model.{key}: got '{got}', which is outside {folder}: only that folder travels to the machine "
            "that builds. Move it there, or name an s3:// URI or a model id of the Hugging Face hub."
        )


class JobFailed(ProjectError):
    """A job that ended without a model: what the service, the build and its log say."""

    exit_code = 3

    def __init__(self, name: str, reason: str | None, exit_message: str | None, log: Sequence[str]) -> None:
        built = re.match(r"model_build ended with exit status (\d+)", exit_message or "")
        if built:
            self.exit_code = int(built[1])
        lines = [f"Job {name} failed: {reason or 'the service gave no reason.'}"]
        if exit_message:
            lines.append(exit_message.rstrip())
        if log:
            lines += [f"The last lines of its log in {LOG_GROUP}:", *(f"  {line}" for line in log)]
        super().__init__("\n".join(lines))


class JobStopped(ProjectError):
    exit_code = 3

    def __init__(self, name: str, max_runtime_s: int) -> None:
        super().__init__(
            f"Job {name} was stopped before it had built anything: by somebody, or because it ran for "
            f"{max_runtime_s} s. Give it longer with --max-runtime-s."
        )


class LostSight(ProjectError):
    """The jobs run on, but nobody here can see them."""

    exit_code = 3

    def __init__(self, names: Sequence[str], outputs: Sequence[str], why: str) -> None:
        stops = "\n".join(f"  aws sagemaker stop-processing-job --processing-job-name {name}" for name in names)
        super().__init__(
            f"{why}\nStill running, as far as is known: {', '.join(names)}. Stop with\n{stops}\n"
            f"What they build will be in {', '.join(outputs)}."
        )


class Interrupted(ProjectError):
    exit_code = 130

    def __init__(self, outcomes: Sequence[str]) -> None:
        kept = "Nothing half-made was left; start the build again to repeat it."
        super().__init__(" ".join([f"Interrupted: {'; '.join(outcomes) or 'no job had been started'}.", kept]))


class UnusableOutput(ProjectError):
    exit_code = 3

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"{url}: {problem} Nothing was put into build/.")


class ArchiveDiffers(ProjectError):
    exit_code = 3

    def __init__(self, url: str, expected: str, actual: str) -> None:
        super().__init__(
            f"{url}: its sha256 is {actual}, but artifact.json beside it says {expected}. Nothing was put into "
            "build/. Start the build again."
        )


class BuildsDisagree(ProjectError):
    """Two machines whose archives cannot become one."""

    exit_code = 3

    def __init__(self, what: str, jobs: Sequence[str]) -> None:
        super().__init__(
            f"The jobs {', '.join(jobs)} built different {what}, so their archives cannot become one. "
            "Nothing was put into build/."
        )
