"""model.tar.gz: the same files give the same bytes, and a failure leaves no file."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from model_build import archive
from tests.builders import message_of
from workloads import UsageError, file_sha256

TREE = {"model/config.pbtxt": b"name: 1", "model/1/model.py": b"pass" * 300, "model/1/\u00fcn\u00ef": bytes(2000)}


def write_tree(folder: Path, order: Iterable[str], mtime: int, mode: int) -> Path:
    for name in order:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(TREE[name])
        file.chmod(mode)
        os.utime(file, (mtime, mtime))
    return folder


def test_time_mode_and_order_of_writing_leave_no_trace_and_unpacking_gives_the_files_back(tmp_path: Path) -> None:
    archive.pack(write_tree(tmp_path / "a", sorted(TREE), 0, 0o644), tmp_path / "a.tar.gz")
    archive.pack(write_tree(tmp_path / "b", sorted(TREE, reverse=True), 2**31, 0o755), tmp_path / "elsewhere.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "elsewhere.tar.gz").read_bytes()
    archive.unpack(tmp_path / "a.tar.gz", tmp_path / "c")
    assert {name: (tmp_path / "c" / name).read_bytes() for name in TREE} == TREE


def test_a_damaged_archive_is_refused_in_a_sentence(tmp_path: Path) -> None:
    packed = tmp_path / "model.tar.gz"
    (tmp_path / "tree").mkdir()
    archive.pack(tmp_path / "tree", packed)
    assert message_of(UsageError, archive.unpack, packed, tmp_path / "folder", "0" * 64) == (
        f"{packed}: its sha256 is {file_sha256(packed)}, not {'0' * 64}: it is damaged, or another archive. Build it "
        "again."
    )
    packed.write_bytes(packed.read_bytes()[:-1])
    with pytest.raises(UsageError, match="its gzip stream ends early"):
        archive.unpack(packed, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_failure_midway_leaves_the_old_archive_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a").write_bytes(b"first")
    (tmp_path / "model.tar.gz").write_bytes(b"the old one")
    (folder / "b").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        archive.pack(folder, tmp_path / "model.tar.gz")
    assert (tmp_path / "model.tar.gz").read_bytes() == b"the old one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.tar.gz", "tree"]
