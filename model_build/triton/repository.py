"""The layout of a Triton model repository on disk. Knows nothing of how the models were made.

<model>/config.pbtxt
<model>/warmup/<file>    a real request's tensor, as Triton reads it
<model>/1/…              the serving code, the graphs, the tokenizer; empty for an ensemble
"""

import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_build.triton.config_pbtxt import ModelConfig, render

VERSION = "1"
Content = Path | str | bytes | None
"""A file or folder to copy, a text, bytes, or an empty folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonModel:
    """One folder of the repository: what goes into its version folder, and its warm-up data."""

    config: ModelConfig
    files: Mapping[str, Path | str] = field(default_factory=dict)  # by name: a file to copy, or a text
    warm_up: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.config.name


def contents(models: Sequence[TritonModel]) -> dict[str, Content]:
    """Returns every file of the repository by its name in it; None is an empty folder, as an ensemble's version is."""
    made: dict[str, Content] = {}
    for model in models:
        made[f"{model.name}/config.pbtxt"] = render(model.config)
        made |= {f"{model.name}/{VERSION}/{name}": content for name, content in model.files.items()}
        made |= {f"{model.name}/warmup/{name}": data for name, data in model.warm_up.items()}
        if not model.files:
            made[f"{model.name}/{VERSION}"] = None
    return made


def version_folder(repository: Path, model: str) -> Path:
    return repository / model / VERSION


def lay_out(folder: Path, contents: Mapping[str, Content]) -> None:
    """Writes the contents into `folder`, which must not exist."""
    for name, content in contents.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        match content:
            case None:
                file.mkdir()
            case bytes():
                file.write_bytes(content)
            case str():
                file.write_text(content, "utf-8")
            case _ if content.is_dir():
                shutil.copytree(content, file)
            case _:
                shutil.copyfile(content, file)


def serialise_texts(texts: Sequence[str]) -> bytes:
    """Returns BYTES elements: for each its length as four little-endian bytes, then its bytes."""
    encoded = [text.encode() for text in texts]
    return b"".join(struct.pack("<I", len(data)) + data for data in encoded)


def serialise_numbers(numbers: NDArray[np.generic]) -> bytes:
    """Returns the numbers row-major and little-endian, as Triton reads a tensor from a file."""
    return np.ascontiguousarray(numbers).astype(numbers.dtype.newbyteorder("<")).tobytes()
