"""Brings a built model to a place where this program can read it, and hashes it.

A folder is read where it is; a .tar.gz, on disk or in S3, is unpacked first. An ECS task does that before its server
starts:

  python -m containers.batch.archive ARCHIVE FOLDER
"""

import hashlib
import sys
import tarfile
import tempfile
from pathlib import Path

from ..errors import ContainerError, Unavailable
from .storage import open_bucket

ENDING = ".tar.gz"


def not_a_model(location: str, reason: str) -> Unavailable:
    return Unavailable(
        f"--model {location}: {reason.removesuffix('.')}. It must be a built model's folder, with settings.json, "
        "tokenizer.json and the compiled model, or a Triton repository of them."
    )


def as_folder(location: str, scratch: Path) -> Path:
    """Raises `Unavailable` for an archive that is not there, cannot be unpacked or that S3 refuses."""
    if not location.endswith(ENDING):
        return Path(location)
    folder = scratch / "model"
    unpack(location, folder, scratch / "model.tar.gz")
    return folder


def unpack(location: str, folder: Path, copy: Path) -> None:
    """Unpacks into `folder`; an archive in S3 is downloaded to `copy` first. tarfile refuses members that would leave
    the folder.
    """
    file = _fetched(location, copy) if location.startswith("s3://") else Path(location)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(file, "r:gz") as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise not_a_model(location, f"cannot be unpacked ({type(error).__name__}: {error})") from None


def model_sha256(folder: Path) -> str:
    """Hashes all files of the model's folder with their names, but for the bytecode that Python leaves there."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
    if not files:
        raise not_a_model(str(folder), "there is no such folder, or nothing in it")
    lines = [f"{_file_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _file_sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _fetched(location: str, copy: Path) -> Path:
    bucket = open_bucket(location)
    keys = list(bucket.objects().values())
    if len(keys) != 1 or not location.endswith(keys[0]):
        raise not_a_model(location, "there is no such object")
    bucket.fetch(keys[0], copy)
    return copy


def main() -> int:
    location, folder = sys.argv[1:]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            unpack(location, Path(folder), Path(scratch) / "model.tar.gz")
    except ContainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
