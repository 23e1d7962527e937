"""artifact.json and its archive: read back, and refused if they do not belong together."""

from pathlib import Path

import pytest

from model_build.parity import GateFailed, check_quality
from tests.builders import an_artifact
from workloads import ProjectError, artifact_file, file_sha256, load_artifact


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
    with pytest.raises(ProjectError) as caught:
        load_artifact(built, "spellcheck", "cpu")
    assert str(caught.value) == (
        f"{archive}: its sha256 is {file_sha256(archive)}, but artifact.json says {expected}. "
        "Build it again with `python -m model_build build spellcheck --target cpu`."
    )


def test_an_artifact_with_a_metric_of_an_older_name_loads(built: Path) -> None:
    """The release gate then refuses it: it asks for the metric of today's name."""
    file = artifact_file(built, "spellcheck", "cpu")
    file.write_text(file.read_text("utf-8").replace("unchanged_rate", "left_alone"), "utf-8")
    parity = load_artifact(built, "spellcheck", "cpu").parity
    assert parity is not None
    assert set(parity.original) == set(parity.compiled) == {"exact_match", "left_alone"}
    with pytest.raises(GateFailed, match=r"unchanged_rate was not measured: build again, or leave out quality\."):
        check_quality(parity, {"min_exact_match": 0.0, "min_unchanged_rate": 0.5}, ())


def test_a_missing_build_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as caught:
        load_artifact(tmp_path, "spellcheck", "cpu")
    assert str(caught.value) == (
        f"{tmp_path}/build/spellcheck/cpu/artifact.json does not exist: build it with "
        "`python -m model_build build spellcheck --target cpu`."
    )
