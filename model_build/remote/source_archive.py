"""Packs the source of a remote build as one reproducible archive: code, the workload and its local checkpoint.

Timing caches of earlier builds are included, so that TensorRT does not time the same kernels again. Hidden files and
compiled Python are left out.
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
    """Returns name in the archive → file. Raises `UsageError` for a local checkpoint outside workloads/."""
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
    """Yields folders of weights outside the workload's own folder."""
    for key in ("checkpoint", "backbone", "preprocess"):
        got = getattr(folder.workload.model, key, None)
        if not isinstance(got, str) or not got.startswith(("./", "../", "/")):
            continue
        path = (folder.path / got).resolve()
        if got.startswith("/") or not path.is_relative_to(folder.path.parent.resolve()):
            raise UsageError(
                f"{folder.file}: model.{key}: got '{got}', which is outside {folder.path.parent}. Only that folder is "
                "uploaded. Move the checkpoint there, or name an s3:// URI or a model id of the Hugging Face hub."
            )
        below = folder.path.parent / path.relative_to(folder.path.parent.resolve())
        yield below.parent if got.endswith(".pt") else below


def _below(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
            yield file


def _name(file: Path, folder: WorkloadFolder, root: Path) -> str:
    """Returns a name below workloads/, where the build looks, also for a workload elsewhere on this machine."""
    if file.is_relative_to(folder.path.parent):
        return f"workloads/{file.relative_to(folder.path.parent).as_posix()}"
    return file.relative_to(root).as_posix()
