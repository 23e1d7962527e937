"""The Makefile calls this around everything else: the check of the machine, installations, tests beside lint."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from workloads import ROOT


def run(*command: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def stand_in(folder: Path, name: str, script: str) -> None:
    file = folder / "bin" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/bash\n{script}\n")
    file.chmod(0o755)


def check(folder: Path, python: str, triton: str = sys.executable) -> "subprocess.CompletedProcess[str]":
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return run("bash", str(ROOT / "scripts" / "check_machine.sh"), python, triton, folder=folder, PATH=path)


CHECKS = {
    "uname": (
        'case "$1" in -s) echo Darwin;; -m) echo arm64;; esac',
        sys.executable,
        sys.executable,
        "This needs Linux on x86-64, for the Triton server's wheel has no other build, and this is Darwin arm64: try "
        '`docker run --rm -it --platform linux/amd64 -v "$PWD":/repo -w /repo python:3.13 make run`.\n',
    ),
    "no python": (
        None,
        "",
        sys.executable,
        "There is no Python 3.11, 3.12 or 3.13 on this machine's PATH: install one, on Debian and Ubuntu with "
        "`sudo apt install python3 python3-venv`, or name one with `make run PYTHON=/path/to/python`.\n",
    ),
    "python3.12": (
        'case "$2" in *ensurepip*) exit 1;; *) echo python3.12-venv;; esac',
        "python3.12",
        sys.executable,
        "python3.12 cannot make virtual environments: install its venv, on Debian and Ubuntu with "
        "`sudo apt install python3.12-venv`.\n",
    ),
    "no python for Triton": (
        None,
        sys.executable,
        "",
        "The Triton server's Python backend needs numpy 1, which has no wheel for Python 3.13: install Python 3.12 or "
        "3.11 beside it, for example with `pip install uv && uv python install 3.12`, or name one with "
        "`make run TRITON_PYTHON=/path/to/python3.12`.\n",
    ),
}


@pytest.mark.parametrize(("name", "case"), CHECKS.items(), ids=CHECKS)
def test_a_missing_requirement_is_an_error_that_names_it(
    name: str, case: tuple[str | None, str, str, str], tmp_path: Path
) -> None:
    script, python, triton, message = case
    if script:
        stand_in(tmp_path, name, script)
    checked = check(tmp_path, python, triton)
    assert (checked.returncode, checked.stderr) == (3, message)


def test_this_machine_has_all_requirements(tmp_path: Path) -> None:
    checked = check(tmp_path, sys.executable)
    assert (checked.returncode, checked.stderr) == (0, "")


def install(folder: Path, script: str) -> "subprocess.CompletedProcess[str]":
    return run(sys.executable, str(ROOT / "scripts" / "install.py"), "some things", "bash", "-c", script, folder=folder)


def test_an_installation_shows_its_time_and_logs_its_output(tmp_path: Path) -> None:
    installed = install(tmp_path, "echo Collecting one; echo Collecting two")
    assert installed.returncode == 0
    begun, done = installed.stdout.splitlines()
    assert begun == "Installing some things (a few minutes the first time)"
    assert re.fullmatch(r"Installed some things: \d+ s", done)
    assert (tmp_path / "build" / "setup.log").read_text().splitlines()[1:] == ["Collecting one", "Collecting two"]


def test_an_installation_that_fails_shows_the_end_of_its_log(tmp_path: Path) -> None:
    installed = install(tmp_path, "seq 100; exit 7")
    assert installed.returncode == 7
    lines = installed.stdout.splitlines()
    assert lines[1:-1] == [str(number) for number in range(86, 101)]
    assert lines[-1] == "Installing some things failed. All output: build/setup.log"


@pytest.mark.parametrize(
    ("tests", "checks", "code"), [(0, 0, 0), (1, 0, 1), (0, 2, 1), (3, 2, 3)], ids=["green", "tests", "lint", "both"]
)
def test_tests_and_lint_run_side_by_side_and_either_can_fail(
    tmp_path: Path, tests: int, checks: int, code: int
) -> None:
    stand_in(tmp_path, "make", f'echo "the checks said: $*"; exit {checks}')
    stand_in(tmp_path, "python", f"echo the tests said; exit {tests}")
    patched = (
        "import sys; from scripts import run_tests; sys.executable = sys.argv[1]; sys.exit(run_tests.main(['-m', 'x']))"
    )
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = run(sys.executable, "-c", patched, str(tmp_path / "bin" / "python"), folder=ROOT, PATH=path)
    assert done.returncode == code
    assert done.stdout.index("the tests said") < done.stdout.index("the checks said: --no-print-directory lint")
    assert ("FAILED" in done.stdout) is (code != 0)
