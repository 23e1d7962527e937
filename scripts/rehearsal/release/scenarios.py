"""The releases that are shown, one after another: two whole ones, then one stop or way out at a time.

A later scenario goes on from what an earlier release kept, so that only the actions that it is about run again. Each
checks what it shows, and raises `Unexpected` where the release did otherwise.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from scripts.rehearsal.release import workload_changes
from scripts.rehearsal.release.calls import check_connection
from scripts.rehearsal.release.codebuild import COMMAND
from scripts.rehearsal.release.execution import Kept, Outcome
from scripts.rehearsal.release.rehearsal import STACK, Rehearsal, Unexpected, failure_of

Say = Callable[[str], None]
FROM_LOCKS = "install_locked.sh"
POLL_S = 0.1


def first_deployment(rehearsal: Rehearsal) -> str:
    """A person deploys the pipeline, from a clone without any build. Returns the commit."""
    rehearsal.say("## The commit that is released, and the first deployment of the pipeline")
    for change in workload_changes.as_rehearsed(rehearsal.repository):
        rehearsal.say(f"changed for the rehearsal: {change}")
    commit = rehearsal.repository.commit("A release as it is rehearsed")
    rehearsal.person_runs("cdk", "bootstrap", "--ci")
    rehearsal.person_runs("cdk", "deploy", STACK, "--require-approval", "never", "--ci")
    pipeline = rehearsal.runner().pipeline
    rehearsal.say(f"stages: {', '.join(pipeline.stages)}")
    check_connection(pipeline, rehearsal.roles.as_owner("iam"))
    rehearsal.say("every role that uses the connection may, by the service in the connection's ARN")
    return commit


def new_artifacts(rehearsal: Rehearsal, commit: str) -> Kept:
    """A release of artifacts that were never measured ends with proposals, before production."""
    rehearsal.say("## A release of new artifacts: beta, and a recommendation is proposed for each endpoint")
    kept, outcomes = rehearsal.release(commit)
    _expect_success(outcomes)
    _show(rehearsal, outcomes, "ParityGate-", "SmokeTest-", "PerformanceGate-", "Propose-")
    check_connection(rehearsal.runner().pipeline, rehearsal.roles.as_owner("iam"))
    branches = rehearsal.repository.branches()
    for branch in branches:
        rehearsal.say(f"the repository has the branch {branch}")
    if len(branches) != len(workload_changes.ENDPOINTS):
        raise Unexpected(
            f"{len(branches)} recommendations were proposed, and {len(workload_changes.ENDPOINTS)} are due."
        )
    return kept


def to_production(rehearsal: Rehearsal, before: Kept) -> Kept:
    """The proposals are merged, and the release of the merge reaches production with all five workloads."""
    rehearsal.say("## The proposals are merged: the next release reaches production, with all five workloads")
    for change in workload_changes.reviewed(rehearsal.repository):
        rehearsal.say(f"reviewed: {change}")
    made = _built(rehearsal, before, "query_intent")["archive_sha256"]
    rehearsal.say(f"reviewed: {workload_changes.recommendation_of_query_intent(rehearsal.repository, made)}")
    kept, outcomes = rehearsal.release(rehearsal.repository.commit("The recommendations, reviewed"))
    _expect_success(outcomes)
    _show(rehearsal, outcomes, "Build-", "PerformanceGate-", "Propose-")
    stacks = rehearsal.roles.as_owner("cloudformation").describe_stacks()["Stacks"]
    deployed = sorted(each["StackName"] for each in stacks if each["StackName"].startswith("Production-"))
    for name in deployed:
        rehearsal.say(f"{name}: deployed")
    workloads = [name for name in deployed if "Network" not in name]
    if len(workloads) != 5:
        raise Unexpected(f"{len(workloads)} workloads are in production, and all five are due: {', '.join(workloads)}.")
    return kept


def stopped_by_lint(rehearsal: Rehearsal) -> None:
    rehearsal.say("## Stopped by the lint: the archive's model has no input of the name that requests use")
    with _branch(rehearsal):
        rehearsal.repository.edit(
            "workloads/spellcheck/payloads.jsonl", lambda text: text.replace('{"text"', '{"query"', 1)
        )
        commit = rehearsal.repository.commit("A payload of another model")
        _, outcomes = rehearsal.run(["Source/Files", "Build/Build-spellcheck"], Kept(commit=commit))
    _expect_stop(rehearsal, outcomes, "Build-spellcheck", "error payload-input")


def stopped_by_parity(rehearsal: Rehearsal, before: Kept) -> None:
    rehearsal.say("## Stopped by the parity gate: the model on its chip is compared with limits that it does not keep")
    rehearsal.say("the build and what was recorded of it are those of the release before")
    with _branch(rehearsal):
        file = "workloads/question_answering/workload.toml"
        rehearsal.repository.edit(
            file, lambda text: text.replace("max_logit_difference = 1.0", "max_logit_difference = 1e-9")
        )
        kept = _kept_for(before, rehearsal.repository.commit("Limits that no bfloat16 keeps"))
        _, outcomes = rehearsal.run(["Source/Files", "Build/ParityGate-question_answering"], kept)
    _expect_stop(rehearsal, outcomes, "ParityGate-question_answering", "The compiled model differs from the original")


def stopped_by_smoke_test(rehearsal: Rehearsal, before: Kept) -> None:
    rehearsal.say("## Stopped by the smoke test: the endpoint refuses what the workload sends")
    with _branch(rehearsal):
        longest = json.dumps({"text": "a far too long query " * 40}) + "\n"
        rehearsal.repository.edit("workloads/spellcheck/payloads.jsonl", lambda text: longest + text)
        kept = _kept_for(before, rehearsal.repository.commit("A payload that no model of this workload takes"))
        names = [
            "Source/Files",
            "Beta/SpellcheckStack.Prepare",
            "Beta/SpellcheckStack.Deploy",
            "Beta/SmokeTest-spellcheck",
        ]
        _, outcomes = rehearsal.run(names, kept)
    _expect_stop(rehearsal, outcomes, "SmokeTest-spellcheck", "tokens, at most 64 are allowed")


def stopped_by_performance(rehearsal: Rehearsal, before: Kept) -> None:
    rehearsal.say("## Stopped by the performance gate: a candidate ten times slower than what production serves")
    rehearsal.say("the candidate is the measured run, with each latency times ten and each rate by ten: replaced here")
    slower = _slower(rehearsal, before, "Measure_spellcheck_Output")
    _, outcomes = rehearsal.run(["Beta/PerformanceGate-spellcheck"], slower)
    _expect_stop(rehearsal, outcomes, "PerformanceGate-spellcheck", "Regression beyond the noise")


def push_fails(rehearsal: Rehearsal, first: Kept) -> None:
    rehearsal.say("## A push that fails: the proposal is kept as a patch, and the release goes on")
    rehearsal.repository.protect(True)
    try:
        kept, outcomes = rehearsal.run(["Source/Clone", "Beta/Propose-spellcheck"], first)
    finally:
        rehearsal.repository.protect(False)
    _expect_success(outcomes)
    _show(rehearsal, outcomes, "Propose-")
    folder = _unpacked(rehearsal, kept, "Propose_spellcheck_Output")
    for file in sorted(folder.iterdir()):
        rehearsal.say(f"the step's output has {file.name}")
    if not list(folder.glob("*.patch")):
        raise Unexpected("The proposal that could not be pushed is not among the step's output.")


def canary_rolled_back(rehearsal: Rehearsal, before: Kept) -> None:
    rehearsal.say("## A canary that is rolled back: an alarm of the endpoint goes off while production is updated")
    cloudwatch = rehearsal.roles.as_owner("cloudwatch")
    alarms = [each["AlarmName"] for each in cloudwatch.describe_alarms()["MetricAlarms"]]
    endpoint = "Production-SpellcheckStack"
    (latency,) = (name for name in alarms if name.startswith(f"{endpoint}-") and "ModelLatency" in name)
    with _branch(rehearsal):

        def another_count(document: dict[str, Any]) -> None:
            document["recommended"]["instance_count"] = 4
            document["recommended"]["autoscaling"]["max_capacity"] = 8

        rehearsal.repository.edit_json("workloads/spellcheck/recommendation.json", another_count)
        kept = _kept_for(before, rehearsal.repository.commit("Another fleet"))
        stack = "Production/SpellcheckStack"
        kept, prepared = rehearsal.run(["Source/Files", "Build/Synth", f"{stack}.Prepare"], kept)
        _expect_success(prepared)
        with _alarm_during_update(rehearsal, endpoint, latency):
            _, outcomes = rehearsal.run([f"{stack}.Deploy"], kept)
    rehearsal.say(f"while {endpoint} was Updating, its alarm of ModelLatency was set to ALARM by hand")
    _expect_stop(rehearsal, outcomes, "SpellcheckStack.Deploy", f"{latency} is in ALARM")
    rehearsal.say(f"{endpoint} is {_status_of(rehearsal, endpoint)()}")
    asking = ["python", "-m", "inference_recommender", "invoke", "spellcheck", "--endpoint", endpoint]
    for line in rehearsal.person_runs(*asking, "ergonomic webcam for travelles"):
        rehearsal.say(f"  {line}")


@contextmanager
def _alarm_during_update(rehearsal: Rehearsal, endpoint: str, alarm: str) -> Iterator[None]:
    """Sets the alarm as soon as the endpoint is Updating in the block. Raises `Unexpected` where it never was."""
    cloudwatch, status = rehearsal.roles.as_owner("cloudwatch"), _status_of(rehearsal, endpoint)
    ended, went_off = Event(), Event()

    def watch() -> None:
        while not ended.wait(POLL_S):
            if status() == "Updating":
                cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a rehearsal")
                went_off.set()
                return

    watching = Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="a rehearsal")
    if not went_off.is_set():
        raise Unexpected(f"{endpoint} was never Updating while its stack was deployed.")


def _status_of(rehearsal: Rehearsal, endpoint: str) -> Callable[[], str]:
    sagemaker = rehearsal.roles.as_owner("sagemaker")
    return lambda: str(sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointStatus"])


def _kept_for(before: Kept, commit: str) -> Kept:
    """Returns what an earlier release kept, for a commit that has its builds."""
    return Kept(commit=commit, artifacts=before.artifacts, variables=before.variables)


@contextmanager
def _branch(rehearsal: Rehearsal) -> Iterator[None]:
    """Takes back, at the block's end, all that was committed in it."""
    repository = rehearsal.repository
    head = repository.head()
    try:
        yield
    finally:
        repository.git("reset", "--quiet", "--hard", head)
        repository.git("push", "--quiet", "--force", "origin", "HEAD:main")


