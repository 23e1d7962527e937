"""model.tar.gz: the same files give the same bytes, and a failure leaves no file."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_build import archive
from workloads import UsageError, file_sha256

names = st.text("abcXYZ019._-", min_size=1, max_size=12).filter(lambda name: name.strip("."))
trees = st.dictionaries(st.lists(names, min_size=1, max_size=3).map("/".join), st.binary(max_size=2000), max_size=6)


def write_tree(folder: Path, tree: dict[str, bytes], order: list[str], mtime: int, mode: int) -> dict[str, bytes]:
    """Write what fits (a file may stand where a folder should); returns the written files."""
    folder.mkdir()
    for name in order:
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(tree[name])
        except OSError:
            continue
        file.chmod(mode)
        os.utime(file, (mtime, mtime))
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@given(trees, st.integers(0, 2**31), st.sampled_from([0o600, 0o644, 0o755]))
def test_time_mode_and_order_of_writing_leave_no_trace(tree: dict[str, bytes], mtime: int, mode: int) -> None:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        written = write_tree(folder / "a", tree, sorted(tree), 0, 0o644)
        write_tree(folder / "b", written, sorted(written, reverse=True), mtime, mode)
        # Only `a` has the folders of names that did not fit.
        for path in (folder / "a").rglob("*"):
            if path.is_dir():
                (folder / "b" / path.relative_to(folder / "a")).mkdir(parents=True, exist_ok=True)
        archive.pack(folder / "a", folder / "a.tar.gz")
        archive.pack(folder / "b", folder / "elsewhere.tar.gz")
        assert (folder / "a.tar.gz").read_bytes() == (folder / "elsewhere.tar.gz").read_bytes()


@given(trees)
def test_unpacking_gives_the_files_back(tree: dict[str, bytes]) -> None:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        written = write_tree(folder / "a", tree, sorted(tree), 0, 0o644)
        archive.pack(folder / "a", folder / "a.tar.gz")
        archive.unpack(folder / "a.tar.gz", folder / "b")
        assert contents(folder / "b") == written


def test_a_damaged_archive_is_refused_in_a_sentence(tmp_path: Path) -> None:
    packed = tmp_path / "model.tar.gz"
    (tmp_path / "tree").mkdir()
    archive.pack(tmp_path / "tree", packed)
    with pytest.raises(UsageError) as refused:
        archive.unpack(packed, tmp_path / "folder", "0" * 64)
    assert str(refused.value) == (
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
