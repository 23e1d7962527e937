"""What the harness may have to tell a person, and with which exit code."""

from pathlib import Path

from workloads import ProjectError


class TargetFailed(ProjectError):
    """What is measured stopped answering, or never did."""

    exit_code = 3

    def __init__(self, served: str, why: str, run: Path) -> None:
        super().__init__(f"{served}: {why}. What was measured is kept in {run}.")


class GeneratorFailed(ProjectError):
    exit_code = 3

    def __init__(self, why: str, run: Path) -> None:
        super().__init__(f"{why}\nWhat was measured is kept in {run}.")


class NoImageData(ProjectError):
    exit_code = 3

    def __init__(self) -> None:
        super().__init__(
            "The Python package 'sagemaker-core' is not installed, and it knows the accounts of AWS's images. "
            "Install it with `pip install -e '.[cdk]'`, or name an image with --generator-image-uri."
        )


class UnknownImage(ProjectError):
    def __init__(self, image: str, region: str) -> None:
        super().__init__(
            f"sagemaker-core does not know {image} in the region {region}. Choose another region with "
            "AWS_DEFAULT_REGION, or copy an image into your own registry and name it with --generator-image-uri."
        )


class ProcessingFailed(ProjectError):
    exit_code = 3

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Processing job {name} failed: {reason}")


class OutputMissing(ProjectError):
    exit_code = 3

    def __init__(self, url: str, found: int, wanted: int) -> None:
        super().__init__(
            f"{url}: has what {found} of {wanted} generators measured. Without the others no rate is known."
        )
