"""A variant's servers come and go with its instances, and an invocation in progress is answered."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from local_aws.account_settings import AccountSettings
from local_aws.process.model_server import ModelServer
from local_aws.sagemaker import endpoint_fleet
from local_aws.sagemaker.endpoint import LocalEndpoint
from local_aws.sagemaker.endpoint_fleet import EndpointVariant, Fleet
from local_aws.sagemaker.model_host import ModelContainer, ModelHost
from tests.builders import known
from tests.local_aws.conftest import wait_until
from workloads import Unavailable

HANGS_S = 60.0
"""Bounds a hanging test."""


class Server:
    KIND = "Triton"
    invocations_url = "http://127.0.0.1:1/invocations"
    log_file = Path("none.log")
    preparations: tuple[tuple[float, str], ...] = ()
    refuses = hangs = False

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = threading.Event()

    def wait(self) -> int:
        self.ended.wait()
        return 0

    def is_ready(self) -> bool:
        return not self.hangs

    def kill(self) -> None:
        self.ended.set()

    def log_tail(self, lines: int) -> str:
        return "the end"


class Host:
    """Starts servers that do nothing, `most_servers` for a variant."""

    closed = False

    def __init__(self, most_servers: int = 4) -> None:
        folder = Path()
        self.settings = AccountSettings(state=folder, region="", toolchain=folder, most_servers=most_servers)
        self.running: list[Server] = []
        self.started = 0
        self.fails_from: int | None = None
        self._lock = threading.Lock()

    def refusal(self, instance_type: str) -> str | None:
        return None

    def start(
        self, container: ModelContainer, name: str, instance_type: str, host_ami: str | None = None
    ) -> ModelServer:
        with self._lock:
            self.started += 1
            if self.fails_from is not None and self.started >= self.fails_from:
                raise Unavailable("no room for another")
            server = Server(self.started)
            self.running.append(server)
        return cast(ModelServer, server)

    def stop(self, server: Any) -> None:
        with self._lock:
            if server in self.running:
                self.running.remove(server)
        server.ended.set()


def fleet(host: Host, count: int = 1, died: Callable[[Fleet, str], None] = lambda *_: None) -> Fleet:
    log: Any = SimpleNamespace(keep=lambda *_: None)
    made = Fleet(cast(ModelHost, host), log, died, "config")
    container = ModelContainer(model_data_url="s3://models/model.tar.gz", environment={})
    made.start(
        "shop",
        [EndpointVariant(name="only", instance_type="ml.c5.xlarge", weight=1.0, container=container, count=count)],
    )
    return made


def test_a_variant_has_a_server_for_each_instance() -> None:
    host = Host()
    made = fleet(host, count=2)
    for count in (4, 3, 1):
        made.scale("shop", {"only": count})
        assert (len(host.running), made.servers("only")) == (count, count)
    made.stop()
    assert host.running == []
    small = Host(most_servers=3)
    made = fleet(small, count=20)
    assert len(small.running) == 3, "they answer for all instances"
    made.stop()


def test_a_server_ends_when_its_last_invocation_has_been_answered() -> None:
    host = Host()
    made = fleet(host, count=2)
    with ThreadPoolExecutor(1) as threads:
        with ExitStack() as invocations:
            leased: set[int] = set()
            while leased != {1, 2}:
                leased.add(known(invocations.enter_context(made.lease("only")))[1].pid)
            scaling = threads.submit(made.scale, "shop", {"only": 1})
            wait_until(lambda: made.servers("only") == 1, HANGS_S, 0.001)
            time.sleep(0.05)  # time enough to stop one, were it not for its invocation
            assert {each.pid for each in host.running} == {1, 2}
        scaling.result(HANGS_S)
    assert len(host.running) == 1
    made.stop()


def test_a_fleet_that_cannot_grow_stays_as_it_was() -> None:
    host = Host()
    died: list[str] = []
    made = fleet(host, count=2, died=lambda _, reason: died.append(reason))
    host.fails_from = 4
    with pytest.raises(Unavailable, match="no room for another"):
        made.scale("shop", {"only": 4})
    assert sorted(each.pid for each in host.running) == [1, 2]
    assert died == []
    made.stop()


def test_a_server_that_is_taken_out_of_service_has_not_died() -> None:
    host = Host()
    died: list[str] = []
    made = fleet(host, count=2, died=lambda _, reason: died.append(reason))
    retired = host.running[1]
    made.scale("shop", {"only": 1})
    assert retired.ended.is_set()
    host.running[0].ended.set()
    wait_until(lambda: died, HANGS_S, 0.001)
    assert len(died) == 1
    made.stop()


@pytest.mark.parametrize("ends", [Server.kill, lambda server: setattr(server, "hangs", True)], ids=["ends", "hangs"])
def test_a_server_that_fails_beside_another_is_replaced(
    monkeypatch: pytest.MonkeyPatch, ends: Callable[[Server], None]
) -> None:
    monkeypatch.setattr(endpoint_fleet, "PING_EVERY_S", 0.001)
    host, died = Host(), list[str]()
    made = fleet(host, count=2, died=lambda _, reason: died.append(reason))
    ends(host.running[0])
    wait_until(lambda: host.started == 3 and made.servers("only") == 2, HANGS_S, 0.001)
    assert sorted(each.pid for each in host.running) == [2, 3]
    assert died == []
    made.stop()


def test_an_invocation_that_comes_while_a_fleet_drains_goes_to_the_next_fleet() -> None:
    old, new = fleet(Host()), fleet(Host())
    old.drain()
    fleets = iter([old, new])
    with LocalEndpoint.lease(cast(LocalEndpoint, SimpleNamespace(_drawn_fleet=lambda: next(fleets))), "only") as picked:
        assert picked is not None
    new.stop()
