"""Files are whole or not there."""

import errno
import os
import stat
from pathlib import Path

import pytest

from workloads.files import PRIVATE, replace_text, replacing


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "new" / "result.json"
    with replacing(file) as stream:
        stream.write(b"half")
        assert not file.exists()
        stream.write(b" and half")
    assert file.read_bytes() == b"half and half"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_a_file_that_cannot_be_finished_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    file = tmp_path / "result.json"
    replace_text(file, "before")

    def write_half() -> None:
        with replacing(file) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(type(error)) as raised:
        write_half()
    assert [(each, each.read_text()) for each in tmp_path.iterdir()] == [(file, "before")]
    assert not isinstance(error, OSError) or raised.value.filename == str(file)  # type: ignore[attr-defined]


def test_a_disk_that_is_full_at_the_last_moment_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*result\.json'"):
        replace_text(tmp_path / "result.json", "after")
    assert list(tmp_path.iterdir()) == []


def test_a_private_file_is_its_owner_s_alone_whatever_was_there(tmp_path: Path) -> None:
    file = tmp_path / "payloads.tar.gz"
    file.write_bytes(b"open to all")
    file.with_name(".payloads.tar.gz.part").write_bytes(b"left behind")
    replace_text(file, "private", PRIVATE)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
