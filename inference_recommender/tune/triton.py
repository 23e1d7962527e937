"""Runs a Triton server for `tune`, loads its models with one configuration after another, and sends probes.

Triton loads a model again with a configuration that overrides its config.pbtxt (model repository extension). An
encoder's threads are in settings.json, which changes in a copy of the repository while the model is unloaded. The other
files of the copy are links. This package may not import local_aws, so the server is a program (`COMMAND`).
"""

import contextlib
import copy
import http
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from urllib3.exceptions import HTTPError

from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.capacity.statistics import Limit
from inference_recommender.load_generator import unix_socket
from inference_recommender.measure.probe import probe_of
from inference_recommender.measure.system import system_at_url
from inference_recommender.tune.folder import TuneFolder
from inference_recommender.tune.probe_counts import ProbeCounts, counted
from inference_recommender.tune.race import ConfigurationRefused
from inference_recommender.tune.space import ServingConfiguration
from workloads import ROOT, Serving, Unavailable

COMMAND = (sys.executable, "-m", "local_aws.process.triton")
"""Takes a repository, --model and --log."""
UNLOADED_S = 60.0
"""Time limit for unloading: active requests end first."""
LOAD_S = 300.0
SHORTEST_PROBE_S = 2.0
"""Shorter probes are dominated by the start of the generator's process."""
WARM_UP_S = 2.0

Builds = Mapping[str, tuple[Path, Mapping[str, str]]]
"""The repository and the environment of each target."""


class TunedTriton:
    """A `SendProbe`: loads a configuration into a server of its target, warms it up, and sends arrivals."""

    def __init__(self, model: str, builds: Builds, folder: TuneFolder, limit: Limit) -> None:
        self._model, self._builds, self._folder, self._limit = model, builds, folder, limit
        self._count = len(folder.lines())
        self.repository = folder.path / "repository"
        """The copy that Triton reads."""
        self._running = contextlib.ExitStack()
        self._process: _Process
        """The server of the current target."""
        self._target: str | None = None
        self._configs: dict[str, Mapping[str, Any]] = {}
        """Triton's own configurations of the current target's models, an ensemble's members first."""
        self._loaded: ServingConfiguration | None = None

    def __call__(self, configuration: ServingConfiguration, rate: float, duration_s: float) -> ProbeCounts:
        self._count += 1
        warm_up = 0
        if self._loaded != configuration:
            self.load(configuration)
            warm_up = len(self._send("warm-up", rate / 2, WARM_UP_S).intended_s)
        counts = counted(rate, self._send("probe", rate, duration_s), self._limit)
        return counts.model_copy(update={"sent": counts.sent + warm_up})

    def _send(self, name: str, rate: float, duration_s: float) -> ProbeRecords:
        folder = self._folder.path / f"probes/{self._count:04}-{name}"
        system = system_at_url(self._process.address["url"], "")
        return probe_of(system, self._folder, folder, seed=self._count)(rate, duration_s)

    def config(self, model: str) -> Mapping[str, Any]:
        """Returns the configuration with which Triton serves a model."""
        return self._process.config(model)

    def load(self, configuration: ServingConfiguration) -> None:
        """Serves a configuration. Raises `ConfigurationRefused` or, without a Triton, `Unavailable`."""
        self._loaded = None
        if self._target != configuration.target:
            self._start(configuration.target)
        self._process.unload([*reversed(self._configs)])
        self._set_threads(configuration.threads)
        for name, config in self._configs.items():
            changed = overridden(config, configuration.serving, configuration.threads)
            if problem := self._process.load(name, changed):
                raise ConfigurationRefused(f"Triton does not load {name}: {problem}")
        self._loaded = configuration

    def _start(self, target: str) -> None:
        """Copies a target's repository to Triton's, starts Triton with it, and reads its models' configurations."""
        self.close()
        repository, environment = self._builds[target]
        shutil.rmtree(self.repository, ignore_errors=True)
        shutil.copytree(repository, self.repository, copy_function=os.symlink)
        names = sorted(each.parent.name for each in self.repository.glob("*/config.pbtxt"))
        self._process = _Process(self.repository, self._model, environment, self._folder.path / "triton.log")
        self._running.callback(self._process.stop)
        self._configs = {name: self.config(name) for name in sorted(names, key=lambda name: name == self._model)}
        self._target = target

    def _set_threads(self, threads: int | None) -> None:
        for file in self.repository.glob("*/1/settings.json") if threads is not None else ():
            settings = json.loads(file.read_text("utf-8"))
            if settings.get("threads", threads) != threads:
                file.unlink()  # it may be a link to the build
                file.write_text(json.dumps({**settings, "threads": threads}, indent=2) + "\n", "utf-8")

    def close(self) -> None:
        """Ends the server if it runs."""
        self._running.close()
        self._target = None


