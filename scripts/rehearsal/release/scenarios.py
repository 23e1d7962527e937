"""The scenarios of a rehearsal. Each checks its release and raises `Unexpected` if it went another way.

Later scenarios start from the state of an earlier release, so only the actions that they are about run again. The
gates' own behaviour is tested in tests/scripts/test_release_scripts.py.
"""

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
PRODUCTION_ENDPOINT = "Production-SpellcheckStack"
TO_PRODUCTION = (
    "Source/Files",
    "Build/Synth",
    "Production/PauseScaling",
    "Production/SpellcheckStack.Prepare",
    "Production/SpellcheckStack.Deploy",
)
"""The actions that bring a new recommendation of spellcheck to production."""
INSTALLATION = "install_locked.sh"
POLL_S = 0.1


def new_artifacts(rehearsal: Rehearsal, workloads: Sequence[str] = workload_changes.WORKLOADS) -> States:
    """Deploys the pipelines. A release of artifacts that were never measured ends with proposals, before production."""
    rehearsal.say("## 1. A release of new artifacts ends with proposed recommendations")
    for change in workload_changes.as_rehearsed(rehearsal.repository):
        rehearsal.say(f"changed for the rehearsal: {change}")
    commit = rehearsal.repository.commit("A rehearsed release")
    rehearsal.run_as_owner("cdk", "bootstrap", "--ci")
    rehearsal.run_as_owner("cdk", "deploy", "*ReleaseStack", "--require-approval", "never", "--ci")
    states = {}
    for workload in workloads:
        states[workload], outcomes = rehearsal.release(workload, commit)
        _expect_success(outcomes)
        _show(rehearsal, outcomes, "ParityGate", "SmokeTest", "PerformanceGate", "Propose")
        check_connection(rehearsal.runner(workload).pipeline, rehearsal.roles.as_owner("iam"))
    branches, due = len(rehearsal.repository.branches()), len(set(workloads) & {*workload_changes.MEASURED})
    if branches != due:
        raise Unexpected(f"The releases proposed {branches} recommendations instead of {due}.")
    return states


def to_production(rehearsal: Rehearsal, before: States) -> States:
    """Merges the proposals. The releases of the merge bring every workload to production."""
    rehearsal.say("## 2. The proposals are merged, and the releases reach production")
    for change in workload_changes.reviewed(rehearsal.repository):
        rehearsal.say(f"reviewed: {change}")
    commit = rehearsal.repository.commit("The recommendations, reviewed")
    states = {}
    for workload in before:
        states[workload], outcomes = rehearsal.release(workload, commit)
        _expect_success(outcomes)
        _show(rehearsal, outcomes, "BuildModel", "PerformanceGate", "Propose")
    stacks = rehearsal.roles.as_owner("cloudformation").describe_stacks()["Stacks"]
    names = sorted(each["StackName"] for each in stacks if each["StackName"].startswith("Production-"))
    workloads = [name for name in names if "Network" not in name]
    rehearsal.say(f"deployed: {', '.join(names)}")
    if len(workloads) != len(before):
        raise Unexpected(f"{len(workloads)} of {len(before)} workloads are in production: {', '.join(workloads)}.")
    return states


def canary_rolled_back(rehearsal: Rehearsal, before: ExecutionState) -> None:
    """An alarm of the new fleet rolls an update of production back; the endpoint still answers."""
    rehearsal.say("## 3. An alarm rolls a production update back")
    with _alarm_of_new_fleet(rehearsal, PRODUCTION_ENDPOINT) as alarms:
        outcomes = _another_count(rehearsal, before, 4)
    _expect_stop(rehearsal, outcomes, "SpellcheckStack.Deploy", f"{alarms[0]} is in ALARM")
    rehearsal.say(f"{PRODUCTION_ENDPOINT} is {_status(rehearsal, PRODUCTION_ENDPOINT)}")
    command = ["python", "-m", "inference_recommender", "invoke", "spellcheck", "--endpoint", PRODUCTION_ENDPOINT]
    for line in rehearsal.run_as_owner(*command, "ergonomic webcam for travelles"):
        rehearsal.say(f"  {line}")


