"""Executes a pipeline: stage by stage, action by action, with the artifacts and variables that actions hand on.

`together` says which actions run at once. `Kept` is what an execution leaves, and another one may go on from it. It
does not know which actions an execution has, nor what it means that one fails.
"""

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from pathlib import Path

from botocore.exceptions import ClientError

from local_aws.process.container_credentials import ContainerCredentials
from scripts.rehearsal.release.codebuild import Build, BuildFailed, Shells, matching_files, run_build
from scripts.rehearsal.release.deployment import deploy
from scripts.rehearsal.release.machine import Machine
from scripts.rehearsal.release.pipeline_template import Action, Pipeline, Project, action_variables
from scripts.rehearsal.release.roles import Roles, allowed
from scripts.rehearsal.release.sources import Repository
from scripts.rehearsal.release.storage import Storage
from workloads import ProjectError, UsageError

VARIABLE = re.compile(r"#\{([\w@-]+)\.([\w@-]+)\}")
CLONE = "CODEBUILD_CLONE_REF"
MEASURES = "Measure-"
"""How the names of actions begin that measure a model: side by side on one machine they would measure each other."""
NO_BUILDS = "because no build runs here"
"""How the account answers StartBuild, where the role may call it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """The artifacts and variables that the actions of an execution have handed on so far."""

    commit: str
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Keys in the pipeline's bucket, by the artifact's name. A clone has none: it is its commit."""
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By namespace and name."""

    def with_all_of(self, other: "Kept") -> "Kept":
        artifacts, variables = {**self.artifacts, **other.artifacts}, {**self.variables, **other.variables}
        return replace(self, artifacts=artifacts, variables=variables)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """An action that has run."""

    action: Action
    log: tuple[str, ...]
    failure: ProjectError | None


def together(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """Yields the actions that run at once: builds of one run order, but for those that measure. All others are alone.

    AWS starts all actions of one run order together. What CloudFormation does takes a second or two here.
    """

    def alone(action: Action) -> str:
        builds = action.provider == "CodeBuild" and not action.name.startswith(MEASURES)
        return "" if builds else action.name

    groups = groupby(actions, key=lambda each: (each.stage, each.run_order, alone(each)))
    return (list(group) for _, group in groups)


@dataclass(frozen=True, kw_only=True, slots=True)
class Runner:
    """Runs actions of one pipeline."""

    pipeline: Pipeline
    roles: Roles
    storage: Storage
    machine: Machine
    repository: Repository
    folder: Path
    """Builds run below it, each in a folder that is deleted after it."""
    stand_ins_log: Path
    on_line: Callable[[Action, str], None]
    """Is called from the thread of the action."""
    shells: Shells = field(default_factory=Shells)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def run(self, action: Action, kept: Kept) -> tuple[Kept, Outcome]:
        """Returns what is kept afterwards, and how the action ended."""
        log: list[str] = []
        try:
            match action.provider:
                case "CodeStarSourceConnection":
                    after = self._source(action, kept)
                case "CloudFormation":
                    after = self._deploy(action, kept)
                case _:
                    after = self._build(action, kept, log)
        except ProjectError as error:
            return kept, Outcome(action=action, log=tuple(log), failure=error)
        return after, Outcome(action=action, log=tuple(log), failure=None)

    def _source(self, action: Action, kept: Kept) -> Kept:
        variables = {"CommitId": kept.commit, "BranchName": action.configuration["BranchName"]}
        if action.configuration.get("OutputArtifactFormat") != CLONE:
            with _folder(self.folder / "source") as folder:
                self.repository.files(kept.commit, folder / "files")
                key = self.storage.put(action.outputs[0], folder / "files", action.role_arn)
            kept = replace(kept, artifacts={**kept.artifacts, action.outputs[0]: key})
        return _with_variables(kept, action, variables)

    def _deploy(self, action: Action, kept: Kept) -> Kept:
        with _folder(self.folder / "deployment") as folder:

            def template_of(location: str) -> Path:
                artifact, _, path = location.partition("::")
                # CodePipeline itself hands the artifact to CloudFormation.
                self.storage.get(self._key(artifact, kept), folder / artifact, self.pipeline.role_arn)
                return folder / artifact / path

            return _with_variables(kept, action, deploy(action, self.roles, self.pipeline.role_arn, template_of))

    def _build(self, action: Action, kept: Kept, log: list[str]) -> Kept:
        project = self.pipeline.projects[action.configuration["ProjectName"]]
        self._start(action, project)
        number = next(self._numbers)
        self._note_runtimes(project)

        def on_line(line: str) -> None:
            log.append(line)
            self.on_line(action, line)

        with (
            _folder(self.folder / f"build-{number}") as folder,
            ContainerCredentials.serve(self.roles.environment(), project.role_arn) as account,
        ):
            build = Build(
                project=project,
                number=number,
                folder=folder,
                sources={name: self._input(name, kept, folder, project) for name in action.inputs},
                variables={name: _resolved(value, kept) for name, value in action_variables(action).items()},
                outputs=action.outputs,
                account=account,
                machine=self.machine.environment(folder, self.stand_ins_log),
                source_version=kept.commit,
                shells=self.shells,
            )
            source = build.sources[action.inputs[0]]
            if project.cache is not None:
                self.storage.restore_cache(project.cache, source, project.role_arn)
            made = run_build(build, on_line)
            if project.cache is not None:
                self.storage.keep_cache(
                    project.cache, source, matching_files(source, project.spec.cached), project.role_arn
                )
            keys = {name: self.storage.put(name, made[name], project.role_arn) for name in made}
        return replace(kept, artifacts={**kept.artifacts, **keys})

    def _start(self, action: Action, project: Project) -> None:
        """Starts the build with the action's role, which CodePipeline needs for it. The account runs no builds, and
        answers so once the role's policy has let the call pass: the build runs here.
        """
        client = self.roles.client("codebuild", action.role_arn, self.pipeline.role_arn)
        try:
            allowed(lambda: client.start_build(projectName=project.name), f"{action.stage}/{action.name}")
        except ClientError as error:
            if NO_BUILDS not in error.response["Error"]["Message"]:
                raise

    def _note_runtimes(self, project: Project) -> None:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        wanted = project.spec.runtimes.get("python", here)
        if wanted != here:
            with self.stand_ins_log.open("a") as log:
                print(f"python {wanted} of CodeBuild's image: Python {here} of this machine", file=log)

    def _input(self, name: str, kept: Kept, folder: Path, project: Project) -> Path:
        source = folder / "inputs" / name
        if name in self._clones():
            self.repository.clone_to(source, kept.commit)
        else:
            self.storage.get(self._key(name, kept), source, project.role_arn)
        return source

    def _clones(self) -> set[str]:
        return {
            action.outputs[0]
            for action in self.pipeline.actions
            if action.configuration.get("OutputArtifactFormat") == CLONE
        }

    def _key(self, name: str, kept: Kept) -> str:
        if name not in kept.artifacts:
            raise BuildFailed("DOWNLOAD_SOURCE", f"the artifact {name} was not made in this execution")
        return kept.artifacts[name]


def _with_variables(kept: Kept, action: Action, variables: Mapping[str, str]) -> Kept:
    if action.namespace is None:
        return kept
    return replace(kept, variables={**kept.variables, action.namespace: variables})


def _resolved(value: str, kept: Kept) -> str:
    """Returns the value with the pipeline's variables. Raises `UsageError` for one that no action has set."""

    def known(match: re.Match[str]) -> str:
        namespace, name = match.groups()
        if name not in kept.variables.get(namespace, {}):
            raise UsageError(f"{match.group()} is used, and no action before it sets it.")
        return kept.variables[namespace][name]

    return VARIABLE.sub(known, value)


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """Makes a folder anew, and deletes it with the block."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
