"""`jobs`: list, describe, explain and stop Inference Recommender jobs, and delete what tests have left behind."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from rich.console import Console

from aws_api.errors import AwsRefused, NotFound
from aws_api.expiry import TAG
from aws_api.explain import LOG_LINES, Explanations, Failure, explain, log_command
from aws_api.logs import first_log
from aws_api.sagemaker import JOB_LOG, MEASURED_ON_TAG, ExpiringResource, SageMakerAccount, container_logs
from inference_recommender.measure.job_service import TERMINAL, stop_and_wait
from inference_recommender.measurement import Measurement, measurements
from inference_recommender.output import Commands, add_command, stdout_console, tell
from inference_recommender.report.candidates import cores, cpu_utilization
from inference_recommender.report.document import Report, Table, table
from inference_recommender.report.text import show
from inference_recommender.run_folder import as_json
from workloads import Interrupted, Unavailable, UsageError
from workloads.document import Document
from workloads.instances import instance_shape

JOBS = tuple((name, name, "") for name in ("job", "kind", "status", "created, UTC", "model"))
TESTS = (
    ("test", "test", ""),
    ("closed_loop_invocations_per_minute", "closed-loop /min per instance", ",.0f"),
    ("model_latency_ms", "model latency, ms", ".4g"),
    ("cpu", "CPU %", ""),
    ("memory_percent", "memory %", ".0f"),
)
RESOURCES = tuple((name, name, "") for name in ("kind", "name", "expires, UTC", "outcome"))
LATEST = 20
"""Default number of jobs that `list` shows."""
DESCRIPTION = f"""list [WORKLOAD]   Shows the latest jobs, or those whose name contains the workload's.
describe JOB      Shows a job and its tests.
explain JOB       Prints the likely cause of each failed test, the log line that shows it, and what to do.
stop JOB          Stops a job and waits for its end.
cleanup           Deletes the resources of tests that have expired.

Resources of tests have the tag {TAG}: two hours after the planned
end of their load. A test deletes its own resources; cleanup deletes those that killed processes left. Run it daily.
Exit code 3: AWS rejected a deletion or is unreachable."""


Outcome = Literal["kept", "would be deleted", "deleted", "already deleted", "rejected"]


class CleanupResult(Document):
    """The outcome for one resource."""

    kind: str
    name: str
    expires_at: datetime
    outcome: Outcome
    reason: str | None = None
    """Why AWS rejected the deletion."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "jobs list", DESCRIPTION)
    parser.add_argument("action", choices=tuple(ACTIONS))
    parser.add_argument("name", nargs="?", metavar="NAME", help="the job, or for list a workload")
    parser.add_argument("--limit", type=int, default=LATEST, metavar="N", help=f"of list; default: {LATEST}")
    parser.add_argument("--dry-run", action="store_true", help="of cleanup: show what would be deleted")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=_jobs)


def _jobs(options: argparse.Namespace, stderr: Console) -> int:
    if options.action in ("describe", "explain", "stop") and options.name is None:
        raise UsageError(f"jobs {options.action}: needs the name of a job. `jobs list` shows the names.")
    account = SageMakerAccount()
    if options.action == "cleanup":
        account.notify = lambda text: tell(stderr, text, "yellow")
    return ACTIONS[options.action](options, account, stderr)


def _list(options: argparse.Namespace, account: SageMakerAccount, stderr: Console) -> int:
    jobs = account.list_jobs(options.name and options.name.replace("_", "-"), options.limit)
    if options.json:
        print(as_json(jobs))
        return 0
    if not jobs:
        tell(stderr, "No jobs.")
        return 0
    rows = []
    for job in jobs:
        model = job.get("ModelName") or job.get("ModelPackageVersionArn", "").rpartition("model-package/")[2]
        rows.append((job["JobName"], job["JobType"], job["Status"], f"{job['CreationTime']:%Y-%m-%d %H:%M}", model))
    show(_report("latest first", table("jobs", "Jobs", JOBS, rows), f"{len(jobs)} jobs."), stdout_console())
    return 0


def _describe(options: argparse.Namespace, account: SageMakerAccount, stderr: Console) -> int:
    described, steps = account.existing_job(options.name), account.job_steps(options.name)
    if options.json:
        print(as_json({"job": described, "steps": steps}))
        return 0
    tests = measurements(described, steps, {})
    machine = account.tags(described["JobArn"]).get(MEASURED_ON_TAG)
    failures = tuple(f"{_name(test)}: {test.failure_reason}" for test in tests if test.failure_reason)
    if failures:
        failures += (f"Likely causes: `python -m inference_recommender jobs explain {options.name}`.",)
    report = _report(
        _head(described), _tests(tests, cores(machine) if machine else None), described["Status"], failures
    )
    show(report, stdout_console())
    return 0


def _explain(options: argparse.Namespace, account: SageMakerAccount, stderr: Console) -> int:
    explanations = explain_job(account, options.name)
    print(explanations.model_dump_json(indent=2) if options.json else explanations.text())
    return 0


def explain_job(account: SageMakerAccount, name: str) -> Explanations:
    """Explains each failed test of an Inference Recommender job. Raises `UsageError` for an unknown name."""
    job = account.existing_job(name)
    steps = [step for step in account.job_steps(name) if step["Status"] == "FAILED"]
    failures = [_failed_test(account, name, step.get("InferenceBenchmark", {})) for step in steps]
    if not failures and job["Status"] == "FAILED":
        log = first_log(account, [(JOB_LOG, f"{name}/")], LOG_LINES)
        read_on = log_command(account, log, f"sagemaker describe-inference-recommendations-job --job-name {name}")
        reasons = (job["FailureReason"],) if "FailureReason" in job else ()
        failures = [Failure(subject=f"job {name}", status="FAILED", reasons=reasons, log=log, read_on=read_on)]
    return Explanations(name=f"job {name}", status=job["Status"], explanations=tuple(map(explain, failures)))


