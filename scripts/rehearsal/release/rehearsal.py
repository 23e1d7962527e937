"""One rehearsal: the account, the repository and the deployed pipeline, through which releases go.

It says each action's end, and of what an action printed the lines that `page` keeps. Everything that was printed is in
`log`. It does not know which releases are shown.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import IO

from local_aws.process.local_account import LocalAccount
from scripts.rehearsal.release.calls import CallsLog
from scripts.rehearsal.release.deployment import deployed_stack, deployed_template
from scripts.rehearsal.release.execution import Kept, Outcome, Runner, together
from scripts.rehearsal.release.machine import Machine
from scripts.rehearsal.release.pipeline_template import Action, Pipeline, read_pipeline
from scripts.rehearsal.release.roles import Denied, Roles
from scripts.rehearsal.release.sources import Repository
from scripts.rehearsal.release.storage import Storage
from workloads import ROOT, ProjectError, Unavailable

STACK = "ReleasePipelineStack"
ACCOUNT, REGION = "123456789012", "us-east-1"
PROGRAM = "scripts.rehearsal.account"
LOG = "rehearsal.log"
SELF_MUTATION = "UpdatePipeline"
AT_ONCE = 3
"""Builds that run side by side: as many as beta has endpoints, which are taken down together and waited for."""


class Unexpected(ProjectError):
    """An action that ended otherwise than the release pipeline promises: the rehearsal has found a fault."""

    exit_code = 1


@dataclass(slots=True)
class Rehearsal:
    folder: Path
    account: LocalAccount
    repository: Repository
    machine: Machine
    say: Callable[[str], None]
    log: IO[str]
    calls: CallsLog
    _storage: Storage | None = field(default=None)
    _logging: Lock = field(default_factory=Lock)

    @classmethod
    @contextmanager
    def begin(cls, folder: Path, say: Callable[[str], None]) -> Iterator["Rehearsal"]:
        """Starts an account and makes the repository below `folder`; both end with the block."""
        state = folder / "account"
        repository = Repository.make(ROOT, folder / "repository")
        with (
            (folder / LOG).open("w", encoding="utf-8") as log,
            LocalAccount.start(state=state, program=PROGRAM, toolchain=ROOT / ".venv-triton") as account,
        ):
            machine = Machine.make(folder.parent / "release-rehearsal-tools")
            yield cls(folder, account, repository, machine, say, log, CallsLog(state / "calls.jsonl"))

    @property
    def roles(self) -> Roles:
        return Roles(self.account.environment)

    @property
    def stand_ins_log(self) -> Path:
        return self.folder / "stand_ins.log"

    def replaced(self) -> list[str]:
        """Returns what stood in for what, each once."""
        logs = (self.stand_ins_log, self.folder / "account" / "stand_ins.log")
        return sorted({line for log in logs if log.exists() for line in log.read_text("utf-8").splitlines()})

    def person_runs(self, *command: str) -> list[str]:
        """Runs a command in the person's clone with the owner's key; returns its lines. Raises `Unavailable`."""
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
            last = "\n".join(done.stdout.splitlines()[-15:])
            raise Unavailable(f"`{' '.join(command)}` ended with {done.returncode}:\n{last}")
        return done.stdout.splitlines()

    def runner(self) -> Runner:
        """Reads the pipeline as it is deployed now."""
        cloudformation, iam = self.roles.as_owner("cloudformation"), self.roles.as_owner("iam")
        stack = deployed_stack(cloudformation, iam, STACK, ACCOUNT, REGION)
        pipeline = read_pipeline(deployed_template(cloudformation, STACK), stack)
        self._storage = self._storage or Storage(self.roles, pipeline.bucket)
        return Runner(
            pipeline=pipeline,
            roles=self.roles,
            storage=self._storage,
            machine=self.machine,
            repository=self.repository,
            folder=self.folder / "work",
            stand_ins_log=self.stand_ins_log,
            on_line=lambda action, line: self._note(f"{action.stage}/{action.name}: {line}\n"),
        )

    def release(self, commit: str) -> tuple[Kept, list[Outcome]]:
        """Takes a commit through the pipeline, up to the first action that fails.

        Where the pipeline has changed itself, its execution starts anew on AWS. Here it goes on after the change with
        what it has made, if all that comes before is as it was: it would be made of the same commit again.
        """
        runner = self.runner()
        kept, outcomes = self._run(runner, _until_change(runner.pipeline), Kept(commit=commit))
        if failure_of(outcomes) is not None:
            return kept, outcomes
        changed = self.runner()
        if changed.pipeline != runner.pipeline:
            self.say(f"the pipeline has changed itself: it has {', '.join(changed.pipeline.stages)} now")
            if _made_until_change(changed.pipeline) != _made_until_change(runner.pipeline):
                raise Unexpected("The pipeline changed what made it: its next execution would not make the same of it.")
        before = _until_change(changed.pipeline)
        rest = [action for action in changed.pipeline.actions if action not in before]
        kept, more = self._run(changed, rest, kept)
        return kept, [*outcomes, *more]

    def run(self, names: Iterable[str], kept: Kept) -> tuple[Kept, list[Outcome]]:
        """Runs the actions `STAGE/NAME` alone, up to the first that fails, from what another execution kept."""
        runner = self.runner()
        actions = [runner.pipeline.action(*name.split("/", 1)) for name in names]
        return self._run(runner, actions, kept)

    def _run(self, runner: Runner, actions: Iterable[Action], kept: Kept) -> tuple[Kept, list[Outcome]]:
        """Runs actions. Where one fails, those that were started with it still come to their end."""
        outcomes: list[Outcome] = []
        for started in together(actions):
            kept, ended = self._run_together(runner, started, kept)
            outcomes += ended
            if failure_of(ended) is not None:
                break
        return kept, outcomes

    def _run_together(self, runner: Runner, actions: Sequence[Action], kept: Kept) -> tuple[Kept, list[Outcome]]:
        def run(action: Action) -> tuple[Kept, Outcome]:
            self._note(f"==> {_title(action)}\n")
            began = time.monotonic()
            made = runner.run(action, kept)
            took = f"{_title(action)}: {time.monotonic() - began:.0f} s"
            self._note(f"<== {took}\n")
            print(f"  {took}", file=sys.stderr, flush=True)
            return made

        with ThreadPoolExecutor(AT_ONCE) as threads:
            try:
                ended = list(threads.map(run, actions))
            except BaseException:  # Ctrl-C, too: the threads wait for their shells
                runner.shells.stop()
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        outcomes = self._with_denials([outcome for _, outcome in ended])
        for outcome in outcomes:
            how = "succeeded" if outcome.failure is None else f"FAILED: {outcome.failure}"
            self.say(f"{_title(outcome.action)}: {how}")
        for made, _ in ended:
            kept = kept.with_all_of(made)
        return kept, outcomes

    def _with_denials(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Lets the action fail that was denied a call, also where its programs got over it.

        Of several that ran at once it is the one that failed, or else the first: the sentence names the role.
        """
        try:
            self.calls.check(", ".join(_title(outcome.action) for outcome in outcomes))
        except Denied as denied:
            failed = next((outcome for outcome in outcomes if outcome.failure is not None), outcomes[0])
            return [replace(each, failure=denied) if each is failed else each for each in outcomes]
        return outcomes

    def _note(self, text: str) -> None:
        with self._logging:
            self.log.write(text)
            self.log.flush()


def failure_of(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Returns the first action that failed."""
    return next((outcome for outcome in outcomes if outcome.failure is not None), None)


def _title(action: Action) -> str:
    return f"{action.stage}/{action.name}"


def _until_change(pipeline: Pipeline) -> list[Action]:
    """Returns the actions up to the one that changes the pipeline."""
    stages = pipeline.stages[: pipeline.stages.index(SELF_MUTATION) + 1]
    return [action for action in pipeline.actions if action.stage in stages]


def _made_until_change(pipeline: Pipeline) -> tuple[list[Action], Mapping[str, object]]:
    """Returns the same actions, and what they run."""
    actions = _until_change(pipeline)
    names = [action.configuration.get("ProjectName", "") for action in actions]
    return actions, {name: pipeline.projects[name] for name in names if name}
