"""The cache of a target's compiled graphs, which its variants share: compiling is the long part of a build.

An engine of TensorRT is timed for a number of rows: its folder is TARGET.ROWSxMOST, for the variants of these batches.

TARGET/graphs/         the files
TARGET/compiled.json   the key of what they were compiled from and with; without it, or with another key, they are
                       compiled again
TARGET/.lock           held while the target is built or verified
TARGET/build.log       output of libraries during the last build or verification

The key is a hash of the inputs (`CompileInputs`), the versions of the tools, and the code of model_build and containers
without init, lint and remote.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from typing_extensions import Self

from model_build.compile_inputs import BackendName, CompileInputs
from workloads import CODE, Unavailable
from workloads.document import Document
from workloads.errors import InvalidDocument

NOT_COMPILING = ("init", "lint", "remote")
"""Folders of model_build that change no graph."""
EXPORTERS = ("numpy", "nvidia-modelopt", "onnx", "onnx-ir", "onnxruntime", "onnxscript", "safetensors", "torch")
TOOLS: Mapping[BackendName, tuple[str, ...]] = {
    "text2text": (*EXPORTERS, "transformers"),
    "encoder": (*EXPORTERS, "nncf", "openvino", "tokenizers"),
    "neuron": ("torch", "torch-neuron", "neuron-cc", "torch-neuronx", "neuronx-cc"),
}
"""Distributions whose versions change the compiled graphs. TensorRT reports its own version."""


def compile_key(inputs: CompileInputs) -> str:
    """Returns a hash of everything that the compiled graphs depend on."""
    tools = {tool: tool_version(tool) for tool in TOOLS[inputs.backend]}
    parts = [code_sha256(), tools, *inputs.facts()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@functools.cache
def code_sha256(root: Path = CODE) -> str:
    """Hashes the names and bytes of the code below `root` that may compile."""
    files = [file for package in ("containers", "model_build") for file in (root / package).rglob("*.py")]
    digest = hashlib.sha256()
    for file in sorted(file for file in files if file.parent.name not in NOT_COMPILING):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def tool_version(distribution: str) -> str | None:
    """Returns None for a distribution that is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


class Compiled(Document):
    """compiled.json: the key of a target's graphs in the cache, and the versions of the tools that compiled them."""

    key: str
    toolchain: dict[str, str]

    @classmethod
    def load(cls, folder: Path, key: str) -> Self | None:
        """Returns None if nothing was compiled, or with another key."""
        with contextlib.suppress(InvalidDocument):
            compiled = cls.from_json(folder / "compiled.json")
            return compiled if compiled.key == key else None
        return None

    @classmethod
    def keep(cls, folder: Path, key: str, graphs: Path, toolchain: dict[str, str]) -> Self:
        """Moves `graphs` into the cache, and replaces older ones."""
        (folder / "compiled.json").unlink(missing_ok=True)
        shutil.rmtree(folder / "graphs", ignore_errors=True)
        graphs.replace(folder / "graphs")
        compiled = cls(key=key, toolchain=toolchain)
        compiled.write_json(folder / "compiled.json")
        return compiled


@contextlib.contextmanager
def exclusive(folder: Path, workload: str, target: str) -> Iterator[None]:
    """Holds `folder`/.lock: one build or verification of a target at a time. A killed process leaves no lock behind.

    Raises `Unavailable` at once when another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / ".lock"
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(
                f"Another build or verification of {workload} for {target} is running (it holds {lock}). "
                "Wait for it to end, then try again."
            ) from None
        yield


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Yields an empty folder, which is deleted afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
