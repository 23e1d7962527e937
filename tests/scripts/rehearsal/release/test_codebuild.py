"""A CodeBuild build: phases, inputs, variables, artifacts and failures."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.rehearsal.release.codebuild import Build, BuildFailed, run_build
from tests.scripts.rehearsal.release.templates import build, pipeline, project, source

ACCOUNT = {"AWS_REGION": "us-east-1", "AWS_SESSION_TOKEN": "token"}
MACHINE = {"PATH": "/usr/bin:/bin"}


def a_build(
    folder: Path, spec: dict[str, Any], *, outputs: tuple[str, ...] = (), others: tuple[str, ...] = (), **variables: str
) -> Build:
    """A build whose primary input has one file, in.txt."""
    stages = {"Source": [source("Files")], "Build": [build("Step", 1, ["Files"])]}
    sources = {name: folder / "inputs" / name for name in ("Files", *others)}
    for name, place in sources.items():
        place.mkdir(parents=True)
        (place / "in.txt").write_text(f"{name}\n")
    return Build(
        project=pipeline(stages, Step=project(spec)).projects["Step"],
        number=7,
        folder=folder,
        sources=sources,
        variables=variables,
        outputs=outputs,
        account=ACCOUNT,
        machine=MACHINE,
        source_version="abc",
    )


def ran(made: Build) -> tuple[list[str], str]:
    """Returns what a build printed, and why it failed."""
    log, reason = list[str](), ""
    try:
        run_build(made, log.append)
    except BuildFailed as failed:
        reason = str(failed)
    return [line for line in log if not line.startswith("[Container]")], reason


def phases(**given: list[str]) -> dict[str, Any]:
    return {"phases": {name: {"commands": commands} for name, commands in given.items()}}


OUT = {"artifacts": {"base-directory": "out", "files": ["**/*"]}}


def test_a_build_runs_its_phases_in_order_in_one_shell(tmp_path: Path) -> None:
    spec = phases(build=["echo build $MADE", "pwd"], install=["MADE=here; cd /"])
    assert ran(a_build(tmp_path, spec)) == (["build here", "/"], "")


@pytest.mark.parametrize(
    ("spec", "outputs", "printed", "reason"),
    [
        (
            phases(install=["echo one", "(exit 3)", "echo two"], build=["echo three"]),
            (),
            ["one"],
            "INSTALL: exit status 3: (exit 3)",
        ),
        (phases(build=["exit 4", "echo never"]), (), [], "BUILD: exit status 4: exit 4"),
        (
            {**phases(build=["true"]), **OUT},
            ("Made",),
            [],
            "UPLOAD_ARTIFACTS: no matching base directory path found for out",
        ),
        ({**phases(build=["mkdir out"]), **OUT}, ("Made",), [], "UPLOAD_ARTIFACTS: no matching artifact paths found"),
        (
            phases(build=["true"]),
            ("Made",),
            [],
            "UPLOAD_ARTIFACTS: no artifact definition found for the output artifact Made",
        ),
    ],
)
def test_a_build_fails(
    tmp_path: Path, spec: dict[str, Any], outputs: tuple[str, ...], printed: list[str], reason: str
) -> None:
    assert ran(a_build(tmp_path, spec, outputs=outputs)) == (printed, reason)


def test_a_build_has_its_inputs_and_no_other_variables_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the person's own")
    spec = phases(build=["cat in.txt", 'cat "$CODEBUILD_SRC_DIR_Other/in.txt"', "env"])
    log, failure = ran(a_build(tmp_path, spec, others=("Other",), GIVEN="by the action"))
    assert (log[:2], failure) == (["Files", "Other"], "")
    environment = dict(line.split("=", 1) for line in log[2:])
    assert environment["GIVEN"] == "by the action"
    assert environment["CODEBUILD_SRC_DIR"] == str(tmp_path / "inputs" / "Files")
    assert environment["CODEBUILD_BUILD_ID"] == "Step:7"
    assert environment["AWS_SESSION_TOKEN"] == "token"
    assert "AWS_ACCESS_KEY_ID" not in environment
    assert environment["HOME"] == str(tmp_path / "home")


def test_a_build_times_out(tmp_path: Path) -> None:
    made = a_build(tmp_path, phases(build=["sleep 600", "echo never"]))
    log, reason = ran(replace(made, project=replace(made.project, timeout_minutes=0)))
    assert log == []
    assert re.fullmatch("(INSTALL|BUILD)?: timed out after 0 min: (sleep 600)?", reason)  # before or in a phase
