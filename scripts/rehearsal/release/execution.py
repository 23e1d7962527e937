"""Runs the actions of a pipeline: source, builds and CloudFormation deployments, with the artifacts they pass on."""

import io
import json
import re
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.local_account import role_session
from model_build.compiled import scratch_folder
from scripts.rehearsal.release.codebuild import Build, BuildFailed, matching_files, run_build
from scripts.rehearsal.release.machine import Machine
from scripts.rehearsal.release.permissions import Roles, allowed
from scripts.rehearsal.release.pipeline_template import Action, Pipeline, Project, action_variables
from scripts.rehearsal.release.sources import Repository
from scripts.release.publish_archives import MAX_ARTIFACT_BYTES
from workloads import ProjectError, UsageError

VARIABLE = re.compile(r"#\{([\w@-]+)\.([\w@-]+)\}")
CLONE = "CODEBUILD_CLONE_REF"
NO_BUILDS = "because no build runs here"
"""The answer of the local account to StartBuild, if the role may call it."""
POLL_S = 0.3
MAX_DEPLOYMENT_S = 600.0
GOOD = {"CREATE_COMPLETE", "UPDATE_COMPLETE"}


class DeploymentFailed(ProjectError):
    """CloudFormation did not bring a stack to its template."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionState:
    """Outputs of an execution's actions: places of artifacts by name, variables by namespace."""

    commit: str
    artifacts: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def merged(self, other: "ExecutionState") -> "ExecutionState":
        artifacts, variables = {**self.artifacts, **other.artifacts}, {**self.variables, **other.variables}
        return replace(self, artifacts=artifacts, variables=variables)

    def with_variables(self, action: Action, variables: Mapping[str, str]) -> "ExecutionState":
        if action.namespace is None:
            return self
        return replace(self, variables={**self.variables, action.namespace: variables})


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """An action that has run, with the lines it printed."""

    action: Action
    log: tuple[str, ...]
    failure: ProjectError | None


