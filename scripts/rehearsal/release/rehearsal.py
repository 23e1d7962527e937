"""One rehearsal: the account, the repository and the deployed pipeline, through which releases go.

It says each action's end, and of what an action printed the lines that `page` keeps. Everything that was printed is in
`log`. It does not know which releases are shown.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from local_aws.process.local_account import LocalAccount
from scripts.rehearsal.release.calls import CallsLog
from scripts.rehearsal.release.deployment import deployed_stack, deployed_template
from scripts.rehearsal.release.execution import Kept, Outcome, Runner
from scripts.rehearsal.release.machine import Machine
from scripts.rehearsal.release.pipeline_template import Action, Pipeline, read_pipeline
from scripts.rehearsal.release.roles import Denied, Roles
from scripts.rehearsal.release.sources import Repository
from scripts.rehearsal.release.storage import Storage
from workloads import ROOT, ProjectError, Unavailable

STACK = "ReleasePipelineStack"
ACCOUNT, REGION = "123456789012", "us-east-1"
PROGRAM = "scripts.rehearsal.account"
SELF_MUTATION = "UpdatePipeline"


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

    @classmethod
    @contextmanager
    def begin(cls, folder: Path, say: Callable[[str], None]) -> Iterator["Rehearsal"]:
        """Starts an account and makes the repository below `folder`; both end with the block."""
        state = folder / "account"
        repository = Repository.make(ROOT, folder / "repository")
        with (
            (folder / "rehearsal.log").open("w", encoding="utf-8") as log,
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
        kept, outcomes = self._run(runner, runner.pipeline.actions, Kept(commit=commit), until=SELF_MUTATION)
        if outcomes[-1].failure is not None:
            return kept, outcomes
        changed = self.runner()
        if changed.pipeline != runner.pipeline:
            self.say(f"the pipeline has changed itself: it has {', '.join(changed.pipeline.stages)} now")
            if _until_change(changed.pipeline) != _until_change(runner.pipeline):
                raise Unexpected("The pipeline changed what made it: its next execution would not make the same of it.")
        stages = changed.pipeline.stages
        later = stages[stages.index(SELF_MUTATION) + 1 :]
        rest = [action for action in changed.pipeline.actions if action.stage in later]
        kept, more = self._run(changed, rest, kept)
        return kept, [*outcomes, *more]

    def run(self, names: Iterable[str], kept: Kept) -> tuple[Kept, list[Outcome]]:
        """Runs the actions `STAGE/NAME` alone, up to the first that fails, from what another execution kept."""
        runner = self.runner()
        actions = [runner.pipeline.action(*name.split("/", 1)) for name in names]
        return self._run(runner, actions, kept)

    def _run(
        self, runner: Runner, actions: Iterable[Action], kept: Kept, until: str | None = None
    ) -> tuple[Kept, list[Outcome]]:
        """Runs actions, up to those of the stage `until`."""
        outcomes: list[Outcome] = []
        for action in actions:
            if until is not None and outcomes and outcomes[-1].action.stage == until != action.stage:
                break
            self._note(f"==> {action.stage}/{action.name}\n")
            print(f"  {action.stage}/{action.name} …", end=" ", file=sys.stderr, flush=True)
            began = time.monotonic()
            kept, outcome = runner.run(action, kept)
            print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            try:
                self.calls.check(f"{action.stage}/{action.name}")
            except Denied as denied:  # also where the programs of the action got over it
                outcome = replace(outcome, failure=denied)
            outcomes.append(outcome)
            if outcome.failure is not None:
                self.say(f"{action.stage}/{action.name}: FAILED: {outcome.failure}")
                break
            self.say(f"{action.stage}/{action.name}: succeeded")
        return kept, outcomes

    def _note(self, text: str) -> None:
        self.log.write(text)
        self.log.flush()


def _until_change(pipeline: Pipeline) -> tuple[list[Action], Mapping[str, object]]:
    """Returns the actions up to the one that changes the pipeline, and what they run."""
    last = pipeline.stages.index(SELF_MUTATION)
    actions = [action for action in pipeline.actions if action.stage in pipeline.stages[: last + 1]]
    names = [action.configuration.get("ProjectName", "") for action in actions]
    return actions, {name: pipeline.projects[name] for name in names if name}