def _failed_test(account: SageMakerAccount, job: str, benchmark: Mapping[str, Any]) -> Failure:
    configuration = benchmark.get("EndpointConfiguration", {})
    endpoint = configuration.get("EndpointName")
    log = first_log(account, container_logs(job, endpoint) if endpoint else [(JOB_LOG, f"{job}/")], LOG_LINES)
    return Failure(
        subject=f"test on {configuration.get('InstanceType', 'an endpoint')}",
        status="FAILED",
        reasons=(benchmark["FailureReason"],) if "FailureReason" in benchmark else (),
        log=log,
        read_on=log_command(account, log, f"sagemaker list-inference-recommendations-job-steps --job-name {job}"),
    )


def _stop(options: argparse.Namespace, account: SageMakerAccount, stderr: Console) -> int:
    account.existing_job(options.name)
    status = stop_and_wait(account, options.name)["Status"]
    document = json.dumps({"job_name": options.name, "status": status})
    print(document if options.json else f"{options.name}: {status}")
    if status not in TERMINAL:
        stderr.print("The job is stopping. `jobs describe` shows when it has ended.", style="yellow")
    return 0


def _cleanup(options: argparse.Namespace, account: SageMakerAccount, stderr: Console) -> int:
    results: list[CleanupResult] = []
    try:
        results.extend(cleanup(account, datetime.now(UTC), dry_run=options.dry_run))
    except KeyboardInterrupt:
        raise Interrupted("Interrupted. Run it again for the resources that are left.") from None
    finally:
        _show(results, as_json=options.json)
    if rejected := [one for one in results if one.outcome == "rejected"]:
        reasons = "\n".join(f"{one.kind} {one.name}: {one.reason}" for one in rejected)
        raise Unavailable(f"{reasons}\nAll others are deleted. Run it again for these.")
    return 0


def cleanup(account: SageMakerAccount, now: datetime, *, dry_run: bool) -> Iterator[CleanupResult]:
    """Deletes expired resources with the tag, endpoints first, because they cost money. One that cannot be deleted does
    not stop the others. Raises `AwsUnavailable` if AWS is unreachable.
    """
    for one in account.expiring_resources():
        outcome, reason = _clean_up(account, one, now, dry_run=dry_run)
        yield CleanupResult(kind=one.kind, name=one.name, expires_at=one.expires_at, outcome=outcome, reason=reason)


def _clean_up(
    account: SageMakerAccount, resource: ExpiringResource, now: datetime, *, dry_run: bool
) -> tuple[Outcome, str | None]:
    if resource.expires_at > now:
        return "kept", None
    if resource.status == "Deleting":
        return "already deleted", None
    if dry_run:
        return "would be deleted", None
    try:
        account.delete_resource(resource)
    except NotFound:
        return "already deleted", None
    except AwsRefused as error:
        return "rejected", str(error)
    return "deleted", None


ACTIONS = {"list": _list, "describe": _describe, "explain": _explain, "stop": _stop, "cleanup": _cleanup}


def _head(described: Mapping[str, Any]) -> str:
    tested = described["InputConfig"]
    endpoints = ", ".join(endpoint["EndpointName"] for endpoint in tested.get("Endpoints", []))
    facts = {
        "job": described["JobName"],
        "kind": described["JobType"],
        "status": described["Status"],
        "reason": described.get("FailureReason"),
        "model": tested.get("ModelName") or tested.get("ModelPackageVersionArn"),
        "endpoint": endpoints or None,
        "traffic": tested.get("TrafficPattern", {}).get("TrafficType"),
        "created": f"{described['CreationTime']:%Y-%m-%d %H:%M:%S %Z}",
        "ended": f"{ended:%Y-%m-%d %H:%M:%S %Z}" if (ended := described.get("CompletionTime")) else None,
    }
    return "\n".join(f"{name:<10}{value}" for name, value in facts.items() if value)


def _tests(tests: tuple[Measurement, ...], local_vcpus: int | None) -> Table:
    """Returns a row for each test; `local_vcpus` is of the machine that stands in for every instance type, if any."""
    rows = []
    for test in tests:
        shape = instance_shape(test.instance_type)
        cpu = cpu_utilization(test.cpu_utilization_percent, local_vcpus or (shape.vcpus if shape else None)) or None
        rate, memory = test.closed_loop_invocations_per_minute, test.memory_utilization_percent
        rows.append((_name(test), rate, test.model_latency_ms, cpu, memory))
    return table("tests", "Tests", TESTS, rows)


def _name(test: Measurement) -> str:
    """Returns what the test ran on: the endpoint's name if the job does not report the type."""
    return test.endpoint_name if test.instance_type == "unknown" else test.title


def _show(results: Sequence[CleanupResult], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"resources": [one.model_dump(mode="json") for one in results]}, indent=2))
        return
    rows = [(one.kind, one.name, f"{one.expires_at.astimezone(UTC):%Y-%m-%d %H:%M}", one.outcome) for one in results]
    counts = ", ".join(f"{count} {outcome}" for outcome, count in Counter(one.outcome for one in results).items())
    decision = f"{counts}." if counts else f"No resource has the tag {TAG}."
    show(_report("expiring resources", table("resources", "Resources", RESOURCES, rows), decision), stdout_console())


def _report(objective: str, table: Table, decision: str, notes: tuple[str, ...] = ()) -> Report:
    return Report(
        kind="jobs",
        name="jobs",
        workload=None,
        objective=objective,
        verdict="unknown",
        decision=decision,
        tables=(table,),
        notes=notes,
    )
