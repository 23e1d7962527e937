"""The Git repository of a rehearsal: a bare repository in place of the host's, and a person's clone.

The bare repository accepts a push from a build only if its project has Git's credential helper.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads import Unavailable

PRE_RECEIVE = """#!/bin/sh
[ -z "$REHEARSAL_PERSON" ] || exit 0
[ -n "$REHEARSAL_GIT_CREDENTIALS" ] || { echo "fatal: could not read Username: terminal prompts disabled"; exit 1; }
"""


@dataclass(frozen=True, slots=True)
class Repository:
    remote: Path
    clone: Path

    @classmethod
    def make(cls, origin: Path, folder: Path) -> "Repository":
        """Makes both from the files that Git tracks or would add in `origin`, without recommendations."""
        made = cls(folder / "remote.git", folder / "clone")
        folder.mkdir(parents=True)
        subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", made.remote], check=True)
        hook = made.remote / "hooks" / "pre-receive"
        hook.write_text(PRE_RECEIVE)
        hook.chmod(0o755)
        made.clone.mkdir()
        for name in _known_files(origin):
            (made.clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin / name, made.clone / name)
        made.git("init", "--quiet", "--initial-branch=main")
        made.git("remote", "add", "origin", str(made.remote))
        return made

    def commit(self, message: str) -> str:
        """Commits and pushes all changes of the clone; returns the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        self.git("push", "--quiet", "origin", "HEAD:main")
        return self.git("rev-parse", "HEAD").strip()

    def branches(self) -> list[str]:
        """Returns the remote's branches other than main."""
        names = self.git("ls-remote", "--heads", "origin").splitlines()
        return sorted(name.partition("refs/heads/")[2] for name in names if not name.endswith("refs/heads/main"))

    def merge(self, branch: str) -> None:
        self.git("fetch", "--quiet", "origin")
        self.git("merge", "--quiet", "--no-edit", "--no-ff", f"origin/{branch}")
        self.git("push", "--quiet", "origin", "HEAD:main", f":{branch}")

    def edit(self, name: str, change: Callable[[str], str]) -> None:
        """Changes a file of the clone. Raises `Unavailable` if the change has no effect."""
        file = self.clone / name
        before = file.read_text("utf-8") if file.exists() else ""
        after = change(before)
        if after == before:
            raise Unavailable(f"{name}: the text that the rehearsal replaces is not there.")
        file.write_text(after, "utf-8")

    def edit_json(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        def changed(text: str) -> str:
            document = json.loads(text)
            change(document)
            return json.dumps(document, indent=2) + "\n"

        self.edit(name, changed)

    def files(self, commit: str, folder: Path) -> None:
        """Writes a commit's files to the new `folder`, without .git."""
        self.clone_to(folder, commit)
        shutil.rmtree(folder / ".git")

    def clone_to(self, folder: Path, commit: str) -> None:
        """Makes a build's clone, as CodeBuild does for CODEBUILD_CLONE_REF."""
        git(self.remote, "clone", "--quiet", str(self.remote), str(folder))
        git(folder, "checkout", "--quiet", "--detach", commit)

    def git(self, *arguments: str) -> str:
        """Runs Git in the clone as a person, who may push."""
        identity = ("-c", "user.name=A person", "-c", "user.email=person@localhost")
        return git(self.clone, *identity, *arguments, REHEARSAL_PERSON="yes")


def git(folder: Path, *arguments: str, **variables: str) -> str:
    """Runs Git without the machine's settings, which may sign commits. Raises `Unavailable`."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **variables}
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


def _known_files(origin: Path) -> list[str]:
    """Raises `Unavailable` if `origin` is no Git checkout."""
    if not (origin / ".git").exists():
        raise Unavailable(f"{origin} is not a Git checkout. A release needs a commit: clone the repository.")
    names = git(origin, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return [name for name in names if (origin / name).is_file() and not name.endswith("recommendation.json")]
