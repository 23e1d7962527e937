"""Runs a CodeBuild build: an empty folder, the declared inputs, the phases and the output artifacts.

The primary input is the working folder. Other inputs are in the folders named by CODEBUILD_SRC_DIR_NAME. The
environment holds only CodeBuild's variables and those of `Machine`. All commands run in one shell, and the first
failure ends the build.
Source: https://docs.aws.amazon.com/codebuild/latest/userguide/build-spec-ref.html
"""

import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Timer
from typing import Any

from local_aws.process.guarded_process import GuardedProcess
from scripts.rehearsal.release.pipeline_template import PHASES, Project
from workloads import ProjectError

OnLine = Callable[[str], None]
COMMAND = "[Container] Running command "
"""The start of a command's line in CodeBuild's log."""


class BuildFailed(ProjectError):
    """CodeBuild reports such a build as FAILED."""

    exit_code = 1

    def __init__(self, phase: str, reason: str) -> None:
        super().__init__(f"{phase}: {reason}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """A build. `sources` has a folder for each input, the primary one first; `account` has region and credentials."""

    project: Project
    number: int
    folder: Path
    sources: Mapping[str, Path]
    variables: Mapping[str, str]
    outputs: Sequence[str]
    account: Mapping[str, str]
    machine: Mapping[str, str]
    source_version: str
    running: set[GuardedProcess] = field(default_factory=set)
    """The shells of builds that run now. A caller may stop them from another thread."""

    @property
    def source(self) -> Path:
        return next(iter(self.sources.values()))


def run_build(build: Build, on_line: OnLine) -> dict[str, Path]:
    """Returns the folder of each output artifact. Raises `BuildFailed`."""
    _run_phases(build, environment_of(build), on_line)
    return _outputs(build)


def environment_of(build: Build) -> dict[str, str]:
    """Returns the environment of the build's processes."""
    project = build.project
    account, region = project.role_arn.split(":")[4], build.account["AWS_REGION"]
    codebuild = {
        "CODEBUILD_BUILD_ARN": f"arn:aws:codebuild:{region}:{account}:build/{project.name}:{build.number}",
        "CODEBUILD_BUILD_ID": f"{project.name}:{build.number}",
        "CODEBUILD_BUILD_SUCCEEDING": "1",
        "CODEBUILD_RESOLVED_SOURCE_VERSION": build.source_version,
        "CODEBUILD_SRC_DIR": str(build.source),
        "CI": "true",
        **{f"CODEBUILD_SRC_DIR_{name}": str(folder) for name, folder in list(build.sources.items())[1:]},
    }
    home = {"HOME": str(build.folder / "home"), "TMPDIR": str(build.folder / "tmp"), "LANG": "C.UTF-8"}
    stand_ins = {"REHEARSAL_GIT_CREDENTIALS": project.has_git_credentials, "REHEARSAL_PRIVILEGED": project.privileged}
    permitted = {name: "yes" for name, is_permitted in stand_ins.items() if is_permitted}
    return {**home, **codebuild, **build.account, **build.machine, **permitted, **project.variables, **build.variables}


def _run_phases(build: Build, environment: Mapping[str, str], on_line: OnLine) -> None:
    for name in ("home", "tmp"):
        (build.folder / name).mkdir(parents=True, exist_ok=True)
    progress = build.folder / "progress"
    progress.write_text("install\n")
    status = _run_script(build, _script(build.project.spec, progress), environment, on_line)
    if status != 0:
        phase, _, command = progress.read_text().partition("\n")
        reason = f"timed out after {build.project.timeout_minutes} min" if status is None else f"exit status {status}"
        raise BuildFailed(phase.upper(), f"{reason}: {command.strip()}")


def _script(spec: Mapping[str, Any], progress: Path) -> str:
    """Returns a script that writes each command to `progress` before it runs, and ends with the first failure."""
    lines = []
    for phase in PHASES:
        for command in spec.get("phases", {}).get(phase, {}).get("commands", ()):
            note = shlex.quote(f"{phase}\n{command}\n")
            lines += [
                f"printf %s {note} > {shlex.quote(str(progress))}",
                f"printf '%s\\n' {shlex.quote(COMMAND + command)}",
                command,
                "rehearsal_status=$?",
                '[ "$rehearsal_status" -eq 0 ] || exit "$rehearsal_status"',
            ]
    return "\n".join(lines) + "\n"


def _run_script(build: Build, script: str, environment: Mapping[str, str], on_line: OnLine) -> int | None:
    """Returns the exit status, or None if the project's timeout ended the script."""
    file = build.folder / "commands.sh"
    file.write_text(script)
    timed_out = Event()
    process = GuardedProcess.start(
        ["/bin/sh", file],
        environment=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        working_directory=build.source,
    )
    build.running.add(process)

    def time_out() -> None:
        timed_out.set()
        process.request_stop()

    timer = Timer(build.project.timeout_minutes * 60, time_out)
    timer.start()
    try:
        for line in process.stdout:
            on_line(line.decode("utf-8", "replace").rstrip("\n"))
        status = process.wait()
    finally:
        timer.cancel()
        build.running.discard(process)
        process.stop()
    return None if timed_out.is_set() else status


def _outputs(build: Build) -> dict[str, Path]:
    """Copies the output artifacts. Raises `BuildFailed` where CodeBuild does."""
    declared = dict(build.project.spec.get("artifacts", {}))
    files = dict(declared.pop("secondary-artifacts", {}))
    if declared and len(build.outputs) == 1:
        files.setdefault(build.outputs[0], declared)
    folders: dict[str, Path] = {}
    for name in build.outputs:
        if name not in files:
            raise BuildFailed("UPLOAD_ARTIFACTS", f"no artifact definition found for the output artifact {name}")
        folders[name] = build.folder / "artifacts" / name
        _copy(files[name], build.source, folders[name])
    return folders


def _copy(files: Mapping[str, Any], source: Path, target: Path) -> None:
    base = source / (directory := files.get("base-directory", "."))
    if not base.is_dir():
        raise BuildFailed("UPLOAD_ARTIFACTS", f"no matching base directory path found for {directory}")
    matching = matching_files(base, files["files"])
    if not matching:
        raise BuildFailed("UPLOAD_ARTIFACTS", "no matching artifact paths found")
    for file in matching:
        copy = target / file.relative_to(base)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def matching_files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})
