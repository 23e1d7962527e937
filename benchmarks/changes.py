"""Requests while a fleet changes: sent, answered, retried, failed, and computed twice by the model.

  python benchmarks/changes.py
  python benchmarks/changes.py --changes canary task-killed

Our client sends Poisson arrivals with its retries and, at the same time, without. An endpoint of a local account has
two instances, which are Tritons. A task of the ECS service is the Neuron server with a stand-in for the device. Two
tasks share a port in place of a load balancer.

Goals: with retries no request fails; without, at most those in flight when an instance or a task is killed. An instance
that hangs has no goal: the account replaces it after two health checks of 2 s. SageMaker does not document after how
many it replaces one. To an instance that it removes it sends SIGTERM, and SIGKILL 30 s later, so it could lose a longer
request (https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html).
"""

import itertools
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import goals, harness, neuron_server
from inference_recommender.client import HttpServer, InferenceClient, Retries
from inference_recommender.client.inference import Server
from inference_recommender.kserve import Body
from tests.local_aws.changing_endpoint import CHANGES, CONNECTIONS, Change, endpoint, signal_all
from tests.local_aws.conftest import wait_until
from workloads import ProjectError

RATE, AROUND_S = 20.0, 1.0
"""Requests a second of each client, and the seconds for which it sends before and after a change."""
TASKS = {"task-replaced": signal.SIGTERM, "task-killed": signal.SIGKILL}
FIGURES = ("sent", "answered", "retried", "failed", "twice", "in flight")
numbers = itertools.count()


class Caller:
    """Our client and its attempts. A text is the caller's letter and a number in letters."""

    def __init__(self, server: Server, letter: str, retries: Retries) -> None:
        self._server, self.letter, self._client = server, letter, InferenceClient(self, retries=retries)
        self.attempts: list[float] = []
        self.calls: list[tuple[float, float, str]] = []
        """When a request was sent and when it ended, and its failure."""

    def send(self, request: Body, within_s: float) -> Body:
        self.attempts.append(within_s)
        return self._server.send(request, within_s)

    def call(self) -> None:
        letters = [self.letter, *(chr(ord("a") + int(digit)) for digit in f"{next(numbers):06}")]
        sent_s, failure = time.monotonic(), ""
        try:
            self._client.infer({"TEXT": [[" ".join(letters)]]})
        except ProjectError as error:
            failure = str(error)
        self.calls.append((sent_s, time.monotonic(), failure))


def main() -> int:
    parser = harness.parser(__doc__)
    known = (*CHANGES, *TASKS)
    parser.add_argument("--changes", nargs="+", choices=known, default=known, help="default: all")
    chosen, rows = parser.parse_args().changes, dict[str, dict[str, int]]()
    print(f"{'':14}{'with retries':<60}without\n{'':14}{2 * ''.join(f'{each:<10}' for each in FIGURES)}".rstrip())
    for fleet, changes in ((endpoint, CHANGES), (service, TASKS)):
        if not (names := [each for each in changes if each in chosen]):
            continue
        with tempfile.TemporaryDirectory(prefix="changes_") as folder, fleet(Path(folder)) as (server, change):
            for name in names:
                rows |= measure(server, change, name, Path(folder, "computed"))
    return goals.finish("changes", ["boto3", "urllib3"], {"changes": rows}, judge(rows))


def judge(rows: Mapping[str, Mapping[str, int]]) -> list[goals.Goal]:
    limits = {cell: row["in flight"] if cell.endswith("without") else 0 for cell, row in rows.items()}
    return [
        goals.Goal(cell=f"{cell}: failed", limit=limit, figure=rows[cell]["failed"], at_most=True)
        for cell, limit in limits.items()
        if not cell.startswith("hangs")
    ]


def measure(server: Server, change: Change, name: str, computed: Path) -> dict[str, dict[str, int]]:
    """Sends while a fleet changes. Prints and returns `FIGURES` of each client."""
    ours, plain = Caller(server, "y", Retries(timeouts=name == "hangs")), Caller(server, "n", Retries(attempts=1))
    pause, rows = partial(time.sleep, AROUND_S), dict[str, dict[str, int]]()
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        results: list[Any] = []
        for work in (pause, partial(change, name), pause):
            working = threads.submit(work)
            while not working.done():
                time.sleep(random.expovariate(2 * RATE))
                threads.submit(random.choice((ours, plain)).call)
            results.append(working.result())
    begin_s, end_s = results[1]
    texts = Counter(computed.read_text().splitlines())
    for cell, caller in {f"{name}, with": ours, f"{name}, without": plain}.items():
        sent, failures = len(caller.calls), [failure for *_, failure in caller.calls if failure]
        twice = sum(count > 1 for text, count in texts.items() if text.startswith(caller.letter))
        in_flight = sum(sent_s < end_s and begin_s < ended_s for sent_s, ended_s, _ in caller.calls)
        figures = (sent, sent - len(failures), len(caller.attempts) - sent, len(failures), twice, in_flight)
        rows[cell] = dict(zip(FIGURES, figures, strict=True))
        print("".join(f"… {cell}: {each}\n" for each in failures[:1]), end="", file=sys.stderr)
    columns = [f"{figure:<10}" for row in rows.values() for figure in row.values()]
    print(f"{name:14}{''.join(columns)}".rstrip(), flush=True)
    return rows


@contextmanager
def service(folder: Path) -> Iterator[tuple[Server, Change]]:
    neuron_server.make_model(folder / "model")
    environment = {"COMPUTED": str(folder / "computed"), "DEVICE_MS": "20"}
    with ExitStack() as tasks:
        start = partial(neuron_server.running_ours, folder / "model", **environment)
        port, first = tasks.enter_context(start())
        pids = [first]

        def change(change: str) -> tuple[float, float]:
            pids.append(tasks.enter_context(start(PORT=str(port)))[1])
            wait_until(lambda: "Serving with" in (folder / "server.log").read_text())
            time.sleep(AROUND_S)
            task = psutil.Process(pids.pop(0))
            workers = [each.pid for each in task.children()] if change == "task-killed" else []
            return signal_all([task.pid, *workers], TASKS[change])

        yield HttpServer(f"http://127.0.0.1:{port}", "intent", connections=CONNECTIONS), change


if __name__ == "__main__":
    sys.exit(main())