def fix_under_alarm(rehearsal: Rehearsal, before: ExecutionState) -> None:
    """The alarms of a slow version are on. The release of its fix is not rolled back."""
    rehearsal.say("## 4. A version whose alarms are on is fixed")
    cloudwatch = rehearsal.roles.as_owner("cloudwatch")
    alarms = cloudwatch.describe_alarms(AlarmNamePrefix=f"{PRODUCTION_ENDPOINT}-")["MetricAlarms"]
    names = [alarm["AlarmName"] for alarm in alarms if "ModelLatency" in alarm["AlarmName"]]
    for name in names:
        cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="a rehearsal")
    rehearsal.say(f"in ALARM: {', '.join(names)}")
    _expect_success(_another_count(rehearsal, before, 3))
    rehearsal.say(f"{PRODUCTION_ENDPOINT} is {_status(rehearsal, PRODUCTION_ENDPOINT)}")


def _another_count(rehearsal: Rehearsal, before: ExecutionState, count: int) -> list[Outcome]:
    """Releases a recommendation of `count` instances of spellcheck to production."""

    def change(document: dict[str, Any]) -> None:
        document["recommended"]["instance_count"] = count
        document["recommended"]["autoscaling"] |= {"min_capacity": count, "max_capacity": 2 * count}

    rehearsal.repository.edit_json("workloads/spellcheck/recommendation.json", change)
    state = replace(before, commit=rehearsal.repository.commit(f"A fleet of {count}"))
    _, outcomes = rehearsal.run("spellcheck", TO_PRODUCTION, state)
    return outcomes


def another_instance_type(rehearsal: Rehearsal, before: ExecutionState) -> None:
    """A recommendation of another type changes the type of an autoscaled endpoint, which SageMaker alone refuses."""
    rehearsal.say("## 5. A release changes the instance type of an autoscaled endpoint")
    repository, endpoint, other = rehearsal.repository, PRODUCTION_ENDPOINT, workload_changes.GPU_TYPES[1]

    def change(document: dict[str, Any]) -> None:
        document["recommended"]["instance_type"] = other

    repository.edit_json("workloads/spellcheck/recommendation.json", change)
    state = replace(before, commit=repository.commit("Another instance type"))
    _, outcomes = rehearsal.run("spellcheck", TO_PRODUCTION, state)
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
    rehearsal.say("## 7. The parity gate stops a model that differs from the original")
    rehearsal.repository.edit(
        "workloads/question_answering/workload.toml",
        lambda text: text.replace("max_logit_difference = 1.0", "max_logit_difference = 1e-9"),
    )
    state = replace(before, commit=rehearsal.repository.commit("A limit that no bfloat16 model meets"))
    _, outcomes = rehearsal.run("question_answering", ["Source/Files", "Build/ParityGate"], state)
    _expect_stop(rehearsal, outcomes, "ParityGate", "The compiled model differs from the original")


def stopped_by_size(rehearsal: Rehearsal, before: ExecutionState) -> None:
    """An assembly that CodePipeline does not pass to CloudFormation is stopped before anything is deployed."""
    rehearsal.say("## 6. An assembly over the limit is stopped before anything is deployed")
    rehearsal.repository.edit(
        "scripts/release/publish_archives.py", lambda text: text.replace("256_000_000", "100_000")
    )
    rehearsal.say("changed for the rehearsal: the limit is 100 kB, which the templates exceed")
    state = replace(before, commit=rehearsal.repository.commit("A lower limit"))
    _, outcomes = rehearsal.run("spellcheck", TO_PRODUCTION, state)
    _expect_stop(rehearsal, outcomes, "Synth", "Nothing was deployed")


@contextmanager
def _alarm_of_new_fleet(rehearsal: Rehearsal, endpoint: str) -> Iterator[list[str]]:
    """Sets the latency alarm of the new fleet while the endpoint is Updating. Raises `Unexpected` if it never was.

    The list has the alarm's name at the end of the block.
    """
    cloudwatch, sagemaker = (rehearsal.roles.as_owner(name) for name in ("cloudwatch", "sagemaker"))
    old = sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointConfigName"]
    ended = Event()
    names: list[str] = []

    def watch() -> None:
        while not names and not ended.wait(POLL_S):
            if _status(rehearsal, endpoint) != "Updating":
                continue
            for alarm in cloudwatch.describe_alarms(AlarmNamePrefix=f"{endpoint}-")["MetricAlarms"]:
                config = {each["Name"]: each["Value"] for each in alarm["Dimensions"]}.get("EndpointConfigName")
                if config not in (None, old) and alarm["AlarmName"].endswith("-ModelLatency"):
                    names.append(alarm["AlarmName"])
                    cloudwatch.set_alarm_state(AlarmName=names[0], StateValue="ALARM", StateReason="a rehearsal")

    thread = Thread(target=watch)
    thread.start()
    try:
        yield names
    finally:
        ended.set()
        thread.join()
    if not names:
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
