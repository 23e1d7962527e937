"""Requests while a fleet changes: sent, answered, retried, failed, and computed twice by the model.

  python benchmarks/changes.py                 all changes
  python benchmarks/changes.py canary killed   some of them

Our client sends Poisson arrivals with its retries and, at the same time, without. An endpoint of a local account has
two instances, which are Tritons. A task of the ECS service is the Neuron server with a stand-in for the device. Two
tasks share a port in place of a load balancer.

Goals: with retries no request fails; without, at most those in flight when an instance or a task is killed. An instance
that hangs has no goal without retries, and with them it needs `Retries(timeouts=True)`: the account replaces it after
two health checks of 2 s. SageMaker does not document after how many checks it replaces an unhealthy instance. It stops
an instance with SIGTERM and 30 s later with SIGKILL, so it could lose a request that takes longer
(https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html).
"""

import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import goals, harness, neuron_server
from benchmarks.goals import Goal
from inference_recommender.client import HttpServer, InferenceClient, Retries, SageMakerEndpoint, servers
from inference_recommender.client.inference import Server
from inference_recommender.kserve import Body
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import Endpoints, clients, upload, wait_until
from workloads import ProjectError

RATE, BEFORE_S, AFTER_S, CONNECTIONS = 20.0, 1.0, 1.5, 128
"""Requests a second of each client, and the seconds for which it sends before and after a change."""
NAME, ALARM, STARTED, SHIFTED = "changing", "too-slow", "is answered by", "the new fleet takes"
BAKE, STEP = {"WaitIntervalInSeconds": 60}, {"Type": "INSTANCE_COUNT", "Value": 1}
ROUTES: dict[str, dict[str, Any]] = {
    "all-at-once": {"Type": "ALL_AT_ONCE"},
    "canary": {"Type": "CANARY", "CanarySize": STEP},
    "linear": {"Type": "LINEAR", "LinearStepSize": STEP},
    "rollback": {"Type": "LINEAR", "LinearStepSize": STEP},
}
UPDATES = {name: {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": BAKE | ROUTES[name]}} for name in ROUTES}
UPDATES["rolling"] = {"RollingUpdatePolicy": {"MaximumBatchSize": STEP, **BAKE}}
COUNTS, SIGNALS = {"scale-out": 3, "scale-in": 2}, {"killed": signal.SIGKILL, "hangs": signal.SIGSTOP}
TASKS = {"task-replaced": signal.SIGTERM, "task-killed": signal.SIGKILL}
CHANGES = (*UPDATES, *COUNTS, *SIGNALS, *TASKS)
FIGURES = ("sent", "answered", "retried", "failed", "twice", "in flight")
numbers = itertools.count()
Change = Callable[[str], float]
"""Makes a change. Returns the seconds of `time.monotonic` when it began or sent its signal."""


class Caller:
    """Our client, in front of a server whose calls it counts. A text is the caller's letter and a number in letters."""

    def __init__(self, server: Server, letter: str, retries: Retries) -> None:
        self._server, self._letter, self._client = server, letter, InferenceClient(self, retries=retries)
        self._attempts: list[float] = []
        self.calls: list[tuple[float, float, str]] = []
        """Seconds when a request was sent and when it ended, and its failure."""

    def send(self, request: Body, within_s: float) -> Body:
        self._attempts.append(within_s)
        return self._server.send(request, within_s)

    def call(self, number: int) -> None:
        letters = [self._letter, *(chr(ord("a") + int(digit)) for digit in f"{number:06}")]
        sent_s, failure = time.monotonic(), ""
        try:
            self._client.infer({"TEXT": [[" ".join(letters)]]})
        except ProjectError as error:
            failure = str(error)
        self.calls.append((sent_s, time.monotonic(), failure))

    def figures(self, changed_s: float, computed: Counter[str]) -> dict[str, int]:
        """Returns `FIGURES`. `computed` counts how often the model computed each text."""
        sent, failed = len(self.calls), sum(bool(failure) for *_, failure in self.calls)
        twice = sum(count > 1 for text, count in computed.items() if text.startswith(self._letter))
        in_flight = sum(sent_s < changed_s < ended_s for sent_s, ended_s, _ in self.calls)
        figures = (sent, sent - failed, len(self._attempts) - sent, failed, twice, in_flight)
        return dict(zip(FIGURES, figures, strict=True))


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("change", nargs="*", metavar="CHANGE", help=f"of {', '.join(CHANGES)} (default: all)")
    names = parser.parse_args().change or CHANGES
    if unknown := sorted({*names} - {*CHANGES}):
        parser.error(f"unknown change {unknown[0]}. Choose from {', '.join(CHANGES)}.")
    rows: dict[str, dict[str, int]] = {}
    print(f"{'change, retries':24}{''.join(f'{each:>10}' for each in FIGURES)}")
    for fleet in (endpoint, service):
        if not (chosen := [name for name in CHANGES if name in names and (name in TASKS) is (fleet is service)]):
            continue
        with tempfile.TemporaryDirectory(prefix="changes_") as folder, fleet(Path(folder)) as (server, change):
            for name in chosen:
                rows |= measure(server, change, name, Path(folder, "computed"))
    return goals.finish("changes", ["boto3", "urllib3"], {"changes": rows}, [*judge(rows)])


def judge(rows: Mapping[str, Mapping[str, int]]) -> Iterator[Goal]:
    for cell, figures in rows.items():
        name, _, retries = cell.partition(", ")
        limit = figures["in flight"] if retries == "without" and "killed" in name else 0
        if cell != "hangs, without":
            yield Goal(cell=f"{cell}: failed", limit=limit, figure=figures["failed"], at_most=True)


def measure(server: Server, change: Change, name: str, computed: Path) -> dict[str, dict[str, int]]:
    """Sends while a fleet changes. Returns `FIGURES` by client, and prints them with the first failure."""
    callers = {
        "with": Caller(server, "y", Retries(timeouts=name == "hangs")),
        "without": Caller(server, "n", Retries(attempts=1)),
    }
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        now_s = time.monotonic()
        changing, begin_s, end_s = None, now_s + BEFORE_S, float("inf")
        while now_s < end_s:
            now_s += random.expovariate(RATE * len(callers))
            time.sleep(max(0.0, now_s - time.monotonic()))
            threads.submit(random.choice([*callers.values()]).call, next(numbers))
            if changing is None and now_s > begin_s:
                changing = threads.submit(change, name)
            elif changing is not None and changing.done():
                end_s = min(end_s, now_s + AFTER_S)
        assert changing
        changed_s = changing.result()
    texts = Counter(computed.read_text().splitlines())
    rows = {f"{name}, {retries}": caller.figures(changed_s, texts) for retries, caller in callers.items()}
    for (cell, figures), caller in zip(rows.items(), callers.values(), strict=True):
        first = next((failure for *_, failure in caller.calls if failure), "")
        print(f"{cell:24}{''.join(f'{each:>10}' for each in figures.values())}  {first:.90}".rstrip(), flush=True)
    return rows


@contextmanager
def endpoint(folder: Path) -> Iterator[tuple[Server, Change]]:
    with LocalAccount.start(state=folder / "account", servers=3, pace="quick") as account:
        upload(account)
        client, arguments = clients(account), account.client_arguments()
        sagemaker, cloudwatch, made = client("sagemaker"), client("cloudwatch"), Endpoints(client("sagemaker"))
        metric = {"Namespace": "n", "MetricName": "m", "EvaluationPeriods": 1}
        cloudwatch.put_metric_alarm(AlarmName=ALARM, ComparisonOperator="GreaterThanThreshold", **metric)
        for config in ("first", *UPDATES):
            made.config(config, count=2, DELAY_S="0.02", COMPUTED=str(folder / "computed"))
        made.settled(made.create(NAME, config="first"))

        def logged(words: str) -> list[str]:
            return [line for line in account.log_file.read_text().splitlines() if words in line]

        def change(name: str) -> float:
            at_s, started, shifts = time.monotonic(), logged(STARTED), len(logged(SHIFTED))
            if name in SIGNALS:
                pids = [line.rpartition(" ")[2].rstrip(")") for line in reversed(started)]
                os.kill(next(int(pid) for pid in pids if Path("/proc", pid).exists()), SIGNALS[name])
                wait_until(lambda: len(logged(STARTED)) > len(started))
                return at_s
            if name in COUNTS:
                desired = [{"VariantName": "AllTraffic", "DesiredInstanceCount": COUNTS[name]}]
                change_counts = sagemaker.update_endpoint_weights_and_capacities
                change_counts(EndpointName=NAME, DesiredWeightsAndCapacities=desired)
            else:
                deployment = {**UPDATES[name], "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": ALARM}]}}
                sagemaker.update_endpoint(EndpointName=NAME, EndpointConfigName=name, DeploymentConfig=deployment)
            if name == "rollback":
                wait_until(lambda: len(logged(SHIFTED)) > shifts)
                cloudwatch.set_alarm_state(AlarmName=ALARM, StateValue="ALARM", StateReason="A benchmark.")
            described = made.settled(NAME)
            assert described["EndpointStatus"] == "InService", described
            assert ("FailureReason" in described) is (name == "rollback"), described
            cloudwatch.set_alarm_state(AlarmName=ALARM, StateValue="OK", StateReason="A benchmark.")
            return at_s

        runtime = boto3.client("sagemaker-runtime", config=servers.config(servers.TIMEOUT_S, CONNECTIONS), **arguments)
        yield SageMakerEndpoint(NAME, client=runtime), change


@contextmanager
def service(folder: Path) -> Iterator[tuple[Server, Change]]:
    model, log, environment = (
        folder / "model",
        folder / "server.log",
        {"COMPUTED": str(folder / "computed"), "DEVICE_MS": "20"},
    )
    neuron_server.make_model(model)
    with ExitStack() as tasks:
        port, pid = tasks.enter_context(neuron_server.running_ours(model, **environment))
        running = [psutil.Process(pid)]

        def change(name: str) -> float:
            _, pid = tasks.enter_context(neuron_server.running_ours(model, PORT=str(port), **environment))
            wait_until(lambda: "Serving with" in log.read_text())
            time.sleep(AFTER_S)
            old, at_s = running.pop(), time.monotonic()
            running.append(psutil.Process(pid))
            for process in (old, *(old.children() if name == "task-killed" else ())):
                process.send_signal(TASKS[name])
            old.wait()
            return at_s

        yield HttpServer(f"http://127.0.0.1:{port}", "intent", connections=CONNECTIONS), change


if __name__ == "__main__":
    sys.exit(main())
