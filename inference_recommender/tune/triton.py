"""A real Triton for `tune`: started once, its models loaded anew with another configuration.

Triton's model control is explicit: a model is unloaded, and loaded again with a configuration that overrides its
config.pbtxt (docs/protocol/extension_model_repository.md of triton-inference-server/server). What `[serving]` says is
edited in the configuration that Triton itself told of the built model (`overridden`), so nothing is built again. An
encoder's threads are in its settings.json, which is changed in a copy of the repository while the model is unloaded;
the copy's large files are links. Another target is another copy in the same place and the same process, unless its
archive wants another environment.

This package may not import local_aws, so the server is a program of its own (`COMMAND`), found by its name.
"""

import contextlib
import copy
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference_recommender.tune.race import Refused
from inference_recommender.tune.space import Configuration
from workloads import ROOT, Serving, Unavailable

COMMAND = (sys.executable, "-m", "local_aws.process.loadable_triton")
"""Takes a repository, --model and --log."""
UNLOADED_S = 60.0
"""Seconds within which models are unloaded: requests under way end first."""
LOAD_S = 300.0
SETTINGS = "settings.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A target as `model_build` left it."""

    repository: Path
    environment: Mapping[str, str]


class TunedTriton:
    """Loads configurations into a Triton of its own. A context manager; nothing is started before the first one."""

    def __init__(self, model: str, built: Mapping[str, Built], folder: Path, say: Callable[[str], None]) -> None:
        self._model = model
        self._built = built
        self._folder = folder
        self._say = say
        self._process: _Process | None = None
        self._target: str | None = None
        self._configs: dict[str, Mapping[str, Any]] = {}
        """The configurations, as Triton told them, of the models of the target that is in place."""
        self.loaded: Configuration | None = None
        self.starts = 0
        self.loads = 0

    @property
    def url(self) -> str:
        assert self._process is not None, "a configuration is loaded first"
        return self._process.told["url"]

    @property
    def repository(self) -> Path:
        """The copy that Triton reads."""
        return self._folder / "repository"

    def told(self, model: str) -> Mapping[str, Any]:
        """Returns the configuration with which Triton serves a model of the repository now."""
        assert self._process is not None, "a configuration is loaded first"
        return self._process.config(model)

    def load(self, configuration: Configuration, parameters: Mapping[str, str] | None = None) -> None:
        """Serves a configuration; `parameters` replace those of config.pbtxt that the model has. Raises `Refused` where
        Triton does not load it, `Unavailable` without a Triton.
        """
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
            _set_parameters(changed, parameters or {})
            if problem := process.load(name, changed):
                raise Refused(f"Triton does not load {name}: {problem}")
        self.loads += 1
        self.loaded = configuration

    def _put_in_place(self, target: str) -> None:
        """Copies a target's repository to where Triton reads, and loads it as built, which tells its configurations."""
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
                file.unlink()  # it may be a link to the build's own
                file.write_text(json.dumps({**settings, "threads": threads}, indent=2) + "\n", "utf-8")

    def __enter__(self) -> "TunedTriton":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


def overridden(config: Mapping[str, Any], serving: Serving, threads: int | None) -> dict[str, Any]:
    """Returns a model's configuration, as Triton tells it, served as `serving` says.

    It has no response cache: the payloads come again and again, and would be answered from there.
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


def _set_parameters(config: dict[str, Any], values: Mapping[str, str]) -> None:
    known = config.get("parameters", {})
    known.update({name: {"string_value": value} for name, value in values.items() if name in known})


class _Process:
    """The server program, and Triton's own HTTP API on its socket."""

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
            start_new_session=True,  # Ctrl-C is ours, and it ends when its standard input does
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
            said = self._child.stderr.read().strip()
            self.stop()
            raise Unavailable(said or f"Triton did not start. Its log is {log}.")
        self.told: Mapping[str, str] = json.loads(line)

    def config(self, model: str) -> Mapping[str, Any]:
        status, answer = self._call("GET", f"/v2/models/{model}/config")
        if status != http.HTTPStatus.OK:
            raise Unavailable(f"Triton does not tell the configuration of {model}: {answer.get('error', status)}.")
        return dict(answer)

    def load(self, model: str, config: Mapping[str, Any] | None) -> str:
        """Loads a model, and returns what Triton has against it; nothing where it is loaded."""
        body = {} if config is None else {"parameters": {"config": json.dumps(config)}}
        status, answer = self._call("POST", f"/v2/repository/models/{model}/load", body, LOAD_S)
        return "" if status == http.HTTPStatus.OK else str(answer.get("error", f"status {status}"))

    def unload(self, models: Sequence[str]) -> None:
        """Unloads models in their order, an ensemble before its members, and returns when they are gone."""
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
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(timeout_s)
        with contextlib.closing(connection):
            try:
                connection.sock.connect(self.told["socket"])
                headers = {self.told["header"]: self.told["key"], "Content-Type": "application/json"}
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise Unavailable(f"Triton hung up or is gone: {error}. Its log is {self.log}.") from error
        return response.status, json.loads(text) if text else {}

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
