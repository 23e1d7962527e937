"""The archive that gets out of Python's own filter, given to every reader that the project has."""

from pathlib import Path

from scripts.security.replay_archives import taken


def test_no_reader_takes_an_archive_that_leaves_its_folder(tmp_path: Path) -> None:
    assert taken(tmp_path) == []
