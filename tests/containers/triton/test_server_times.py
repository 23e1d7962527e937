"""Times in Triton: computed from its counters, and printed by the image's start script for a real ensemble."""

import http.client
import json
import platform
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from containers.triton.server_times import print_each_period
from local_aws.process.triton import triton_command, triton_environment
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN, TritonToolchain
from model_build.plan import BuildPlan
from tests.builders import a_program, free_port
from tests.local_aws.conftest import wait_until
from tests.quick_triton import FLAGS
from workloads import ROOT

SERVE = ROOT / "containers" / "triton" / "serve"
DIMENSIONS = {"Workload": "spellcheck", "Stack": "SpellcheckStack"}
ASKED = {"METRICS_WORKLOAD": "spellcheck", "METRICS_STACK": "SpellcheckStack"}
PREFIX = "SAGEMAKER_TRITON_"
BOUND_S = 120  # on hanging


def counters(requests: int, queue_us: Mapping[str, int], compute_us: Mapping[str, int]) -> str:
    """Returns Triton's /metrics, with a model's computing in three equal parts."""
    lines = ["# HELP nv_inference_queue_duration_us Cumulative inference queuing duration in microseconds"]
    for model in queue_us:
        labels = f'{{model="{model}",namespace="/opt/ml/model/",version="1"}}'
        lines.append(f"nv_inference_request_success{labels} {requests}")
        lines.append(f"nv_inference_queue_duration_us{labels} {queue_us[model]}")
        for part in ("input", "infer", "output"):
            lines.append(f"nv_inference_compute_{part}_duration_us{labels} {compute_us[model] // 3}")
    return "\n".join(lines) + "\n"


FIRST = counters(4, {"whole": 0, "a": 8000, "b": 4000}, {"whole": 30_000, "a": 20_001, "b": 9999})
SECOND = counters(6, {"whole": 0, "a": 9000, "b": 4000}, {"whole": 60_000, "a": 40_002, "b": 19_998})


def printed(*answers: str | Exception) -> list[str]:
    """Returns the printed lines if Triton answers these in turn."""
    lines: list[str] = []
    left = list(answers)

    def fetch() -> str:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    print_each_period(DIMENSIONS, "whole", fetch, lambda: bool(left), lines.append)
    return lines


def times(lines: list[str]) -> list[dict[str, Any]]:
    return [{key: value for key, value in json.loads(line).items() if key != "_aws"} for line in lines]


def test_waiting_is_summed_over_all_models_and_computing_is_the_ensembles() -> None:
    lines = printed(FIRST, SECOND)
    assert times(lines) == [
        {**DIMENSIONS, "QueueTime": 3.0, "ComputeTime": 7.5},
        {**DIMENSIONS, "QueueTime": 0.5, "ComputeTime": 15.0},
    ]
    [directive] = json.loads(lines[0])["_aws"]["CloudWatchMetrics"]
    assert [metric["Name"] for metric in directive["Metrics"]] == ["QueueTime", "ComputeTime"]


def test_a_period_without_requests_and_a_restarted_triton_print_nothing() -> None:
    assert len(printed(SECOND, SECOND, FIRST)) == 1


def test_a_failure_is_logged_once() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    lines = printed(refused, refused, http.client.BadStatusLine("?"), "# nothing yet\n", FIRST)
    assert lines[0] == (
        "server_times: cannot read Triton's metrics yet, and tries again: [Errno 111] Connection refused"
    )
    assert times(lines[1:]) == [{**DIMENSIONS, "QueueTime": 3.0, "ComputeTime": 7.5}]


def make_serve(folder: Path, start: str) -> Path:
    """Writes our start script with another script in the place of the base image's, and our folder in the image's."""
    base = a_program(folder / "base-serve", start)
    text = SERVE.read_text()
    assert "/usr/bin/serve" in text
    assert "PYTHONPATH=/opt/program " in text
    serve = folder / "serve"
    serve.write_text(text.replace("/usr/bin/serve", str(base)).replace("/opt/program", str(ROOT)))
    return serve


