"""Reads the JSON files of a checkpoint, and makes the errors of its files. Each names the file and its problem."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from workloads import ProjectError, UsageError
from workloads.document import Document

Size = Annotated[int, Field(ge=1, le=2**24)]
Epsilon = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class ConfigKeys(Document):
    """The keys of a config.json that something is computed with. transformers checks the others."""

    model_config = ConfigDict(extra="ignore")


def known(kind: type[ConfigKeys], file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of `kind`, with their defaults. Raises `InvalidDocument` or `UsageError`."""
    try:
        return kind.from_table(file, {key: config[key] for key in kind.model_fields if key in config}).model_dump()
    except RecursionError:
        raise broken(file, "is nested too deeply.") from None


def broken(file: Path, problem: str) -> UsageError:
    """The error for a file that is missing, damaged or not of the kind a build can take."""
    return UsageError(f"{file}: {problem}")


def read_json(file: Path) -> dict[str, Any]:
    """Returns the object in a JSON file. Raises `UsageError`."""
    if file.exists() and not file.is_file():  # a FIFO would never end
        raise broken(file, "is not a regular file.")
    try:
        document = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise broken(file, "does not exist. Copy the whole checkpoint again.") from None
    except ValueError as error:
        raise broken(file, f"is not valid JSON: {error}.") from None
    except RecursionError:
        raise broken(file, "is not valid JSON: it is nested too deeply.") from None
    if not isinstance(document, dict):
        raise broken(file, "is not a JSON object.")
    return document


@contextlib.contextmanager
def loading(file: Path) -> Iterator[None]:
    """Raises `UsageError` for an error of a library that loads or runs `file`, or the checkpoint in a folder.

    Libraries report a damaged checkpoint by errors of every type; a panic of tokenizers is no `Exception`.
    """
    try:
        yield
    except (ProjectError, KeyboardInterrupt, SystemExit, MemoryError, ModuleNotFoundError):
        raise
    except BaseException as error:
        if isinstance(error, OSError) and error.errno:  # the machine's: a full disk, a file that may not be read
            raise
        problem = f"cannot be used ({type(error).__name__}: {first_line(error)}). Save or copy it again."
        raise broken(file, problem) from error


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
