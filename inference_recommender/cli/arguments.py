"""Options that several commands have: --set, the workload that is measured, and values that argparse checks."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from workloads import ModelArtifact, UsageError, WorkloadFolder, load_workload
from workloads.document import Document
from workloads.files import from_here
from workloads.folder import set_keys

if TYPE_CHECKING:
    from aws_api.sagemaker import SageMakerAccount

Settings = TypeVar("Settings", bound=Document)
DEFAULT_TRAFFIC = "production"


def add_settings(parser: argparse.ArgumentParser, key: str = "KEY", example: str = "recommender.role_arn") -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar=f"{key}=VALUE",
        help=f"override a key of workload.toml, such as {example}; may be repeated",
    )


def add_prices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prices",
        choices=["sagemaker", "ec2"],
        default="sagemaker",
        help="prices of SageMaker endpoints (default), or of the same EC2 instances",
    )


def table_with_settings(settings: Sequence[str], table: str, document: Settings) -> Settings:
    """Returns a table of workload.toml with the keys that `--set TABLE.KEY=VALUE` replaces. Raises `UsageError`."""
    if not settings:
        return document
    tables = {table: document.model_dump(mode="json")}
    set_keys(tables, settings, f"{table}.KEY=VALUE")
    return type(document).from_table(Path(f"--set {table}"), tables[table])


def check_archives(run: Path, recorded: Mapping[str, str], artifacts: Mapping[str, ModelArtifact]) -> None:
    """Raises `UsageError` if a build is another than the one that a resumed run has measured."""
    for name, then in recorded.items():
        if (now := artifacts[name].archive_sha256) != then:
            raise UsageError(
                f"--resume: {from_here(run)} measured an archive of '{name}' with sha256 {then}, but build/ has {now}. "
                "Start a new one: measurements of different archives cannot be compared."
            )


def deployed_workload(
    name: str, target: str | None, account: "SageMakerAccount | None", endpoint: str | None = None
) -> WorkloadFolder:
    """Returns a workload on `target`; by default on its stack's target, by its output HostedTarget;
    without a stack, on hosting.target. Raises `UsageError` for an unknown target.
    """
    folder = load_workload(name)
    if target is None and account is not None:
        target = account.hosted_target(folder.workload.stack_name, endpoint)
    if target is None or target == folder.workload.hosting.target:
        return folder
    folder.variant(target)
    return folder.hosted_on(target)


def positive(text: str) -> float:
    """Parses a number above 0 that is not infinite."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"got '{text}', but it must be more than 0.")
    return value


def count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"got '{text}', but it must be a whole number above 0.")
    return int(text)


def percentile(text: str) -> str:
    """Parses P99, p99.9 or 99 as P99."""
    try:
        rank = float(text.removeprefix("P").removeprefix("p"))
    except ValueError:
        rank = 0.0
    if not 0 < rank < 100:
        raise argparse.ArgumentTypeError(f"got '{text}', but a percentile is P50, P99, P99.9 and the like.")
    return f"P{rank:.12g}"


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text}. Allowed: a whole number.")
    return int(text)