def _expect_success(outcomes: Sequence[Outcome]) -> None:
    if (failed := failure_of(outcomes)) is not None:
        action, last = failed.action, "\n".join(failed.log[-15:])
        raise Unexpected(f"{action.stage}/{action.name} failed, and should not: {failed.failure}\n{last}")


def _expect_stop(rehearsal: Rehearsal, outcomes: Sequence[Outcome], name: str, because: str) -> None:
    """Shows what the action said that stopped the release.

    Raises `Unexpected` where another action did, or none, or where neither the failure nor what was said has `because`.
    """
    last = outcomes[-1]
    ended = "\n".join([f"{last.action.name} {'failed' if last.failure else 'succeeded'}.", *last.log[-15:]])
    if last.action.name != name or last.failure is None:
        raise Unexpected(f"The release should stop at {name}: {ended}")
    if not any(because in line for line in (str(last.failure), *last.log)):
        raise Unexpected(f"The release should stop at {name} because of '{because}': {ended}")
    for line in said(last):
        rehearsal.say(f"  {line}")


def _show(rehearsal: Rehearsal, outcomes: Sequence[Outcome], *beginnings: str) -> None:
    """Says what actions printed whose names begin so."""
    for outcome in outcomes:
        if outcome.action.name.startswith(beginnings):
            rehearsal.say(f"{outcome.action.name} said:")
            for line in said(outcome):
                rehearsal.say(f"  {line}")


