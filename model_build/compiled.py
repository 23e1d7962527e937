"""The cache of a target's compiled graphs, which its variants share: compiling is the long part of a build.

An engine of TensorRT is timed for a number of rows: its folder is TARGET.ROWSxMOST, for the variants of these batches.

TARGET/graphs/         the files
TARGET/compiled.json   the key of what they were compiled from and with; without it, or with another key, they are
                       compiled again
TARGET/.lock           held while the target is built or verified
TARGET/build.log       output of libraries during the last build or verification

The key is a hash of three things: the inputs (`CompileInputs`), the versions of the tools, and the code that compiles,
which is every module of `model_build` and `containers` that the backend's compiling module imports, directly or not.
A change elsewhere, such as in lint or the command line, compiles nothing again.
"""

import ast
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
from workloads import ROOT, Unavailable
from workloads.document import Document
from workloads.errors import InvalidDocument

COMPILING_MODULES: Mapping[BackendName, str] = {
    "text2text": "model_build.text2text.compile",
    "encoder": "model_build.encoder.compile",
    "neuron": "model_build.neuron.backend",
}
OWN_PACKAGES = ("model_build", "containers")
"""Packages whose code is hashed. The contract in `workloads` enters the key by its values."""
EXPORTERS = ("numpy", "onnx", "onnx-ir", "onnxruntime", "onnxscript", "safetensors", "torch")
TOOLS: Mapping[BackendName, tuple[str, ...]] = {
    "text2text": (*EXPORTERS, "transformers"),
    "encoder": (*EXPORTERS, "tokenizers"),
    "neuron": ("torch", "torch-neuron", "neuron-cc", "torch-neuronx", "neuronx-cc"),
}
"""Distributions whose versions change the compiled graphs. TensorRT reports its own version."""


def compile_key(inputs: CompileInputs) -> str:
    """Returns a hash of everything that the compiled graphs depend on."""
    tools = {tool: _version(tool) for tool in TOOLS[inputs.backend]}
    parts = [code_sha256(inputs.backend), tools, *inputs.facts()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@functools.cache
def code_sha256(backend: BackendName, root: Path = ROOT) -> str:
    """Hashes the names and bytes of the files below `root` that the backend compiles with."""
    digest = hashlib.sha256()
    for file in sorted(imported_files(COMPILING_MODULES[backend], root)):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def imported_files(module: str, root: Path = ROOT) -> set[Path]:
    """Returns the files of a module and of all own modules that it imports, also lazily, without importing them."""
    files: set[Path] = set()
    waiting = [module]
    while waiting:
        for file in _files(waiting.pop(), root) - files:
            files.add(file)
            waiting += _imported_names(file.read_text("utf-8"), _package(file, root))
    return files


@functools.cache
def _imported_names(text: str, package: tuple[str, ...]) -> tuple[str, ...]:
    """Returns what a file's text imports; the backends share most of their files."""
    return tuple(_imports(ast.parse(text), package))


def _files(module: str, root: Path) -> set[Path]:
    """Returns the files that importing a dotted name runs: its packages' and its own."""
    parts = module.split(".")
    if parts[0] not in OWN_PACKAGES:
        return set()
    paths = [root.joinpath(*parts[: depth + 1]) for depth in range(len(parts))]
    files = [file for path in paths for file in (path / "__init__.py", path.with_suffix(".py"))]
    return {file for file in files if file.exists()}


def _package(file: Path, root: Path) -> tuple[str, ...]:
    return file.relative_to(root).parent.parts


def _imports(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """The dotted names of all imports, without those that only the type checker needs."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            base = [*package[: len(package) - level + 1]] if level else []
            source = ".".join([*base, *([module] if module else [])])
            yield from (f"{source}.{alias.name}" for alias in names)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, package)


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


class Record(Document):
    """compiled.json."""

    key: str
    toolchain: dict[str, str]


class Compiled:
    """A target's graphs in the cache. `toolchain` has the versions of the tools that compiled them."""

    def __init__(self, folder: Path, toolchain: dict[str, str]) -> None:
        self.graphs = folder / "graphs"
        self.toolchain = toolchain

    @classmethod
    def load(cls, folder: Path, key: str) -> Self | None:
        """Returns None if nothing was compiled, or with another key."""
        try:
            record = Record.from_json(folder / "compiled.json")
        except InvalidDocument:
            return None
        return cls(folder, record.toolchain) if record.key == key else None

    @classmethod
    def keep(cls, folder: Path, key: str, graphs: Path, toolchain: dict[str, str]) -> Self:
        """Moves `graphs` into the cache, and replaces older ones."""
        (folder / "compiled.json").unlink(missing_ok=True)
        shutil.rmtree(folder / "graphs", ignore_errors=True)
        graphs.replace(folder / "graphs")
        Record(key=key, toolchain=toolchain).write_json(folder / "compiled.json")
        return cls(folder, toolchain)


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