@pytest.mark.parametrize(
    ("given", "port"),
    [
        ({}, "8002"),
        ({"SAGEMAKER_SAFE_PORT_RANGE": "23000-23999", "SAGEMAKER_BIND_TO_PORT": "23000"}, "23001"),
    ],
)
def test_triton_serves_its_metrics_on_loopback_on_a_port_that_sagemaker_allows(
    tmp_path: Path, given: Mapping[str, str], port: str
) -> None:
    serve = make_serve(tmp_path, "env")
    cache = {f"{PREFIX}ADDITIONAL_ARGS": "--cache-config=local,size=1"}
    environment = {"PATH": "/usr/bin:/bin", **ASKED, **cache, **given}
    # The reader of the metrics ends after its first period, and keeps the output open until then.
    done = subprocess.run(
        ["sh", serve], env={**environment, "METRICS_PERIOD_S": "0.01"}, capture_output=True, text=True
    )
    got = dict(line.partition("=")[::2] for line in done.stdout.splitlines() if "=" in line)
    assert got[f"{PREFIX}ALLOW_METRICS"] == "true"
    assert got[f"{PREFIX}METRICS_PORT"] == port
    assert got[f"{PREFIX}ADDITIONAL_ARGS"] == "--cache-config=local,size=1 --metrics-address=127.0.0.1"
    assert "PYTHONPATH" not in got


def test_without_a_request_for_metrics_triton_starts_like_the_base_image(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "METRICS_WORKLOAD": "spellcheck"}
    done = subprocess.run(
        ["sh", make_serve(tmp_path, "env")], env=environment, capture_output=True, text=True, check=True
    )
    assert PREFIX not in done.stdout
    assert done.stderr == ""


@pytest.fixture(scope="module")
def tools() -> TritonToolchain:
    return TritonToolchain.locate(DEFAULT_TOOLCHAIN, platform.system(), platform.machine())


@dataclass(frozen=True)
class Started:
    process: subprocess.Popen[bytes]
    socket: Path
    log: Path

    def times(self) -> list[dict[str, Any]]:
        return times([line for line in self.log.read_text().splitlines() if line.startswith('{"_aws"')])


@pytest.fixture
def triton(tools: TritonToolchain, served: BuildPlan, tmp_path: Path) -> Iterator[Started]:
    """Starts a real Triton by our start script."""
    port, http_socket, log = free_port(), tmp_path / "http", tmp_path / "log"
    command = triton_command(tools, served.repository, "tiny", tmp_path, {})
    command += [*FLAGS.split(), f"--http-address=unix:{http_socket}", "--http-port=1", "--allow-grpc=false"]
    command += ["--model-namespacing=true", "--allow-metrics=$SAGEMAKER_TRITON_ALLOW_METRICS"]
    command += ["--metrics-port=$SAGEMAKER_TRITON_METRICS_PORT", "$SAGEMAKER_TRITON_ADDITIONAL_ARGS"]
    ports = {"METRICS_PERIOD_S": "0.1", "SAGEMAKER_SAFE_PORT_RANGE": f"{port}-{port}"}
    with log.open("w") as stream:
        process = subprocess.Popen(
            ["sh", make_serve(tmp_path, f"exec {' '.join(command)}")],
            env=triton_environment(tools, "tiny", tmp_path, {**ASKED, **ports}),
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: listens(http_socket) or process.poll() is not None)
        yield Started(process, http_socket, log)
    finally:
        process.terminate()
        process.wait(BOUND_S)


@pytest.mark.integration
def test_a_real_tritons_times_are_printed_until_it_ends(triton: Started) -> None:
    for _ in range(3):
        ask(triton.socket)
    wait_until(lambda: len(triton.times()) > 0)
    first = triton.times()[0]
    assert first.keys() == {*DIMENSIONS, "QueueTime", "ComputeTime"}
    assert DIMENSIONS.items() <= first.items()
    assert first["ComputeTime"] > 0
    assert first["QueueTime"] >= 0
    children = psutil.Process(triton.process.pid).children()
    (reader,) = (each for each in children if "containers.triton.server_times" in each.cmdline())
    triton.process.terminate()
    triton.process.wait(BOUND_S)
    reader.wait(BOUND_S)


def ask(http_socket: Path) -> None:
    tensor = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["red shoes"]}
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    with closing(connection):
        connection.sock.connect(str(http_socket))
        connection.request("POST", "/v2/models/tiny/infer", json.dumps({"inputs": [tensor]}))
        assert connection.getresponse().status == 200


def listens(http_socket: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(http_socket)) == 0
