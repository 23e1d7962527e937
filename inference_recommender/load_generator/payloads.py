"""Request bodies from a folder or a tar.gz of files, in the order of their names."""

import tarfile
from pathlib import Path

from inference_recommender.load_generator.errors import UnreadablePayloads


def read_payloads(source: Path) -> list[bytes]:
    """Every regular file's content, by name. Raises `UnreadablePayloads`."""
    try:
        bodies = _from_folder(source) if source.is_dir() else _from_archive(source)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise UnreadablePayloads(source, f"cannot be read: {error}") from error
    if not bodies:
        raise UnreadablePayloads(source, "holds no file")
    return bodies


def _from_folder(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()]


def _from_archive(archive: Path) -> list[bytes]:
    with tarfile.open(archive, "r:gz") as stream:
        members = sorted((member for member in stream if member.isfile()), key=lambda member: member.name)
        return [file.read() for member in members if (file := stream.extractfile(member))]
