"""Reads the keys of a config.json that something is computed with, and holds them to their types.

Keys that are not read are transformers' own: it refuses a wrong one when it loads the original.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from model_build.checkpoint.files import broken
from workloads.document import Document

Size = Annotated[int, Field(ge=1, le=2**24)]
Epsilon = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class ConfigKeys(Document):
    """Those keys of a config.json that are read; there are many others."""

    model_config = ConfigDict(extra="ignore")


def known(kind: type[ConfigKeys], file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of `kind`, with their defaults. Raises `InvalidDocument` or `UsageError`."""
    try:
        return kind.from_table(file, {key: config[key] for key in kind.model_fields if key in config}).model_dump()
    except RecursionError:
        raise broken(file, "is nested too deeply.") from None
