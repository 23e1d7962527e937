"""Runs one CodeBuild build as CodeBuild would: a clean folder, the declared inputs, the phases, the artifacts.

A build sees the primary input as its working folder, each other input in the folder that CODEBUILD_SRC_DIR_NAME names,
and of the environment only what CodeBuild gives, beside what `Machine` adds. All commands run in one shell; the first
that fails ends its phase. After a failed build phase post_build runs all the same, as it does on AWS.
Source: https://docs.aws.amazon.com/codebuild/latest/userguide/build-spec-ref.html and …/view-build-details.html.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from threading import Event, Lock, Timer

from local_aws.process.guarded_process import GuardedProcess
from scripts.rehearsal.release.pipeline_template import BuildSpec, OutputFiles, Project
from workloads import Interrupted, ProjectError

OnLine = Callable[[str], None]

COMMAND = "[Container] Running command "
"""How the log begins the line of a command, on AWS and here."""


class BuildFailed(ProjectError):
    """A build that CodeBuild would call FAILED: the action and the execution end with it."""

    exit_code = 1

    def __init__(self, phase: str, reason: str) -> None:
        super().__init__(f"{phase}: {reason}")


class Shells:
    """The shells of the builds that run at this moment, each in a thread that waits for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[GuardedProcess] = set()
        self._stopped = False

    @contextmanager
    def running(self, start: Callable[[], GuardedProcess]) -> Iterator[GuardedProcess]:
        """Starts a shell and ends it with the block. Raises `Interrupted` after `stop`."""
        with self._lock:
            if self._stopped:
                raise Interrupted("The rehearsal was interrupted.")
            process = start()
            self._running.add(process)
        try:
            yield process
        finally:
            with self._lock:
                self._running.discard(process)
            process.stop()

    def stop(self) -> None:
        """Ends all shells, and lets none start any more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.request_stop()


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    project: Project
    number: int
    folder: Path
    """The build's own, made here."""
    sources: Mapping[str, Path]
    """A folder for each input artifact, the primary one first. The build may change what is in them."""
    variables: Mapping[str, str]
    """The action's, which stand above the project's."""
    outputs: Sequence[str]
    """Names of the artifacts that the action declares."""
    account: Mapping[str, str]
    """Region, endpoint and the role's credentials."""
    machine: Mapping[str, str]
    """PATH and whatever else the machine itself needs, for its network, say."""
    source_version: str
    shells: Shells = field(default_factory=Shells)


def run_build(build: Build, on_line: OnLine) -> dict[str, Path]:
    """Returns the folder of each output artifact. Raises `BuildFailed`."""
    spec = build.project.spec
    if not build.sources:
        raise BuildFailed("DOWNLOAD_SOURCE", "the action has no input artifact")
    environment = environment_of(build)
    _run_phases(build, environment, on_line)
    return _collected(spec, build, next(iter(build.sources.values())))


def environment_of(build: Build) -> dict[str, str]:
    """Returns all that the build's processes see."""
    project, (primary, *others) = build.project, build.sources.items()
    account, region = project.role_arn.split(":")[4], build.account["AWS_REGION"]
    arn = f"arn:aws:codebuild:{region}:{account}:build/{project.name}:{build.number}"
    given = {
        "CODEBUILD_BUILD_ARN": arn,
        "CODEBUILD_BUILD_ID": f"{project.name}:{build.number}",
        "CODEBUILD_BUILD_IMAGE": project.image,
        "CODEBUILD_BUILD_NUMBER": str(build.number),
        "CODEBUILD_BUILD_SUCCEEDING": "1",
        "CODEBUILD_CI": "true",
        "CODEBUILD_INITIATOR": "codepipeline/rehearsal",
        "CODEBUILD_RESOLVED_SOURCE_VERSION": build.source_version,
        "CODEBUILD_SOURCE_VERSION": build.source_version,
        "CODEBUILD_SRC_DIR": str(primary[1]),
        "CI": "true",
        **{f"CODEBUILD_SRC_DIR_{name}": str(folder) for name, folder in others},
    }
    variables = {**project.spec.variables, **project.variables, **build.variables}
    home = {"HOME": str(build.folder / "home"), "TMPDIR": str(build.folder / "tmp"), "LANG": "C.UTF-8"}
    allowed = {
        "REHEARSAL_GIT_CREDENTIALS": project.spec.git_credential_helper,
        "REHEARSAL_PRIVILEGED": project.privileged,
    }
    told = {name: "yes" for name, given in allowed.items() if given}
    return {**home, **given, **build.account, **build.machine, **told, **variables}


