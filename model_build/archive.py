"""Packs a folder into a reproducible .tar.gz: the same files give the same bytes, on any day, machine and account.

The order, the times, the owner, the modes and gzip's own header are fixed. The archive is written under a scratch name
and renamed, so it is whole or not there.
"""

import gzip
import shutil
import tarfile
from pathlib import Path

from containers import archive_reader
from workloads import ModelArtifact, UsageError


def pack(folder: Path, archive: Path) -> None:
    """Packs everything below `folder`, named relative to it."""
    scratch = archive.with_name(f".{archive.name}.part")
    try:
        with (
            scratch.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as stream,
            tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
                _add(tar, path, path.relative_to(folder).as_posix())
        scratch.replace(archive)
    finally:
        scratch.unlink(missing_ok=True)


def unpack(archive: Path, folder: Path, sha256: str | None = None) -> None:
    """Unpacks into `folder`, which is not there or empty, whole or not at all.

    Raises `UsageError` for an archive that is damaged, not to be trusted, or has another sha256 than the one given.
    """
    try:
        with archive.open("rb") as stream:
            archive_reader.unpack(stream, folder, sha256)
    except archive_reader.ArchiveRefused as refused:
        raise UsageError(f"{archive}: {refused}. Build it again.") from None


def publish(artifact: ModelArtifact, packed: Path, repository: Path, place: Path) -> None:
    """Moves a build beside `place`, its artifact.json: the old one is deleted first and the new one written last."""
    place.unlink(missing_ok=True)
    shutil.rmtree(place.with_name("repository"), ignore_errors=True)
    repository.replace(place.with_name("repository"))
    packed.replace(place.with_name(artifact.archive))
    artifact.write_json(place)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    if path.is_dir():
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(member)
        return
    member.mode, member.size = 0o644, path.stat().st_size
    with path.open("rb") as stream:
        tar.addfile(member, stream)
