"""Unpacks a built model if it is a .tar.gz on disk or in S3, and hashes it. ECS tasks run it before their server:

  python -m containers.batch.archive ARCHIVE FOLDER

Exit codes: 0 done; 2 usage; 3 the archive, S3 or the disk fails; 70 internal error, a log is named.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

from .. import archive_reader
from ..container_errors import Unavailable, exit_code_of, parser_of
from .storage import open_bucket


def not_a_model(location: str, reason: str) -> Unavailable:
    return Unavailable(
        f"--model {location}: {reason.removesuffix('.')}. Give a built model: a folder with settings.json, "
        "tokenizer.json and the compiled model, or a Triton repository, or its .tar.gz."
    )


def as_folder(location: str, scratch: Path) -> "tuple[Path, str | None]":
    """Returns the model's folder and the archive's sha256, None for a folder. Raises `Unavailable`."""
    if not location.endswith(".tar.gz"):
        return Path(location), None
    folder, copy = scratch / "model", scratch / "model.tar.gz"
    unpack(location, folder, copy)
    return folder, _file_sha256(copy if location.startswith("s3://") else Path(location))


def unpack(location: str, folder: Path, copy: Path) -> None:
    """Unpacks into `folder`, which must be missing or empty. Downloads an archive in S3 to `copy` first."""
    file = Path(location)
    if location.startswith("s3://"):
        bucket = open_bucket(location)
        keys = list(bucket.objects().values())
        if len(keys) != 1 or not location.endswith(keys[0]):
            raise not_a_model(location, "there is no such object")
        bucket.fetch(keys[0], file := copy)
    try:
        with file.open("rb") as stream:
            archive_reader.unpack(stream, folder, _known_sha256(location))
    except (archive_reader.ArchiveRefused, OSError) as error:
        raise not_a_model(location, f"cannot be unpacked ({error})") from None


def _known_sha256(location: str) -> "str | None":
    """Returns the sha256 in the archive's name, which CDK gives it in S3, or in its artifact.json on disk."""
    if (named := archive_reader.named_sha256(location)) or location.startswith("s3://"):
        return named
    file = Path(location)
    beside = file.with_name("artifact.json")
    if not beside.is_file():
        return None
    try:
        artifact = json.loads(beside.read_text("utf-8"))
        return str(artifact["archive_sha256"]) if artifact["archive"] == file.name else None
    except (ValueError, KeyError, TypeError):
        raise not_a_model(location, "its artifact.json is invalid. Build it again") from None


def model_sha256(folder: Path) -> str:
    """Hashes all files of the model's folder with their names, except Python's bytecode."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
    if not files:
        raise not_a_model(str(folder), "the folder is missing or empty")
    lines = [f"{_file_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _file_sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def main() -> int:
    parser = parser_of(f"{__package__}.archive", __doc__)
    parser.add_argument("archive", help=".tar.gz on disk, or s3://")
    parser.add_argument("folder", type=Path, help="where to unpack it: missing, or empty")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        unpack(parsed.archive, parsed.folder, Path(scratch) / "model.tar.gz")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
