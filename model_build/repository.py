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

from model_build.config_pbtxt import ModelConfig, render

VERSION = "1"


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonModel:
    """One folder of the repository: what goes into its version folder, and its warm-up data."""

    config: ModelConfig
    files: Mapping[str, Path | str] = field(default_factory=dict)  # by name: a file to copy, or a text
    warm_up: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.config.name


def files(models: Sequence[TritonModel]) -> list[str]:
    """Every file of the repository, sorted, relative to it."""
    return sorted(
        name
        for model in models
        for name in (
            f"{model.name}/config.pbtxt",
            *(f"{model.name}/{VERSION}/{file}" for file in model.files),
            *(f"{model.name}/warmup/{file}" for file in model.warm_up),
        )
    )


def version_folder(repository: Path, model: str) -> Path:
    return repository / model / VERSION


def lay_out(repository: Path, models: Sequence[TritonModel]) -> None:
    """Write the repository; `repository` must not exist."""
    for model in models:
        version = version_folder(repository, model.name)
        version.mkdir(parents=True)
        (repository / model.name / "config.pbtxt").write_text(render(model.config), "utf-8")
        for name, content in model.files.items():
            _write(version / name, content)
        for name, data in model.warm_up.items():
            file = repository / model.name / "warmup" / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data)


def serialise_texts(texts: Sequence[str]) -> bytes:
    """BYTES elements: for each its length as four little-endian bytes, then its bytes."""
    encoded = [text.encode() for text in texts]
    return b"".join(struct.pack("<I", len(data)) + data for data in encoded)


def serialise_numbers(numbers: NDArray[np.generic]) -> bytes:
    """Row-major and little-endian, as Triton reads a tensor from a file."""
    return np.ascontiguousarray(numbers).astype(numbers.dtype.newbyteorder("<")).tobytes()


def _write(file: Path, content: Path | str) -> None:
    if isinstance(content, str):
        file.write_text(content, "utf-8")
    else:
        shutil.copyfile(content, file)
