"""The servers that answer for one endpoint configuration: one for each production variant, whatever its count.

It starts, picks, watches and stops them, and knows nothing of the control plane's statuses.
"""

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_aws import machine
from local_aws.process.model_server import ModelServer
from local_aws.sagemaker.model_host import Container, ModelHost
from workloads import Unavailable

LOG_LINES = 8
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    name: str
    instance_type: str
    weight: float
    container: Container

    @classmethod
    def of(cls, production_variant: Mapping[str, Any], model: Mapping[str, Any]) -> "Variant":
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
            container=Container.of(containers[0], model.get("ExecutionRoleArn")),
        )


def instance_types_of(production_variant: Mapping[str, Any]) -> list[str]:
    """Returns the types in the order in which SageMaker would try them; none for a serverless variant."""
    if "InstanceType" in production_variant:
        return [production_variant["InstanceType"]]
    pools = sorted(production_variant.get("InstancePools", []), key=lambda pool: int(pool.get("Priority", 1)))
    return [pool["InstanceType"] for pool in pools]


OnDeath = Callable[["Fleet", str], None]


class Fleet:
    """Running servers by variant. `on_death(fleet, reason)` is called when one ends without having been stopped."""

    def __init__(self, host: ModelHost, on_death: OnDeath) -> None:
        self._host = host
        self._on_death = on_death
        self._servers: dict[str, ModelServer] = {}
        self._variants: dict[str, Variant] = {}
        self._stopping = threading.Event()

    def start(self, endpoint: str, variants: Sequence[Variant]) -> None:
        """Starts all and returns when all answer. Raises `Unavailable`, with nothing left running."""
        try:
            for variant in variants:
                if refused := self._host.refusal(variant.instance_type):
                    raise Unavailable(refused)
            for variant in variants:
                self._start(endpoint, variant)
        except BaseException:
            self.stop()
            raise

    def pick(self, name: str | None = None) -> tuple[str, ModelServer] | None:
        """Returns the variant called `name`, or one drawn by weight; None if there is none."""
        if not self._servers or (name and name not in self._servers):
            return None
        names = list(self._servers)
        weights = [self._variants[each].weight for each in names]
        chosen = name or (names[0] if len(names) == 1 or not any(weights) else random.choices(names, weights)[0])
        return chosen, self._servers[chosen]

    def stop(self) -> None:
        self._stopping.set()
        for server in self._servers.values():
            self._host.stop(server)

    def _start(self, endpoint: str, variant: Variant) -> None:
        server = self._host.start(variant.container, f"{endpoint}-{variant.name}", variant.instance_type)
        self._servers[variant.name] = server
        self._variants[variant.name] = variant
        log.info(f"endpoint {endpoint}: variant {variant.name} is answered by {server.KIND} (process {server.pid})")
        threading.Thread(target=self._watch, args=(variant.name, server), daemon=True).start()

    def _watch(self, variant: str, server: ModelServer) -> None:
        status = server.wait()
        if not (self._stopping.is_set() or self._host.closed):
            self._on_death(self, death_notice(variant, status, server))


def death_notice(variant: str, status: int, server: ModelServer) -> str:
    how = f"was killed by signal {status - 128}" if status > 128 else f"ended with exit status {status}"
    return (
        f"The {server.KIND} server of variant {variant} {how}. Its whole log is {server.log_file}. Its last lines:\n"
        f"{server.log_tail(LOG_LINES)}"
    )
