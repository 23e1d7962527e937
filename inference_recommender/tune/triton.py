"""Runs a Triton server for `tune`, and loads its models with one configuration after another.

Triton loads a model again with a configuration that overrides its config.pbtxt (model repository extension). An
encoder's threads are in settings.json, which changes in a copy of the repository while the model is unloaded. Large
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from urllib3.exceptions import HTTPError

from inference_recommender.capacity.limit import Limit
from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.load_generator import unix_socket
from inference_recommender.measure.probe import GeneratorProbe
from inference_recommender.measure.system import system_at_url
from inference_recommender.tune.folder import TuneFolder
from inference_recommender.tune.probe_counts import ProbeCounts
from inference_recommender.tune.race import ConfigurationRefused
from inference_recommender.tune.space import ServingConfiguration
from workloads import ROOT, Serving, Unavailable

COMMAND = (sys.executable, "-m", "local_aws.process.triton")
"""Takes a repository, --model and --log."""
UNLOADED_S = 60.0
"""Time limit for unloading: active requests end first."""
LOAD_S = 300.0
SETTINGS = "settings.json"
SHORTEST_PROBE_S = 2.0
"""Shorter probes are dominated by the start of the generator's process."""
WARM_UP_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """The build of a target."""

    repository: Path
    environment: Mapping[str, str]


class TunedTriton:
    """Loads configurations into a Triton server, which starts with the first one. A context manager."""

    def __init__(self, model: str, built: Mapping[str, Built], folder: Path, say: Callable[[str], None]) -> None:
        self._model = model
        self._built = built
        self._folder = folder
        self._say = say
        self._process: _Process | None = None
        self._target: str | None = None
        self._configs: dict[str, Mapping[str, Any]] = {}
        """Triton's own configurations of the current target's models."""
        self.loaded: ServingConfiguration | None = None
        self.starts = 0
        self.loads = 0

    @property
    def url(self) -> str:
        assert self._process is not None, "a configuration is loaded first"
        return self._process.address["url"]

    @property
    def repository(self) -> Path:
        """The copy that Triton reads."""
        return self._folder / "repository"

    def config(self, model: str) -> Mapping[str, Any]:
        """Returns the configuration with which Triton serves a model."""
        assert self._process is not None, "a configuration is loaded first"
        return self._process.config(model)

    def load(self, configuration: ServingConfiguration) -> None:
        """Serves a configuration. Raises `ConfigurationRefused` or, without a Triton, `Unavailable`."""
        self.loaded = None
        if self._target != configuration.target:
            self._put_in_place(configuration.target)
        process = self._process
        assert process is not None
        members = [name for name in self._configs if name != self._model]
        process.unload([self._model, *members])
        self._set_threads(configuration.threads)
        for name in (*members, self._model):
            changed = overridden(self._configs[name], configuration.serving, configuration.threads)
            if problem := process.load(name, changed):
                raise ConfigurationRefused(f"Triton does not load {name}: {problem}")
        self.loads += 1
        self.loaded = configuration

    def _put_in_place(self, target: str) -> None:
        """Copies a target's repository to Triton's, loads it as built, and reads its models' configurations."""
        built, place = self._built[target], self.repository
        if self._process is not None and self._process.environment != built.environment:
            self._process.stop()
            self._process = None
        if self._process is not None:
            self._process.unload([self._model, *(name for name in self._configs if name != self._model)])
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(built.repository, place, copy_function=_link)
        names = sorted(each.parent.name for each in place.glob("*/config.pbtxt"))
        if self._process is None:
            self._say(f"Starting Triton with {target}")
            self._process = _Process(place, self._model, built.environment, self._folder / "triton.log")
            self.starts += 1
        elif problem := self._process.load(self._model, None):
            raise Unavailable(
                f"Triton does not load {self._model} for {target}: {problem} Its log is {self._process.log}."
            )
        self._target = target
        self._configs = {name: self._process.config(name) for name in names}

    def _set_threads(self, threads: int | None) -> None:
        if threads is None:
            return
        for file in self.repository.glob(f"*/1/{SETTINGS}"):
            settings = json.loads(file.read_text("utf-8"))
            if settings.get("threads", threads) != threads:
                file.unlink()  # it may be a link to the file of the build
                file.write_text(json.dumps({**settings, "threads": threads}, indent=2) + "\n", "utf-8")

    def __enter__(self) -> "TunedTriton":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


