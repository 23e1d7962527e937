"""What the arguments of the batch's command lines look like. argparse tells of a ValueError which argument it was."""

import json
import os
from pathlib import Path

RESOURCES = Path("/opt/ml/config/resourceconfig.json")
"""What SageMaker says in a processing container of the hosts of its job."""


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def share(text: str) -> float:
    if not 0 <= (fraction := float(text)) <= 1:
        raise ValueError
    return fraction


def shard(text: str) -> "tuple[int, int]":
    """1/4 as (0, 4); `hosts` as this host's place among those of the SageMaker job."""
    if text == "hosts":
        return of_hosts(RESOURCES)
    index, count = map(int, text.split("/"))
    if not 1 <= index <= count:
        raise ValueError
    return index - 1, count


def of_hosts(file: Path) -> "tuple[int, int]":
    if not os.access(file, os.R_OK):
        raise ValueError
    resources = json.loads(file.read_text("utf-8"))
    hosts = sorted(resources["hosts"])
    return hosts.index(resources["current_host"]), len(hosts)
