"""The options that the batch's two command lines share. argparse tells which argument a ValueError was about."""

import argparse
import json
import os
import sys
from pathlib import Path

RESOURCES = Path("/opt/ml/config/resourceconfig.json")
"""The file in which SageMaker tells a processing container the hosts of its job."""


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def share(text: str) -> float:
    if not 0 <= (fraction := float(text)) <= 1:
        raise ValueError
    return fraction


def shard(text: str) -> "tuple[int, int]":
    """Reads 1/4 as (0, 4), and `hosts` as this host's place among those of the SageMaker job."""
    if text == "hosts":
        return shard_of_hosts(RESOURCES)
    index, count = map(int, text.split("/"))
    if not 1 <= index <= count:
        raise ValueError
    return index - 1, count


def shard_of_hosts(file: Path) -> "tuple[int, int]":
    if not os.access(file, os.R_OK):
        raise ValueError
    resources = json.loads(file.read_text("utf-8"))
    hosts = sorted(resources["hosts"])
    return hosts.index(resources["current_host"]), len(hosts)


def add_max_bad_share(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-bad-share", type=share, default=0.01, help="exit code 1 above this share of bad rows (default 0.01)"
    )


def exit_code(bad_share: float, max_bad_share: float) -> int:
    """Returns 0, or 1 and a line on standard error where too many rows are bad."""
    if bad_share <= max_bad_share:
        return 0
    told = f"{bad_share:.2%} of the rows are bad; --max-bad-share allows {max_bad_share:.2%}."
    print(told, file=sys.stderr, flush=True)
    return 1
