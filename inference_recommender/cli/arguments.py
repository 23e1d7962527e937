"""Options that several commands have, and values that argparse checks."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from workloads import ModelArtifact, UsageError
from workloads.files import from_here


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


def check_archives(run: Path, recorded: Mapping[str, str], artifacts: Mapping[str, ModelArtifact]) -> None:
    """Raises `UsageError` if a build is another than the one that a resumed run has measured."""
    for name, then in recorded.items():
        if (now := artifacts[name].archive_sha256) != then:
            raise UsageError(
                f"--resume: {from_here(run)} measured an archive of '{name}' with sha256 {then}, but build/ has {now}. "
                "Start a new one: measurements of different archives cannot be compared."
            )


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
