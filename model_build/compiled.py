"""A target's compiled graphs, kept for all its variants: the compile is the long part of a build.

TARGET/graphs/         the files
TARGET/compiled.json   what they were compiled from and with; without it, or with another key, they do not count
"""

import functools
import hashlib
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from typing_extensions import Self

from workloads import ParityReport
from workloads.document import Document

COMPILERS = ("onnx", "onnxruntime", "torch", "torch-neuron", "torch-neuronx", "transformers")


@functools.cache
def toolchain_key() -> str:
    """What compiles: this package's code and the packages it calls, as one hash."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for file in sorted(here.rglob("*.py")):
        digest.update(file.relative_to(here).as_posix().encode() + b"\0" + file.read_bytes())
    for package in COMPILERS:
        digest.update(f"{package} {_version(package)}\0".encode())
    return digest.hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class Record(Document):
    """compiled.json. `parity` where the graphs were compared on the machine that compiled them."""

    key: str
    toolchain: dict[str, str]
    parity: ParityReport | None = None


class Compiled:
    def __init__(self, folder: Path, record: Record) -> None:
        self.graphs = folder / "graphs"
        self.toolchain, self.parity = record.toolchain, record.parity

    @classmethod
    def load(cls, folder: Path, key: str) -> Self | None:
        """None when nothing was compiled, or from something else."""
        file = folder / "compiled.json"
        if not file.exists() or (record := Record.from_json(file)).key != key:
            return None
        return cls(folder, record)

    @classmethod
    def keep(cls, folder: Path, key: str, graphs: Path, toolchain: dict[str, str]) -> Self:
        """Move `graphs` into the cache, over what was there."""
        (folder / "compiled.json").unlink(missing_ok=True)
        shutil.rmtree(folder / "graphs", ignore_errors=True)
        graphs.replace(folder / "graphs")
        record = Record(key=key, toolchain=toolchain)
        record.write_json(folder / "compiled.json")
        return cls(folder, record)
