"""Files are whole or not there. artifact.json and its archive belong together."""

import errno
import os
import stat
from pathlib import Path

import pytest

from model_build.parity import GateFailed, check_quality
from tests.builders import an_artifact, known, message_of
from workloads import ProjectError, artifact_file, file_sha256, load_artifact
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


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """Returns a repository root with one finished build."""
    file = artifact_file(tmp_path, "spellcheck", "cpu")
    file.parent.mkdir(parents=True)
    archive = file.with_name("model.tar.gz")
    archive.write_bytes(b"an archive")
    an_artifact(archive_sha256=file_sha256(archive), archive_bytes=archive.stat().st_size).write_json(file)
    return tmp_path


def test_a_finished_build_is_read_back(built: Path) -> None:
    assert load_artifact(built, "spellcheck", "cpu").archive_bytes == len(b"an archive")


def test_a_tampered_archive_is_refused(built: Path) -> None:
    archive = artifact_file(built, "spellcheck", "cpu").with_name("model.tar.gz")
    expected = file_sha256(archive)
    archive.write_bytes(b"another archive")
    assert message_of(ProjectError, load_artifact, built, "spellcheck", "cpu") == (
        f"{archive}: its sha256 is {file_sha256(archive)}, but artifact.json says {expected}. "
        "Build it again with `python -m model_build build spellcheck --target cpu`."
    )


def test_an_artifact_with_a_metric_of_an_older_name_loads(built: Path) -> None:
    """The release gate then refuses it: it asks for the metric of today's name."""
    file = artifact_file(built, "spellcheck", "cpu")
    file.write_text(file.read_text("utf-8").replace("unchanged_rate", "left_alone"), "utf-8")
    parity = known(load_artifact(built, "spellcheck", "cpu").parity)
    assert set(parity.original) == set(parity.compiled) == {"exact_match", "left_alone"}
    with pytest.raises(GateFailed, match=r"unchanged_rate was not measured: build again, or leave out quality\."):
        check_quality(parity, {"min_exact_match": 0.0, "min_unchanged_rate": 0.5}, ())


def test_a_missing_build_names_the_command(tmp_path: Path) -> None:
    assert message_of(ProjectError, load_artifact, tmp_path, "spellcheck", "cpu") == (
        f"{tmp_path}/build/spellcheck/cpu/artifact.json does not exist: build it with "
        "`python -m model_build build spellcheck --target cpu`."
    )