def _run_phases(build: Build, environment: Mapping[str, str], on_line: OnLine) -> None:
    spec, source = build.project.spec, next(iter(build.sources.values()))
    for name in ("home", "tmp"):
        (build.folder / name).mkdir(parents=True, exist_ok=True)
    progress = build.folder / "progress"
    progress.write_text("install\n")
    phases = tuple(phase for phase in spec.phases if spec.phases[phase])
    status = _run_script(build, _script(spec, phases, progress), source, environment, on_line)
    if status == 0:
        return
    phase, _, command = progress.read_text().partition("\n")
    if phase == "build" and status is not None and spec.phases["post_build"]:
        last = _script(spec, ("post_build",), progress)
        _run_script(build, last, source, {**environment, "CODEBUILD_BUILD_SUCCEEDING": "0"}, on_line)
    ended = f"timed out after {build.project.timeout_minutes} min" if status is None else f"exit status {status}"
    raise BuildFailed(phase.upper(), f"{ended}: {command.strip()}")


def _script(spec: BuildSpec, phases: Sequence[str], progress: Path) -> str:
    """Returns a script that notes each command before it runs, and ends with the first that fails."""
    lines = []
    for phase in phases:
        for command in spec.phases[phase]:
            note, shown = _quoted(f"{phase}\n{command}\n"), _quoted(f"{COMMAND}{command}")
            lines += [f"printf %s {note} > {_quoted(str(progress))}", f"printf '%s\\n' {shown}", command]
            lines += ["rehearsal_status=$?", '[ "$rehearsal_status" -eq 0 ] || exit "$rehearsal_status"']
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _run_script(build: Build, script: str, source: Path, environment: Mapping[str, str], on_line: OnLine) -> int | None:
    """Returns the exit status, and None where the project's time was up."""
    file = build.folder / "commands.sh"
    file.write_text(script)
    shell = shutil.which(build.project.spec.shell, path=os.defpath) or "/bin/sh"
    late = Event()

    def start() -> GuardedProcess:
        return GuardedProcess.start(
            [shell, file], environment=environment, stdout=PIPE, stderr=subprocess.STDOUT, working_directory=source
        )

    def end() -> None:
        late.set()
        process.request_stop()

    with build.shells.running(start) as process:
        limit = Timer(build.project.timeout_minutes * 60, end)  # ends the output, too, which is waited for
        limit.start()
        try:
            for line in process.stdout:
                on_line(line.decode("utf-8", "replace").rstrip("\n"))
            status = process.wait()
        finally:
            limit.cancel()
    return None if late.is_set() else status


def _collected(spec: BuildSpec, build: Build, source: Path) -> dict[str, Path]:
    """Copies what the artifacts' patterns match. Refuses what CodeBuild would: no folder, or no file that matches."""
    wanted = dict(spec.secondary)
    if spec.outputs is not None and len(build.outputs) == 1 and build.outputs[0] not in wanted:
        wanted[build.outputs[0]] = spec.outputs
    collected: dict[str, Path] = {}
    for name in build.outputs:
        if name not in wanted:
            raise BuildFailed("UPLOAD_ARTIFACTS", f"no artifact definition found for the output artifact {name}")
        collected[name] = build.folder / "artifacts" / name
        _copy(wanted[name], source, collected[name])
    return collected


def _copy(files: OutputFiles, source: Path, target: Path) -> None:
    base = source / files.base_directory
    if not base.is_dir():
        raise BuildFailed("UPLOAD_ARTIFACTS", f"no matching base directory path found for {files.base_directory}")
    matching = sorted(set(_matching(base, files.patterns)))
    if not matching:
        raise BuildFailed("UPLOAD_ARTIFACTS", "no matching artifact paths found")
    for file in matching:
        copy = target / file.relative_to(base)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _matching(base: Path, patterns: Sequence[str]) -> Iterator[Path]:
    return (file for pattern in patterns for file in base.glob(pattern) if file.is_file())


def matching_files(source: Path, patterns: Sequence[str]) -> list[Path]:
    """Returns the files below `source` that a cache's or an artifact's patterns match, sorted."""
    return sorted(set(_matching(source, patterns)))
