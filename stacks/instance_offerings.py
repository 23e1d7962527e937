"""In which regions and zones there are the accelerators that this project compiles for.

A copy of what EC2 says of itself (instance_offerings.json names its source): nothing is asked at synth. A family that
EC2 does not offer in a region, SageMaker cannot offer there either; that EC2 offers it does not promise that SageMaker
does, nor that each of its sizes is there, nor that there is capacity. Other families and newer regions are not known.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("instance_offerings.json")


def zones(family: str) -> Mapping[str, tuple[str, ...]] | None:
    """Region → ids of the zones that have the family; None for a family that is not in the table."""
    listed = _table()["families"].get(family)
    return None if listed is None else {region: tuple(ids) for region, ids in listed.items()}


def regions() -> tuple[str, ...]:
    """The regions of which something is known."""
    return tuple(_table()["regions"])


@cache
def _table() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text("utf-8")))
