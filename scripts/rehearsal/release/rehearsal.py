"""A rehearsal: the local account, the repository and the deployed pipelines. Runs releases and prints their actions."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import IO, Any

from local_aws.process.local_account import LocalAccount
from scripts.rehearsal.release.execution import ExecutionState, Outcome, Runner, Storage, concurrent_groups
from scripts.rehearsal.release.machine import Machine
from scripts.rehearsal.release.permissions import CallLog, Denied, Roles
from scripts.rehearsal.release.pipeline_template import Action, Pipeline, read_pipeline
from scripts.rehearsal.release.sources import Repository
from workloads import ROOT, ProjectError, Unavailable, load_workload

ACCOUNT, REGION = "123456789012", "us-east-1"
ATTRIBUTES = {
    "AWS::IAM::Role": {"Arn": f"arn:aws:iam::{ACCOUNT}:role/"},
    "AWS::S3::Bucket": {"Arn": "arn:aws:s3:::"},
    "AWS::KMS::Key": {"Arn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/"},
    "AWS::ECR::Repository": {
        "Arn": f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/",
        "RepositoryUri": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/",
    },
}
"""The beginnings of attributes by type; the physical id follows."""
PROGRAM = "scripts.rehearsal.account"
LOG = "rehearsal.log"
SELF_MUTATION = "UpdatePipeline"
MAX_CONCURRENT = 3
"""Concurrent builds."""
TAIL_LINES = 15


class Unexpected(ProjectError):
    """An action ended in another way than the release pipeline promises."""

    exit_code = 1


@dataclass(slots=True)
class Rehearsal:
    """`say` prints a line of the transcript; everything else that is printed goes to `log`."""

    folder: Path
    account: LocalAccount
    repository: Repository
    machine: Machine
    say: Callable[[str], None]
    log: IO[str]
    calls: CallLog
    _storages: dict[str, Storage] = field(default_factory=dict)
    _logging: Lock = field(default_factory=Lock)

    @classmethod
    @contextmanager
    def begin(cls, folder: Path, say: Callable[[str], None]) -> Iterator["Rehearsal"]:
        """Starts an account and makes the repository below `folder`."""
        state = folder / "account"
        repository = Repository.make(ROOT, folder / "repository")
        with (
            (folder / LOG).open("w", encoding="utf-8") as log,
            LocalAccount.start(state=state, program=PROGRAM, pace="quick", toolchain=ROOT / ".venv-triton") as account,
        ):
            machine = Machine.make(folder.parent / "release-rehearsal-tools")
            yield cls(folder, account, repository, machine, say, log, CallLog(state / "calls.jsonl"))

    @property
    def roles(self) -> Roles:
        return Roles(self.account.environment)

    @property
    def stand_ins_log(self) -> Path:
        return self.folder / "stand_ins.log"

    def replacements(self) -> list[str]:
        """Returns what stood in for what."""
        logs = (self.stand_ins_log, self.folder / "account" / "stand_ins.log")
        return sorted({line for log in logs if log.exists() for line in log.read_text("utf-8").splitlines()})

    def run_as_owner(self, *command: str) -> list[str]:
        """Runs a command in the clone with the owner's key and returns its lines. Raises `Unavailable`."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        tools = f"{Path(sys.executable).parent}:{ROOT / 'node_modules' / '.bin'}:{os.environ['PATH']}"
        environment = {**inherited, **self.account.environment, "PATH": tools, "PYTHONPATH": "."}
        self.say(f"$ {' '.join(command)}")
        done = subprocess.run(
            command,
            cwd=self.repository.clone,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self._note(done.stdout)
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-TAIL_LINES:])
            raise Unavailable(f"`{' '.join(command)}` failed with exit code {done.returncode}:\n{tail}")
        return done.stdout.splitlines()

    def runner(self, workload: str) -> Runner:
        """Reads the workload's pipeline that is deployed now."""
        stack = load_workload(workload).workload.release_stack_name
        cloudformation = self.roles.as_owner("cloudformation")
        body = cloudformation.get_template(StackName=stack)["TemplateBody"]
        template = json.loads(body) if isinstance(body, str) else body
        pipeline = read_pipeline(template, _deployed_stack(stack, cloudformation))
        if workload not in self._storages:
            self._storages[workload] = Storage(self.roles, pipeline.bucket)
        return Runner(
            pipeline=pipeline,
            storage=self._storages[workload],
            machine=self.machine,
            repository=self.repository,
            folder=self.folder / "work",
            stand_ins_log=self.stand_ins_log,
            on_line=lambda action, line: self._note(f"{workload}: {action.title}: {line}\n"),
        )

    def release(self, workload: str, commit: str) -> tuple[ExecutionState, list[Outcome]]:
        """Takes a commit through the workload's pipeline, up to the first failure.

        After the pipeline has changed itself, AWS starts the execution again. The rehearsal continues instead, and
        checks that the earlier actions are unchanged: they would make the same artifacts.
        """
        self.say(f"### {workload}")
        before = self.runner(workload)
        state, outcomes = self._run(before, _until_change(before.pipeline), ExecutionState(commit=commit))
        if failed_outcome(outcomes) is not None:
            return state, outcomes
        after = self.runner(workload)
        if after.pipeline != before.pipeline:
            self.say(f"the pipeline has changed itself; its stages are {', '.join(after.pipeline.stages)}")
            if _projects_until_change(after.pipeline) != _projects_until_change(before.pipeline):
                raise Unexpected("The pipeline changed the actions that made it.")
        done = _until_change(after.pipeline)
        state, more = self._run(after, [action for action in after.pipeline.actions if action not in done], state)
        return state, [*outcomes, *more]

    def run(self, workload: str, titles: Iterable[str], state: ExecutionState) -> tuple[ExecutionState, list[Outcome]]:
        """Runs only the actions `STAGE/NAME`, up to the first failure, from the state of another execution."""
        runner = self.runner(workload)
        return self._run(runner, [runner.pipeline.action(*title.split("/", 1)) for title in titles], state)

    def _run(
        self, runner: Runner, actions: Iterable[Action], state: ExecutionState
    ) -> tuple[ExecutionState, list[Outcome]]:
        outcomes: list[Outcome] = []
        for group in concurrent_groups(actions):
            state, ended = self._run_group(runner, group, state)
            outcomes += ended
            if failed_outcome(ended) is not None:
                break
        return state, outcomes

    def _run_group(
        self, runner: Runner, actions: Sequence[Action], state: ExecutionState
    ) -> tuple[ExecutionState, list[Outcome]]:
        """Runs actions at the same time. If one fails, the others still finish."""

        def run(action: Action) -> tuple[ExecutionState, Outcome]:
            began = time.monotonic()
            ended = runner.run(action, state)
            line = f"{action.title}: {time.monotonic() - began:.0f} s"
            self._note(f"<== {line}\n")
            print(f"  {line}", file=sys.stderr, flush=True)
            return ended

        with ThreadPoolExecutor(MAX_CONCURRENT) as threads:
            try:
                ended = list(threads.map(run, actions))
            except BaseException:  # Ctrl-C, too: the threads wait for their shells
                threads.shutdown(wait=False, cancel_futures=True)
                for process in tuple(runner.running):
                    process.request_stop()
                raise
        outcomes = self._with_denials([outcome for _, outcome in ended])
        for outcome in outcomes:
            result = "succeeded" if outcome.failure is None else f"FAILED: {outcome.failure}"
            self.say(f"{outcome.action.title}: {result}")
        for other, _ in ended:
            state = state.merged(other)
        return state, outcomes

    def _with_denials(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Fails the action with a denied call, even if its programs ignored the denial.

        Of several concurrent actions it is the one that failed, or the first: the message names the role.
        """
        try:
            self.calls.check(", ".join(outcome.action.title for outcome in outcomes))
        except Denied as denied:
            failed = failed_outcome(outcomes) or outcomes[0]
            return [replace(each, failure=denied) if each is failed else each for each in outcomes]
        return outcomes

    def _note(self, text: str) -> None:
        with self._logging:
            self.log.write(text)
            self.log.flush()


def failed_outcome(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Returns the first outcome that is a failure."""
    return next((outcome for outcome in outcomes if outcome.failure is not None), None)


def _deployed_stack(stack: str, cloudformation: Any) -> dict[str, str]:
    """Returns the values of a stack's references, as `read_pipeline` takes them."""
    values = {"AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "AWS::Partition": "aws"}
    values |= {"AWS::URLSuffix": "amazonaws.com", "AWS::StackName": stack}
    for each in cloudformation.describe_stack_resources(StackName=stack)["StackResources"]:
        name, physical = each["LogicalResourceId"], each["PhysicalResourceId"]
        values[name] = physical
        for attribute, text in ATTRIBUTES.get(each["ResourceType"], {}).items():
            values[f"{name}.{attribute}"] = text + physical
    return values


def _until_change(pipeline: Pipeline) -> list[Action]:
    """Returns the actions up to the one that changes the pipeline."""
    stages = pipeline.stages[: pipeline.stages.index(SELF_MUTATION) + 1]
    return [action for action in pipeline.actions if action.stage in stages]


def _projects_until_change(pipeline: Pipeline) -> list[object]:
    actions = _until_change(pipeline)
    return [(action, pipeline.projects.get(action.configuration.get("ProjectName", ""))) for action in actions]
