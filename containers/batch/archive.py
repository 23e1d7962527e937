"""A built model where this program can read it: a folder as it is; a .tar.gz, on disk or in S3, unpacked first.

python -m containers.batch.archive ARCHIVE FOLDER      what an ECS task does before its server starts
"""

import sys
import tarfile
import tempfile
from pathlib import Path

from .errors import BatchError, ModelMissing
from .storage import open_bucket

ENDING = ".tar.gz"


def as_folder(location: str, scratch: Path) -> Path:
    """Raises `ModelMissing`, or what S3 refuses."""
    if not location.endswith(ENDING):
        return Path(location)
    folder = scratch / "model"
    unpack(location, folder, scratch / "model.tar.gz")
    return folder


def unpack(location: str, folder: Path, copy: Path) -> None:
    """Members that would leave `folder` are refused by tarfile. `copy` is where an archive of S3 is put meanwhile."""
    file = _fetched(location, copy) if location.startswith("s3://") else Path(location)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(file, "r:gz") as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ModelMissing(location, f"cannot be unpacked ({type(error).__name__}: {error})") from None


def _fetched(location: str, copy: Path) -> Path:
    bucket = open_bucket(location)
    keys = list(bucket.objects().values())
    if len(keys) != 1 or not location.endswith(keys[0]):
        raise ModelMissing(location, "there is no such object")
    bucket.fetch(keys[0], copy)
    return copy


def main() -> int:
    location, folder = sys.argv[1:]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            unpack(location, Path(folder), Path(scratch) / "model.tar.gz")
    except BatchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
