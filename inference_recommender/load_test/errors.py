"""What the harness may have to tell a person, and with which exit code."""

from pathlib import Path

from workloads import ProjectError


class NothingServed(ProjectError):
    def __init__(self) -> None:
        super().__init__("--with harness: needs what to measure: --endpoint NAME of SageMaker, or --url URL.")


class TwoServed(ProjectError):
    def __init__(self, endpoint: str, url: str) -> None:
        super().__init__(f"--endpoint {endpoint} and --url {url}: give one of them.")


class NotAUrl(ProjectError):
    def __init__(self, got: str) -> None:
        super().__init__(f"--url: got '{got}', but a URL is http://HOST:PORT or https://HOST.")


class NotACount(ProjectError):
    def __init__(self, option: str, got: int) -> None:
        super().__init__(f"{option}: got {got}. Allowed: 1 or more.")


class OnlyWithHarness(ProjectError):
    def __init__(self, option: str) -> None:
        super().__init__(f"{option}: only with --with harness; a job of Inference Recommender makes its own load.")


class NotWithHarness(ProjectError):
    def __init__(self, option: str) -> None:
        super().__init__(f"{option}: not with --with harness, which runs a workload's own traffic as it is.")


class TargetFailed(ProjectError):
    """What is measured stopped answering, or never did."""

    exit_code = 3

    def __init__(self, served: str, why: str, run: Path) -> None:
        super().__init__(f"{served}: {why}. What was measured is kept in {run}.")


class GeneratorFailed(ProjectError):
    exit_code = 3

    def __init__(self, why: str, run: Path) -> None:
        super().__init__(f"{why}\nWhat was measured is kept in {run}.")


class UnreachableFromAws(ProjectError):
    def __init__(self, url: str) -> None:
        super().__init__(
            f"--url: got '{url}', which is this machine, but with --generators the load comes from AWS. Name an "
            "address that a Processing job can reach, or leave out --generators."
        )


class NoGeneratorRole(ProjectError):
    def __init__(self) -> None:
        super().__init__(
            "--role-arn: missing. The Processing job of --generators assumes an IAM role that sagemaker.amazonaws.com "
            "may assume, that may read and write the bucket, pull the image, write logs and invoke the endpoint. Give "
            "--role-arn arn:aws:iam::ACCOUNT:role/NAME."
        )


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
