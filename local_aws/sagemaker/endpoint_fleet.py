"""The servers that answer for one endpoint configuration: one for each instance of a production variant.

A host may allow fewer servers than a variant has instances (`--servers`); then they answer for all of
them. A fleet starts, leases, watches and stops servers, and knows nothing of the control plane's statuses. It replaces
a server that ends or hangs while others answer for its variant. SageMaker replaces unhealthy instances, too
(https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html).
"""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.logs.models import LogsBackend

from local_aws import machine
from local_aws.process.model_server import ModelDidNotLoad, ModelServer
from local_aws.sagemaker.model_host import ModelContainer, ModelHost
from workloads import Unavailable


class EndpointLog:
    def __init__(self, logs: LogsBackend, endpoint: str) -> None:
        self._logs = logs
        self._group = f"/aws/sagemaker/Endpoints/{endpoint}"

    def keep(self, variant: str, pid: int, log_file: Path, preparations: Sequence[tuple[float, str]] = ()) -> None:
        """Writes the stream of a server that answers now, or could not load its model."""
        stream = f"{variant}/i-{pid:017x}"
        lines = [
            (moment, f'I{datetime.fromtimestamp(moment, UTC):%m%d %H:%M:%S.%f} 0 local_aws] "{words}"')
            for moment, words in preparations
        ]
        now = max([time.time(), *(moment for moment, _ in preparations)])
        lines += [(now, line) for line in log_file.read_text("utf-8", "replace").splitlines() if line]
        put_lines(self._logs, self._group, stream, lines)


_putting = threading.Lock()


def put_lines(logs: LogsBackend, group: str, stream: str, lines: Sequence[tuple[float, str]]) -> None:
    """Adds lines, each with its Unix seconds, to a stream, which it makes if need be."""
    events = [{"timestamp": round(moment * 1000), "message": line} for moment, line in lines]
    with _putting:
        if group not in logs.groups:
            logs.create_log_group(group, {})
        if stream not in logs.groups[group].streams:
            logs.create_log_stream(group, stream)
        logs.put_log_events(group, stream, events)


