"""The source that travels to the machine that builds, as one reproducible archive: the code a build runs, the workload
and its local checkpoint.

In: a workload's folder and the repository's root. Out: `source.tar.gz`, the same bytes for the same files. Timing
caches of earlier builds travel along, so that TensorRT need not time the same kernels again. It does not read git:
what lies in these folders goes, save hidden files and compiled Python.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from model_build import archive
from workloads import UsageError, WorkloadFolder

CODE = ("aws_api", "containers", "model_build")
FILES = (
    "pyproject.toml",
    "requirements/build.txt",
    "requirements/torch-cpu.txt",
    "requirements/uv.txt",
)
TIMING_CACHES = Path("build/timing_caches")


def source_files(folder: WorkloadFolder, root: Path) -> dict[str, Path]:
    """Returns name in the archive → file. Raises `UsageError` for a local checkpoint that would stay behind."""
    folders = [folder.path, *(root / name for name in CODE), *_checkpoints(folder), root / TIMING_CACHES]
    loose = [*(root / name for name in FILES), *(root / "workloads").glob("*.py"), *(root / "workloads").glob("*.json")]
    files = [*loose, *(file for each in folders for file in _below(each))]
    return {_name(file, folder, root): file for file in sorted(files)}


def pack_source(folder: WorkloadFolder, root: Path, packed: Path) -> None:
    """Writes the archive to `packed`. Raises what `source_files` raises."""
    with tempfile.TemporaryDirectory(dir=packed.parent) as scratch:
        for name, file in source_files(folder, root).items():
            link = Path(scratch) / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.resolve())  # weights may be gigabytes: nothing is copied
        archive.pack(Path(scratch), packed)


def _checkpoints(folder: WorkloadFolder) -> Iterator[Path]:
    """Yields folders of weights beside the workload's own."""
    for key in ("checkpoint", "backbone", "preprocess"):
        got = getattr(folder.workload.model, key, None)
        if not isinstance(got, str) or not got.startswith(("./", "../", "/")):
            continue
        path = (folder.path / got).resolve()
        if got.startswith("/") or not path.is_relative_to(folder.path.parent.resolve()):
            raise UsageError(
                f"{folder.file}: model.{key}: got '{got}', which is outside {folder.path.parent}: only that folder "
                "travels to the machine that builds. Move it there, or name an s3:// URI or a model id of the Hugging "
                "Face hub."
            )
        below = folder.path.parent / path.relative_to(folder.path.parent.resolve())
        yield below.parent if got.endswith(".pt") else below


def _below(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
            yield file


def _name(file: Path, folder: WorkloadFolder, root: Path) -> str:
    """Returns a name below workloads/ for a workload that lies elsewhere here: that is where the build looks."""
    if file.is_relative_to(folder.path.parent):
        return f"workloads/{file.relative_to(folder.path.parent).as_posix()}"
    return file.relative_to(root).as_posix()