def overridden(config: Mapping[str, Any], serving: Serving, threads: int | None) -> dict[str, Any]:
    """Returns Triton's configuration of a model with the values of `serving`.

    It has no response cache, which would answer the repeated payloads.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    changed.pop("response_cache", None)
    changed["max_batch_size"] = serving.max_batch_size
    if "ensemble_scheduling" in changed:
        return changed
    changed["instance_group"] = [{**group, "count": serving.copies} for group in changed.get("instance_group", [])[:1]]
    changed.pop("dynamic_batching", None)
    if serving.dynamic_batching:
        changed["dynamic_batching"] = {
            "preferred_batch_size": list(serving.preferred_batch_sizes),
            "max_queue_delay_microseconds": round(serving.max_queue_delay_ms * 1000),
        }
    if warm_ups := changed.get("model_warmup"):
        sizes = sorted({1, *serving.preferred_batch_sizes, serving.max_batch_size})
        changed["model_warmup"] = [{**warm_ups[0], "name": f"batch of {size}", "batch_size": size} for size in sizes]
    if threads is not None and "threads" in changed.get("parameters", {}):
        changed["parameters"]["threads"] = {"string_value": str(threads)}
    return changed


class _Process:
    """The server program, and Triton's HTTP API on its socket."""

    def __init__(self, repository: Path, model: str, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._child = subprocess.Popen(
            [*COMMAND, str(repository.resolve()), "--model", model, "--log", str(log.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,  # Ctrl-C does not reach it; it ends with its standard input
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        try:
            self._child.stdin.write(json.dumps(dict(environment)) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
            if not line:
                raise Unavailable(self._child.stderr.read().strip() or f"Triton did not start. Its log is {log}.")
        except BaseException:
            self.stop()
            raise
        self.address: Mapping[str, str] = json.loads(line)

    def config(self, model: str) -> Mapping[str, Any]:
        status, answer = self._call("GET", f"/v2/models/{model}/config")
        if status != http.HTTPStatus.OK:
            raise Unavailable(f"Triton returned no configuration of {model}: {answer.get('error', status)}.")
        return dict(answer)

    def load(self, model: str, config: Mapping[str, Any]) -> str:
        """Loads a model, and returns Triton's error, or "" on success."""
        body = {"parameters": {"config": json.dumps(config)}}
        status, answer = self._call("POST", f"/v2/repository/models/{model}/load", body, LOAD_S)
        return "" if status == http.HTTPStatus.OK else str(answer.get("error", f"status {status}"))

    def unload(self, models: Sequence[str]) -> None:
        """Unloads models in their order, an ensemble before its members, and waits for it."""
        for model in models:
            self._call("POST", f"/v2/repository/models/{model}/unload", {})
        deadline = time.monotonic() + UNLOADED_S
        while ready := [name for name in self._ready() if name in models]:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"Triton did not unload {', '.join(ready)} in {UNLOADED_S:g} s. Its log is {self._log}."
                )
            time.sleep(0.02)

    def _ready(self) -> list[str]:
        _, index = self._call("POST", "/v2/repository/index", {})
        return [each["name"] for each in index if each.get("state") not in (None, "UNAVAILABLE")]

    def _call(self, method: str, path: str, body: Any = None, timeout_s: float = 60.0) -> tuple[int, Any]:
        url = unix_socket.socket_url(self.address["socket"], path)
        headers = {self.address["header"]: self.address["key"]}
        try:
            response = unix_socket.request(method, url, json=body, headers=headers, timeout=timeout_s, retries=False)
        except HTTPError as error:
            raise Unavailable(f"Triton closed the connection or ended: {error}. Its log is {self._log}.") from error
        return response.status, json.loads(response.data) if response.data else {}

    def stop(self) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(15)
        self._child.kill()
        self._child.wait()
