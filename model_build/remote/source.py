"""What travels to the machine that builds, as one reproducible archive: the code a build runs, the workload and its
local checkpoint.

In: a workload's folder and the repository's root. Out: `source.tar.gz`, the same bytes for the same files. Timing
caches of earlier builds travel along, so that TensorRT need not time the same kernels again. It does not read git:
what lies in these folders goes, save hidden files and compiled Python.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from model_build import archive
from model_build.remote.errors import CheckpointLeftBehind
from workloads import WorkloadFolder

CODE = ("aws_api", "containers", "model_build")
FILES = ("constraints.txt", "pyproject.toml")
TIMING_CACHES = Path("build/timing_caches")


def source_files(folder: WorkloadFolder, root: Path) -> dict[str, Path]:
    """Name in the archive → file. Raises `CheckpointLeftBehind`."""
    folders = [folder.path, *(root / name for name in CODE), *_checkpoints(folder), root / TIMING_CACHES]
    loose = [*(root / name for name in FILES), *(root / "workloads").glob("*.py"), *(root / "workloads").glob("*.json")]
    files = [*loose, *(file for each in folders for file in _below(each))]
    return {_name(file, folder, root): file for file in sorted(files)}


def pack_source(folder: WorkloadFolder, root: Path, packed: Path) -> None:
    """Raises `CheckpointLeftBehind`."""
    with tempfile.TemporaryDirectory(dir=packed.parent) as scratch:
        for name, file in source_files(folder, root).items():
            link = Path(scratch) / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.resolve())  # weights may be gigabytes: nothing is copied
        archive.pack(Path(scratch), packed)


def _checkpoints(folder: WorkloadFolder) -> Iterator[Path]:
    """Folders of weights beside the workload's own."""
    for key in ("checkpoint", "backbone"):
        got = getattr(folder.workload.model, key, None)
        if not isinstance(got, str) or not got.startswith(("./", "../", "/")):
            continue
        path = (folder.path / got).resolve()
        if got.startswith("/") or not path.is_relative_to(folder.path.parent.resolve()):
            raise CheckpointLeftBehind(folder.file, key, got, folder.path.parent)
        yield folder.path.parent / path.relative_to(folder.path.parent.resolve())


def _below(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
            yield file


def _name(file: Path, folder: WorkloadFolder, root: Path) -> str:
    """Workloads may lie elsewhere than below the root; there they are looked for below it."""
    if file.is_relative_to(folder.path.parent):
        return f"workloads/{file.relative_to(folder.path.parent).as_posix()}"
    return file.relative_to(root).as_posix()