def overridden(config: Mapping[str, Any], serving: Serving, threads: int | None) -> dict[str, Any]:
    """Returns Triton's configuration of a model with the values of `serving`.

    It has no response cache, which would answer the repeated payloads.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    changed.pop("response_cache", None)
    changed["max_batch_size"] = serving.max_batch_size
    if "ensemble_scheduling" in changed:
        return changed
    changed["instance_group"] = [
        {**group, "count": serving.model_instances} for group in changed.get("instance_group", [])[:1]
    ]
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
        self.environment = environment
        self.log = log
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
        except BaseException:
            self.stop()
            raise
        if not line:
            errors = self._child.stderr.read().strip()
            self.stop()
            raise Unavailable(errors or f"Triton did not start. Its log is {log}.")
        self.address: Mapping[str, str] = json.loads(line)

    def config(self, model: str) -> Mapping[str, Any]:
        status, answer = self._call("GET", f"/v2/models/{model}/config")
        if status != http.HTTPStatus.OK:
            raise Unavailable(f"Triton returned no configuration of {model}: {answer.get('error', status)}.")
        return dict(answer)

    def load(self, model: str, config: Mapping[str, Any] | None) -> str:
        """Loads a model, and returns Triton's error, or "" on success."""
        body = {} if config is None else {"parameters": {"config": json.dumps(config)}}
        status, answer = self._call("POST", f"/v2/repository/models/{model}/load", body, LOAD_S)
        return "" if status == http.HTTPStatus.OK else str(answer.get("error", f"status {status}"))

    def unload(self, models: Sequence[str]) -> None:
        """Unloads models in their order, an ensemble before its members, and waits for it."""
        for model in models:
            self._call("POST", f"/v2/repository/models/{model}/unload", {})
        deadline = time.monotonic() + UNLOADED_S
        while ready := [name for name in models if self._is_ready(name)]:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"Triton did not unload {', '.join(ready)} in {UNLOADED_S:g} s. Its log is {self.log}."
                )
            time.sleep(0.02)

    def _is_ready(self, model: str) -> bool:
        _, index = self._call("POST", "/v2/repository/index", {})
        return any(each["name"] == model and each.get("state") not in (None, "UNAVAILABLE") for each in index)

    def _call(self, method: str, path: str, body: Any = None, timeout_s: float = 60.0) -> tuple[int, Any]:
        url = unix_socket.socket_url(self.address["socket"], path)
        headers = {self.address["header"]: self.address["key"]}
        try:
            response = unix_socket.request(method, url, json=body, headers=headers, timeout=timeout_s, retries=False)
        except HTTPError as error:
            raise Unavailable(f"Triton closed the connection or ended: {error}. Its log is {self.log}.") from error
        return response.status, json.loads(response.data) if response.data else {}

    def stop(self) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(15)
        self._child.kill()
        self._child.wait()


def _link(source: str, destination: str) -> None:
    try:
        os.link(source, destination)
    except OSError:  # another file system
        shutil.copyfile(source, destination)


class TritonProbe:
    """A `SendProbe`: loads a configuration if another one is loaded, warms it up, and sends arrivals."""

    def __init__(self, triton: TunedTriton, folder: TuneFolder, limit: Limit) -> None:
        self._triton = triton
        self._folder = folder
        self._limit = limit
        self._count = len(folder.lines())

    def __call__(self, configuration: ServingConfiguration, rate: float, duration_s: float) -> ProbeCounts:
        self._count += 1
        warm_up = 0
        if self._triton.loaded != configuration:
            self._triton.load(configuration)
            warm_up = len(self._send("warm-up", rate / 2, WARM_UP_S).intended_s)
        counts = ProbeCounts.of(rate, self._send("probe", rate, duration_s), self._limit)
        return counts.model_copy(update={"sent": counts.sent + warm_up})

    def _send(self, name: str, rate: float, duration_s: float) -> ProbeRecords:
        folder = self._folder.path / "probes" / f"{self._count:04}-{name}"
        return GeneratorProbe(self._folder.payload_file, folder, system_at_url(self._triton.url, ""), seed=self._count)(
            rate, duration_s
        )