def concurrent_groups(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """Yields the actions that run at the same time: builds of one run order."""

    def key(action: Action) -> tuple[str, int, str]:
        return action.stage, action.run_order, "" if action.provider == "CodeBuild" else action.name

    return (list(group) for _, group in groupby(actions, key=key))


@dataclass(frozen=True, slots=True)
class Storage:
    """Artifacts and caches as zip files, BUCKET/KEY, each with the role that AWS would use."""

    roles: Roles
    bucket: str
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def put(self, name: str, folder: Path, role_arn: str) -> str:
        """Stores an artifact in the pipeline's bucket and returns its place."""
        place = f"{self.bucket}/rehearsal/{name[:20]}/{next(self._numbers):04}.zip"
        self.put_files(place, [file for file in sorted(folder.rglob("*")) if file.is_file()], folder, role_arn)
        return place

    def put_files(self, place: str, files: Sequence[Path], base: Path, role_arn: str) -> None:
        s3, data = self.roles.client("s3", role_arn), _zipped(files, base)
        bucket, _, key = place.partition("/")
        allowed(lambda: s3.put_object(Bucket=bucket, Key=key, Body=data), f"{role_arn} puts s3://{place}")

    def get(self, place: str, folder: Path, role_arn: str) -> int:
        """Unpacks a zip file into `folder` and returns its size. Executable bits are lost, as in CodePipeline."""
        s3: Any = self.roles.client("s3", role_arn)
        bucket, _, key = place.partition("/")
        data = allowed(lambda: s3.get_object(Bucket=bucket, Key=key)["Body"].read(), f"{role_arn} gets s3://{place}")
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(folder)
        return len(data)

    def restore_cache(self, place: str, source: Path, role_arn: str) -> None:
        try:
            self.get(place, source, role_arn)
        except ClientError as error:
            if error.response["Error"]["Code"] not in {"NoSuchKey", "404"}:
                raise


@dataclass(frozen=True, kw_only=True, slots=True)
class Runner:
    """Runs single actions of one pipeline. Each build has a folder below `folder`, deleted afterwards."""

    pipeline: Pipeline
    storage: Storage
    machine: Machine
    repository: Repository
    folder: Path
    stand_ins_log: Path
    on_line: Callable[[Action, str], None]
    running: set[GuardedProcess] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def roles(self) -> Roles:
        return self.storage.roles

    def run(self, action: Action, state: ExecutionState) -> tuple[ExecutionState, Outcome]:
        """Returns the state after the action, and how the action ended."""
        log: list[str] = []
        failure: ProjectError | None = None
        try:
            match action.provider:
                case "CodeStarSourceConnection":
                    state = self._source(action, state)
                case "CloudFormation":
                    state = self._deploy(action, state)
                case _:
                    state = self._build(action, state, log)
        except ProjectError as error:
            failure = error
        return state, Outcome(action=action, log=tuple(log), failure=failure)

    def _source(self, action: Action, state: ExecutionState) -> ExecutionState:
        if action.configuration.get("OutputArtifactFormat") != CLONE:
            with scratch_folder(self.folder / "source") as folder:
                self.repository.files(state.commit, folder / "files")
                place = self.storage.put(action.outputs[0], folder / "files", action.role_arn)
            state = replace(state, artifacts={**state.artifacts, action.outputs[0]: place})
        variables = {"CommitId": state.commit, "BranchName": action.configuration["BranchName"]}
        return state.with_variables(action, variables)

    def _deploy(self, action: Action, state: ExecutionState) -> ExecutionState:
        cloudformation = self.roles.client("cloudformation", action.role_arn, self.pipeline.role_arn)
        configured = action.configuration
        named = {"StackName": configured["StackName"], "ChangeSetName": configured["ChangeSetName"]}

        def call(function: Callable[[], Any]) -> Any:
            try:
                return allowed(function, action.title)
            except ClientError as error:
                raise DeploymentFailed(f"{named['StackName']}: {error.response['Error']['Message']}") from error

        if configured["ActionMode"] == "CHANGE_SET_EXECUTE":
            call(lambda: cloudformation.execute_change_set(**named))
            outputs = call(lambda: _stack_outputs(cloudformation, named["StackName"]))
            return state.with_variables(action, outputs)
        artifact, _, path = configured["TemplatePath"].partition("::")
        with scratch_folder(self.folder / "deployment") as folder:
            # CodePipeline passes the artifact to CloudFormation with its own role.
            if self.storage.get(_place(artifact, state), folder, self.pipeline.role_arn) > MAX_ARTIFACT_BYTES:
                raise DeploymentFailed(f"Artifact [{artifact}] exceeds max artifact size")
            template = (folder / path).read_text("utf-8")
        call(lambda: _replace_change_set(cloudformation, configured, named, template))
        return state.with_variables(action, {})

    def _build(self, action: Action, state: ExecutionState, log: list[str]) -> ExecutionState:
        project = self.pipeline.projects[action.configuration["ProjectName"]]
        self._start_build(action, project)
        number = next(self._numbers)

        def on_line(line: str) -> None:
            log.append(line)
            self.on_line(action, line)

        account = role_session(self.roles.environment, project.role_arn)
        with scratch_folder(self.folder / f"build-{number}") as folder:
            build = Build(
                project=project,
                number=number,
                folder=folder,
                sources={name: self._input(name, state, folder, project) for name in action.inputs},
                variables={name: _substituted(value, state) for name, value in action_variables(action).items()},
                outputs=action.outputs,
                account=account,
                machine=self.machine.environment(folder, self.stand_ins_log),
                source_version=state.commit,
                running=self.running,
            )
            if project.cache is not None:
                self.storage.restore_cache(f"{project.cache}/cache.zip", build.source, project.role_arn)
            folders = run_build(build, on_line)
            if project.cache is not None:
                files = matching_files(build.source, project.spec.get("cache", {}).get("paths", ()))
                self.storage.put_files(f"{project.cache}/cache.zip", files, build.source, project.role_arn)
            places = {name: self.storage.put(name, folders[name], project.role_arn) for name in folders}
        return replace(state, artifacts={**state.artifacts, **places})

    def _start_build(self, action: Action, project: Project) -> None:
        """Calls StartBuild with the action's role, to check its policies. The local account then runs no build."""
        client = self.roles.client("codebuild", action.role_arn, self.pipeline.role_arn)
        try:
            allowed(lambda: client.start_build(projectName=project.name), action.title)
        except ClientError as error:
            if NO_BUILDS not in error.response["Error"]["Message"]:
                raise

    def _input(self, name: str, state: ExecutionState, folder: Path, project: Project) -> Path:
        source = folder / "inputs" / name
        clones = [each for each in self.pipeline.actions if each.configuration.get("OutputArtifactFormat") == CLONE]
        if any(name in clone.outputs for clone in clones):
            self.repository.clone_to(source, state.commit)
        else:
            self.storage.get(_place(name, state), source, project.role_arn)
        return source


def _place(name: str, state: ExecutionState) -> str:
    if name not in state.artifacts:
        raise BuildFailed("DOWNLOAD_SOURCE", f"the artifact {name} was not made in this execution")
    return state.artifacts[name]


def _substituted(value: str, state: ExecutionState) -> str:
    """Returns the value with the pipeline's variables. Raises `UsageError` if no earlier action set one."""

    def variable(match: re.Match[str]) -> str:
        namespace, name = match.groups()
        if name not in state.variables.get(namespace, {}):
            raise UsageError(f"No earlier action sets the variable {match.group()}.")
        return state.variables[namespace][name]

    return VARIABLE.sub(variable, value)


def _replace_change_set(
    cloudformation: Any, configured: Mapping[str, str], named: Mapping[str, str], template: str
) -> None:
    cloudformation.delete_change_set(**named)
    cloudformation.create_change_set(
        **named,
        TemplateBody=template,
        RoleARN=configured["RoleArn"],
        Capabilities=configured["Capabilities"].split(","),
        ChangeSetType="UPDATE" if _stack_exists(cloudformation, named["StackName"]) else "CREATE",
        Parameters=[
            {"ParameterKey": key, "ParameterValue": value}
            for key, value in json.loads(configured.get("ParameterOverrides", "{}")).items()
        ],
    )


def _stack_exists(cloudformation: Any, stack: str) -> bool:
    try:
        status = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        return False
    return status not in {"REVIEW_IN_PROGRESS", "DELETE_COMPLETE"}


def _stack_outputs(cloudformation: Any, name: str) -> dict[str, str]:
    """Waits for the stack and returns its outputs. Raises `DeploymentFailed` with the first failure."""
    end = time.monotonic() + MAX_DEPLOYMENT_S
    while True:
        stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        if not stack["StackStatus"].endswith("IN_PROGRESS"):
            break
        if time.monotonic() > end:
            raise DeploymentFailed(f"{name} is {stack['StackStatus']} after {MAX_DEPLOYMENT_S:.0f} s.")
        time.sleep(POLL_S)
    if stack["StackStatus"] not in GOOD:
        reason = stack.get("StackStatusReason", "no reason is given")
        for event in cloudformation.describe_stack_events(StackName=name)["StackEvents"]:
            if event.get("ResourceStatusReason") == "User Initiated":
                break
            if event["ResourceStatus"].endswith("_FAILED"):
                reason = f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', '')}"
        raise DeploymentFailed(f"{name}: {stack['StackStatus']}: {reason}")
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def _zipped(files: Sequence[Path], base: Path) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for file in files:
            # A fixed date, because a zip cannot hold a date before 1980.
            entry = zipfile.ZipInfo(file.relative_to(base).as_posix(), (2026, 1, 1, 0, 0, 0))
            archive.writestr(entry, file.read_bytes())
    return data.getvalue()
