"""The scenarios of a rehearsal. Each checks its release and raises `Unexpected` if it went another way.

Later scenarios start from the state of an earlier release, so only the actions that they are about run again. The
gates' own behaviour is tested in tests/scripts/test_release_scripts.py.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from typing import Any

from scripts.rehearsal.release import workload_changes
from scripts.rehearsal.release.codebuild import COMMAND
from scripts.rehearsal.release.execution import ExecutionState, Outcome
from scripts.rehearsal.release.permissions import check_connection
from scripts.rehearsal.release.rehearsal import TAIL_LINES, Rehearsal, Unexpected, failed_outcome

Say = Callable[[str], None]
States = dict[str, ExecutionState]
"""The state of each workload's last release."""
INSTALLATION = "install_locked.sh"
POLL_S = 0.1


def new_artifacts(rehearsal: Rehearsal) -> States:
    """Deploys the pipelines. A release of artifacts that were never measured ends with proposals, before production."""
    rehearsal.say("## 1. A release of new artifacts ends with proposed recommendations")
    for change in workload_changes.as_rehearsed(rehearsal.repository):
        rehearsal.say(f"changed for the rehearsal: {change}")
    commit = rehearsal.repository.commit("A rehearsed release")
    rehearsal.run_as_owner("cdk", "bootstrap", "--ci")
    rehearsal.run_as_owner("cdk", "deploy", "*ReleaseStack", "--require-approval", "never", "--ci")
    states = {}
    for workload in workload_changes.WORKLOADS:
        states[workload], outcomes = rehearsal.release(workload, commit)
        _expect_success(outcomes)
        _show(rehearsal, outcomes, "ParityGate", "SmokeTest", "PerformanceGate", "Propose")
        check_connection(rehearsal.runner(workload).pipeline, rehearsal.roles.as_owner("iam"))
    branches, due = len(rehearsal.repository.branches()), len(workload_changes.ENDPOINTS)
    if branches != due:
        raise Unexpected(f"The releases proposed {branches} recommendations instead of {due}.")
    return states


def to_production(rehearsal: Rehearsal, before: States) -> States:
    """Merges the proposals. The releases of the merge bring all five workloads to production."""
    rehearsal.say("## 2. The proposals are merged, and the releases reach production")
    for change in workload_changes.reviewed(rehearsal.repository):
        rehearsal.say(f"reviewed: {change}")
    sha256 = _artifact(rehearsal, before["query_intent"], "query_intent")["archive_sha256"]
    rehearsal.say(f"reviewed: {workload_changes.recommendation_of_query_intent(rehearsal.repository, sha256)}")
    commit = rehearsal.repository.commit("The recommendations, reviewed")
    states = {}
    for workload in workload_changes.WORKLOADS:
        states[workload], outcomes = rehearsal.release(workload, commit)
        _expect_success(outcomes)
        _show(rehearsal, outcomes, "BuildModel", "PerformanceGate", "Propose")
    stacks = rehearsal.roles.as_owner("cloudformation").describe_stacks()["Stacks"]
    names = sorted(each["StackName"] for each in stacks if each["StackName"].startswith("Production-"))
    workloads = [name for name in names if "Network" not in name]
    rehearsal.say(f"deployed: {', '.join(names)}")
    if len(workloads) != 5:
        raise Unexpected(f"{len(workloads)} of 5 workloads are in production: {', '.join(workloads)}.")
    return states


def canary_rolled_back(rehearsal: Rehearsal, before: ExecutionState) -> None:
    """An alarm during the update of production rolls the update back; the endpoint still answers."""
    rehearsal.say("## 3. An alarm rolls a production update back")
    alarms = rehearsal.roles.as_owner("cloudwatch").describe_alarms()["MetricAlarms"]
    names = [each["AlarmName"] for each in alarms]
    endpoint = "Production-SpellcheckStack"
    (latency,) = (name for name in names if name.startswith(f"{endpoint}-") and "ModelLatency" in name)
    repository = rehearsal.repository

    def another_count(document: dict[str, Any]) -> None:
        document["recommended"]["instance_count"] = 4
        document["recommended"]["autoscaling"]["max_capacity"] = 8

    repository.edit_json("workloads/spellcheck/recommendation.json", another_count)
    commit = repository.commit("Another fleet")
    state = replace(before, commit=commit)
    stack = "Production/SpellcheckStack"
    state, prepared = rehearsal.run("spellcheck", ["Source/Files", "Build/Synth", f"{stack}.Prepare"], state)
    _expect_success(prepared)
    with _alarm_during_update(rehearsal, endpoint, latency):
        _, outcomes = rehearsal.run("spellcheck", [f"{stack}.Deploy"], state)
    _expect_stop(rehearsal, outcomes, "SpellcheckStack.Deploy", f"{latency} is in ALARM")
    rehearsal.say(f"{endpoint} is {_status(rehearsal, endpoint)}")
    command = ["python", "-m", "inference_recommender", "invoke", "spellcheck", "--endpoint", endpoint]
    for line in rehearsal.run_as_owner(*command, "ergonomic webcam for travelles"):
        rehearsal.say(f"  {line}")