def said(outcome: Outcome) -> list[str]:
    """Returns what the last command of an action printed that is no progress and no installation."""
    lines = list(outcome.log)
    starts = [number for number, line in enumerate(lines) if line.startswith(COMMAND) and FROM_LOCKS not in line]
    last = lines[starts[-1] + 1 :] if starts else []
    return [line for line in last if line.strip()]


def _unpacked(rehearsal: Rehearsal, kept: Kept, artifact: str) -> Path:
    runner = rehearsal.runner()
    folder = rehearsal.folder / "unpacked" / artifact
    shutil.rmtree(folder, ignore_errors=True)
    runner.storage.get(kept.artifacts[artifact], folder, runner.pipeline.role_arn)
    return folder


def _built(rehearsal: Rehearsal, kept: Kept, workload: str) -> dict[str, Any]:
    """Returns the artifact.json of the workload's build."""
    (name,) = (name for name in kept.artifacts if name.startswith(f"Build_{workload}_build"))
    document: dict[str, Any] = json.loads((_unpacked(rehearsal, kept, name) / "artifact.json").read_text("utf-8"))
    return document


def _slower(rehearsal: Rehearsal, kept: Kept, artifact: str) -> Kept:
    """Returns `kept` with a run in which everything takes ten times as long."""
    folder = _unpacked(rehearsal, kept, artifact)
    file = folder / "measurements.json"
    file.write_text(json.dumps(_times_ten(json.loads(file.read_text("utf-8")))), "utf-8")
    runner = rehearsal.runner()
    key = runner.storage.put(artifact, folder, runner.pipeline.role_arn)
    return Kept(commit=kept.commit, artifacts={**kept.artifacts, artifact: key}, variables=kept.variables)


def _times_ten(node: Any, key: str = "") -> Any:
    if isinstance(node, dict):
        return {
            name: _times_ten(value, name if not key.endswith("latency_ms") else key) for name, value in node.items()
        }
    if isinstance(node, list):
        return [_times_ten(value, key) for value in node]
    if isinstance(node, int | float) and not isinstance(node, bool):
        if "latency" in key:
            return node * 10
        if "invocations" in key:
            return node / 10 if isinstance(node, float) else node // 10
    return node