LOG_LINES = 8
DRAIN_S = 65.0
"""How long a server that is taken out of service may finish its invocations: a little longer than any may last."""
PING_EVERY_S, MISSED_PINGS = 1.0, 2
"""A server hangs if it fails this many health checks in a row."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointVariant:
    name: str
    instance_type: str
    weight: float
    container: ModelContainer
    count: int
    host_ami: str | None = None

    @classmethod
    def of(cls, production_variant: Mapping[str, Any], model: Mapping[str, Any]) -> "EndpointVariant":
        """Combines a ProductionVariant with its model as DescribeModel shows it. Raises `Unavailable`."""
        name = production_variant["VariantName"]
        types = instance_types_of(production_variant)
        if not types:
            raise Unavailable(f"Variant {name} is serverless: this local account serves instance types only.")
        containers = [model["PrimaryContainer"]] if model.get("PrimaryContainer") else model.get("Containers", [])
        if len(containers) != 1:
            raise Unavailable(f"Model {model['ModelName']} has {len(containers)} containers: one is supported.")
        return cls(
            name=name,
            # The first type of a pool that this machine can stand in for; without one, the refusal names the first.
            instance_type=next((each for each in types if machine.refusal(each) is None), types[0]),
            weight=float(production_variant.get("InitialVariantWeight", 1.0)),
            container=ModelContainer.of(containers[0], model.get("ExecutionRoleArn")),
            count=int(production_variant.get("InitialInstanceCount", 1)),
            host_ami=production_variant.get("InferenceAmiVersion"),
        )


def instance_types_of(production_variant: Mapping[str, Any]) -> list[str]:
    """Returns the types in the order in which SageMaker would try them; none for a serverless variant."""
    if "InstanceType" in production_variant:
        return [production_variant["InstanceType"]]
    pools = sorted(production_variant.get("InstancePools", []), key=lambda pool: int(pool.get("Priority", 1)))
    return [pool["InstanceType"] for pool in pools]


OnDeath = Callable[["Fleet", str], None]


class Fleet:
    """Running servers by variant. `on_death(fleet, reason)` is called when the last one of a variant ends by itself."""

    def __init__(self, host: ModelHost, log: EndpointLog, on_death: OnDeath, config_name: str) -> None:
        self._host = host
        self._log = log
        self._on_death = on_death
        self._config_name = config_name
        self._servers: dict[str, tuple[ModelServer, ...]] = {}
        self._variants: dict[str, EndpointVariant] = {}
        self._retired: set[ModelServer] = set()
        self._leases: Counter[ModelServer] = Counter()
        self._changed = threading.Condition()
        """Guards the fields above. Notified at the end of a lease."""
        self._stopping = threading.Event()
        self._scaling = threading.RLock()
        self.drains = False
        """Whether it gives no more leases."""

    def start(self, endpoint: str, variants: Sequence[EndpointVariant]) -> None:
        """Starts all and returns when all answer. Raises `Unavailable`, with nothing left running."""
        try:
            for variant in variants:
                if refused := self._host.refusal(variant.instance_type):
                    raise Unavailable(refused)
            for variant in variants:
                self._variants[variant.name] = variant
                self._servers[variant.name] = self._started(endpoint, variant, self._servers_for(variant.count))
        except BaseException:
            self.stop()
            raise

    def scale(self, endpoint: str, counts: Mapping[str, int]) -> None:
        """Brings each variant to the servers for its instances. Raises `Unavailable` with the servers unchanged."""
        with self._scaling:
            for name, count in counts.items():
                self._scale(endpoint, name, count)

    def _scale(self, endpoint: str, name: str, count: int) -> None:
        size = self._servers_for(count)
        more = size - self.servers(name)
        added = self._started(endpoint, self._variants[name], more) if more > 0 else ()
        with self._changed:
            present = self._servers[name]
            self._servers[name], retired = (*present[:size], *added), present[size:]
            self._variants[name] = replace(self._variants[name], count=count)
            self._retired.update(retired)
        if self._stopping.is_set():
            self.stop()  # also servers that were added meanwhile
        for server in retired:
            self._drain(server)
            self._host.stop(server)
            log.info(f"endpoint {endpoint}: a {server.KIND} of variant {name} (process {server.pid}) has ended")

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Divides the invocations among variants by other weights; those not in `weights` keep theirs."""
        with self._changed:
            for name, weight in weights.items():
                self._variants[name] = replace(self._variants[name], weight=weight)

    def servers(self, name: str) -> int:
        """Returns how many servers answer for the variant."""
        return len(self._servers.get(name, ()))

    def pick(self, name: str | None = None) -> tuple[str, ModelServer] | None:
        """Returns the variant called `name`, or one drawn by weight, and one of its servers; None if there is none."""
        if not self._servers or (name and name not in self._servers):
            return None
        names = list(self._servers)
        weights = [self._variants[each].weight for each in names]
        chosen = name or (names[0] if len(names) == 1 or not any(weights) else random.choices(names, weights)[0])
        servers = [each for each in self._servers[chosen] if not each.refuses] or self._servers[chosen]
        return chosen, random.choice(servers)  # SageMaker's RANDOM, its default routing strategy

    @contextmanager
    def lease(self, name: str | None) -> Iterator[tuple[str, ModelServer] | None]:
        """Picks a server, which is not stopped before the block has ended; None also if the fleet drains."""
        with self._changed:
            picked = None if self.drains else self.pick(name)
            if picked is not None:
                self._leases[picked[1]] += 1
        try:
            yield picked
        finally:
            if picked is not None:
                with self._changed:
                    self._leases[picked[1]] -= 1
                    self._changed.notify_all()

    def drain(self) -> None:
        """Stops all servers as soon as their invocations have ended."""
        with self._changed:
            self.drains = True
        for server in [each for servers in self._servers.values() for each in servers]:
            self._drain(server)
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        for server in [each for servers in self._servers.values() for each in servers]:
            self._host.stop(server)

    def _servers_for(self, instances: int) -> int:
        return max(min(instances, self._host.settings.most_servers), 1)

    def _drain(self, server: ModelServer) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._leases[server] or self._stopping.is_set(), DRAIN_S)
            del self._leases[server]

    def _started(self, endpoint: str, variant: EndpointVariant, count: int) -> tuple[ModelServer, ...]:
        with ThreadPoolExecutor(count) as threads:
            starting = [threads.submit(self._start, endpoint, variant) for _ in range(count)]
        started = [each.result() for each in starting if each.exception() is None]
        failed = next((error for each in starting if (error := each.exception()) is not None), None)
        if failed is not None or self._stopping.is_set():
            for server in started:
                self._retired.add(server)
                self._host.stop(server)
            raise failed or Unavailable(f"Endpoint {endpoint} was deleted while its servers started.")
        return tuple(started)

    def _start(self, endpoint: str, variant: EndpointVariant) -> ModelServer:
        name = f"{endpoint}-{variant.name}"
        try:
            server = self._host.start(variant.container, name, variant.instance_type, variant.host_ami)
        except ModelDidNotLoad as error:
            self._log.keep(variant.name, error.pid, error.log_file)
            raise
        server.endpoint_config = self._config_name
        self._log.keep(variant.name, server.pid, server.log_file, server.preparations)
        log.info(f"endpoint {endpoint}: variant {variant.name} is answered by {server.KIND} (process {server.pid})")
        threading.Thread(target=self._watch, args=(endpoint, variant.name, server), daemon=True).start()
        return server

    def _ping(self, endpoint: str, variant: str, server: ModelServer, ended: threading.Event) -> None:
        """Kills a server that hangs while others answer for its variant."""
        missed = 0
        while not ended.wait(PING_EVERY_S):
            missed = missed + 1 if self.servers(variant) > 1 and not server.is_ready() else 0
            if missed == MISSED_PINGS and not ended.is_set():
                log.info(f"endpoint {endpoint}: {server.KIND} (process {server.pid}) hangs and is killed")
                server.kill()

    def _watch(self, endpoint: str, variant: str, server: ModelServer) -> None:
        ended = threading.Event()
        threading.Thread(target=self._ping, args=(endpoint, variant, server, ended), daemon=True).start()
        status = server.wait()
        ended.set()
        if self._stopping.is_set() or self._host.closed or server in self._retired:
            return
        notice = death_notice(variant, status, server)
        with self._changed:
            others = tuple(each for each in self._servers.get(variant, ()) if each is not server)
            if others:
                self._servers[variant] = others
        if not others:
            self._on_death(self, notice)
            return
        log.info(f"endpoint {endpoint}: {notice}")
        self._host.stop(server)
        try:
            with self._scaling:
                self.scale(endpoint, {variant: self._variants[variant].count})
        except Exception as error:  # every error: the others still answer
            log.info(f"endpoint {endpoint}: {server.KIND} (process {server.pid}) is not replaced: {error}")


def death_notice(variant: str, status: int, server: ModelServer) -> str:
    how = f"was killed by signal {status - 128}" if status > 128 else f"ended with exit status {status}"
    return (
        f"The {server.KIND} server of variant {variant} {how}. Its whole log is {server.log_file}. Its last lines:\n"
        f"{server.log_tail(LOG_LINES)}"
    )