def another_instance_type(rehearsal: Rehearsal, before: ExecutionState) -> None:
    """A recommendation of another type changes the type of an autoscaled endpoint, which SageMaker alone refuses."""
    rehearsal.say("## 4. A release changes the instance type of an autoscaled endpoint")
    repository, endpoint, other = rehearsal.repository, "Production-SpellcheckStack", "ml.c5.2xlarge"

    def change(document: dict[str, Any]) -> None:
        document["recommended"]["instance_type"] = other

    repository.edit_json("workloads/spellcheck/recommendation.json", change)
    state = replace(before, commit=repository.commit("Another instance type"))
    stack = "Production/SpellcheckStack"
    actions = ["Source/Files", "Build/Synth", "Production/PauseScaling", f"{stack}.Prepare", f"{stack}.Deploy"]
    _, outcomes = rehearsal.run("spellcheck", actions, state)
    _expect_success(outcomes)
    _show(rehearsal, outcomes, "PauseScaling")
    sagemaker = rehearsal.roles.as_owner("sagemaker")
    config = sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointConfigName"]
    (variant,) = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    scaling: Any = rehearsal.roles.as_owner("application-autoscaling")
    targets = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    scaled = any(f"endpoint/{endpoint}/" in target["ResourceId"] for target in targets)
    rehearsal.say(f"{endpoint} is on {variant['InstanceType']}, {'with' if scaled else 'without'} autoscaling")
    if (variant["InstanceType"], scaled) != (other, True):
        raise Unexpected(f"{endpoint} should be on {other} and scale.")


def stopped_by_parity(rehearsal: Rehearsal, before: ExecutionState) -> None:
    """A model that differs from the original is stopped by the parity gate of its chip."""
    rehearsal.say("## 5. The parity gate stops a model that differs from the original")
    rehearsal.repository.edit(
        "workloads/question_answering/workload.toml",
        lambda text: text.replace("max_logit_difference = 1.0", "max_logit_difference = 1e-9"),
    )
    state = replace(before, commit=rehearsal.repository.commit("A limit that no bfloat16 model meets"))
    _, outcomes = rehearsal.run("question_answering", ["Source/Files", "Build/ParityGate"], state)
    _expect_stop(rehearsal, outcomes, "ParityGate", "The compiled model differs from the original")


@contextmanager
def _alarm_during_update(rehearsal: Rehearsal, endpoint: str, alarm: str) -> Iterator[None]:
    """Sets the alarm as soon as the endpoint is Updating. Raises `Unexpected` if it never was."""
    cloudwatch = rehearsal.roles.as_owner("cloudwatch")
    ended, was_set = Event(), Event()

    def watch() -> None:
        while not ended.wait(POLL_S):
            if _status(rehearsal, endpoint) == "Updating":
                cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a rehearsal")
                was_set.set()
                return

    thread = Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="a rehearsal")
    if not was_set.is_set():
        raise Unexpected(f"{endpoint} was never Updating during the deployment of its stack.")


def _status(rehearsal: Rehearsal, endpoint: str) -> str:
    sagemaker = rehearsal.roles.as_owner("sagemaker")
    return str(sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointStatus"])


def _expect_success(outcomes: Sequence[Outcome]) -> None:
    if (failed := failed_outcome(outcomes)) is not None:
        tail = "\n".join(failed.log[-TAIL_LINES:])
        raise Unexpected(f"{failed.action.title} should succeed, and failed: {failed.failure}\n{tail}")


def _expect_stop(rehearsal: Rehearsal, outcomes: Sequence[Outcome], name: str, reason: str) -> None:
    """Prints the last action's output. Raises `Unexpected` if it is another action, or failed for another reason."""
    last = outcomes[-1]
    reasons = (str(last.failure), *last.log)
    if last.action.name != name or last.failure is None or not any(reason in line for line in reasons):
        tail = "\n".join(last.log[-TAIL_LINES:])
        raise Unexpected(f"The release should stop at {name} with '{reason}', not at {last.action.name}: {tail}")
    for line in last_output(last):
        rehearsal.say(f"  {line}")


def _show(rehearsal: Rehearsal, outcomes: Sequence[Outcome], *prefixes: str) -> None:
    for outcome in outcomes:
        if outcome.action.name.startswith(prefixes):
            rehearsal.say(f"{outcome.action.name} printed:")
            for line in last_output(outcome):
                rehearsal.say(f"  {line}")


def last_output(outcome: Outcome) -> list[str]:
    """Returns what the last command of an action printed, installations left out."""
    lines = list(outcome.log)
    starts = [number for number, line in enumerate(lines) if line.startswith(COMMAND) and INSTALLATION not in line]
    return [line for line in lines[starts[-1] + 1 :] if line.strip()] if starts else []


def _artifact(rehearsal: Rehearsal, state: ExecutionState, workload: str) -> dict[str, Any]:
    """Returns the artifact.json of the workload's build."""
    (name,) = (name for name in state.artifacts if name.startswith("BuildModel_build"))
    runner, folder = rehearsal.runner(workload), rehearsal.folder / "unpacked"
    runner.storage.get(state.artifacts[name], folder, runner.pipeline.role_arn)
    document: dict[str, Any] = json.loads((folder / "artifact.json").read_text("utf-8"))
    return document
