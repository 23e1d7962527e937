"""The repository of a rehearsal: files, clones, pushes and merged proposals."""

import os
import subprocess
from pathlib import Path

import pytest

from scripts.rehearsal.release.sources import Repository
from workloads import Unavailable


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    origin = tmp_path / "origin"
    origin.mkdir()
    subprocess.run(["git", "init", "--quiet", origin], check=True)
    for name in ("kept.txt", "recommendation.json"):
        (origin / name).write_text("one\n")
    (origin / ".gitignore").write_text("left\n")
    (origin / "left").write_text("no part of it\n")
    made = Repository.make(origin, tmp_path / "made")
    made.commit("first")
    return made


def push(folder: Path, branch: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **variables}
    return subprocess.run(
        ["git", "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}"],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
    )


def test_a_commits_files_exclude_git_and_ignored_files(repository: Repository, tmp_path: Path) -> None:
    repository.files(repository.head(), tmp_path / "files")
    assert sorted(file.name for file in (tmp_path / "files").iterdir()) == [".gitignore", "kept.txt"]


def test_a_build_can_push_only_with_the_credential_helper(repository: Repository, tmp_path: Path) -> None:
    """Without `git-credential-helper: yes` Git has no credentials in a build."""
    clone = tmp_path / "build"
    repository.clone_to(clone, repository.head())
    refused = push(clone, "proposal")
    assert refused.returncode != 0
    assert "could not read Username" in refused.stderr
    assert push(clone, "proposal", REHEARSAL_GIT_CREDENTIALS="yes").returncode == 0
    assert repository.branches() == ["proposal"]
    repository.merge("proposal")
    assert repository.branches() == []


def test_a_change_without_effect_is_an_error(repository: Repository) -> None:
    with pytest.raises(Unavailable) as caught:
        repository.edit("kept.txt", lambda text: text.replace("two", "three"))
    assert str(caught.value) == "kept.txt: the text that the rehearsal replaces is not there."
