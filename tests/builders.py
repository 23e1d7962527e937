"""One builder for each document of the contract and of a run's folder. Keywords replace members."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from inference_recommender.capacity.probe import Capacity, Probe
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.run_folder import PAYLOADS, Jobs, RunFolder, RunInputs
from workloads import (
    Autoscaling,
    Candidate,
    ColdStart,
    LatencyObjective,
    ModelArtifact,
    ParityReport,
    Provenance,
    Recommendation,
    load_workload,
)

T = TypeVar("T")
P = ParamSpec("P")

SHA256 = "a" * 64
OBJECTIVE = LatencyObjective(percentile="P90", model_latency_ms=50.0, peak_invocations_per_minute=12_000)


def an_artifact(**changes: Any) -> ModelArtifact:
    """Returns the artifact of spellcheck for cpu."""
    metrics = {"exact_match": 0.9, "unchanged_rate": 0.97}
    parity = ParityReport(
        examples=500,
        identical_answers=500,
        max_logit_difference=1e-5,
        mean_logit_difference=1e-6,
        original=metrics,
        compiled=metrics,
    )
    artifact = ModelArtifact(
        workload="spellcheck",
        variant="cpu",
        target="cpu",
        runtime="onnxruntime",
        precision="fp32",
        archive="model.tar.gz",
        archive_sha256=SHA256,
        archive_bytes=1,
        default_model="spellcheck",
        environment={},
        checkpoint_sha256="0" * 64,
        toolchain={"onnxruntime": "1.31.0"},
        parity=parity,
    )
    return artifact.model_copy(update=changes)


def a_system(**changes: Any) -> SystemUnderTest:
    """Returns one instance that is reached at a URL."""
    members: dict[str, Any] = {
        "name": "endpoint-1",
        "url": "http://127.0.0.1:1/invocations",
        "instance_type": "ml.c5.xlarge",
        "archive_sha256": SHA256,
        "measured_on": "local",
        "machine": "a laptop with 2 cores",
        "region": "us-east-1",
    }
    return SystemUnderTest(**{**members, **changes})


def a_measurement(rate: float | None = 12_000.0, **changes: Any) -> Measurement:
    """Returns the closed-loop measurement of one instance, without a time series."""
    members: dict[str, Any] = {
        "instance_type": "ml.c5.xlarge",
        "endpoint_name": "sm-epc-1",
        "closed_loop_invocations_per_minute": rate,
        "model_latency_ms": 40.0,
    }
    return Measurement(**{**members, **changes})


def a_candidate(count: int | None = 10, capacity: float = 1500.0, **changes: Any) -> Candidate:
    members: dict[str, Any] = {
        "instance_type": "ml.c5.xlarge",
        "max_invocations_per_minute": capacity,
        "max_invocations_interval": (capacity * 0.95, capacity * 1.05),
        "instance_count": count,
        "autoscaling": Autoscaling(min_capacity=1, max_capacity=20, target_invocations_per_instance=capacity / 2),
        "meets_objective": True,
        "reason": "Keeps P90 model latency ≤ 50 ms.",
    }
    return Candidate(**{**members, **changes})


def a_probe(
    rate: float, latency_ms: float | None, late_share: float, duration_s: float = 20.0, **members: Any
) -> Probe:
    return Probe(
        invocations_per_minute=rate, duration_s=duration_s, latency_ms=latency_ms, late_share=late_share, **members
    )


def a_search(rate: float | None, *probes: Probe, **changes: Any) -> Capacity:
    """Returns an open-loop search for P99 ≤ 50 ms."""
    members: dict[str, Any] = {"percentile": "P99", "limit_ms": 50.0, "reason": "found", "probes": probes}
    return Capacity(**{"invocations_per_minute": rate, **members, **changes})


def a_cold_start(**changes: Any) -> ColdStart:
    """Returns the medians of three starts on this machine, which do not include provisioning."""
    members: dict[str, Any] = {
        "fetch_s": 0.001,
        "unpack_s": 0.02,
        "start_s": 0.6,
        "load_s": 2.4,
        "warm_up_s": 0.2,
        "first_answer_s": 0.1,
        "total_s": 3.321,
        "starts": 3,
        "ranges_s": {"load_s": (2.1, 2.9), "total_s": (3.0, 3.8)},
        "measured_on": "local",
        "machine": "two cores",
        "instance_type": "ml.c5.xlarge",
        "archive_sha256": SHA256,
        "measured_at": "2026-11-23T09:30:00+00:00",
    }
    return ColdStart(**{**members, **changes})


def a_provenance(**changes: Any) -> Provenance:
    members: dict[str, Any] = {
        "measured_on": "local",
        "machine": "a laptop with 2 cores",
        "job_name": "job-1",
        "job_arn": "arn",
        "traffic": "quick",
        "percentile": "P90",
        "measured_at": "2026-11-23T03:00:00+00:00",
        "region": "us-east-1",
        "run": "runs/job-1",
    }
    return Provenance(**{**members, **changes})


def a_recommendation(chosen: Candidate | None = None, **changes: Any) -> Recommendation:
    """Returns a recommendation of ten instances for 12,000 invocations a minute."""
    chosen = chosen or a_candidate()
    members: dict[str, Any] = {
        "workload": "spellcheck",
        "target": "cpu",
        "archive_sha256": SHA256,
        "objective": OBJECTIVE,
        "recommended": chosen,
        "candidates": (chosen,),
        "provenance": a_provenance(),
    }
    return Recommendation(**{**members, **changes})


def a_run_folder(
    path: Path, *measured: Measurement, workload: str = "spellcheck", request: dict[str, Any] | None = None, **jobs: Any
) -> RunFolder:
    """Writes the folder of a job's run. `jobs` replaces members of jobs.json."""
    folder = RunFolder(path)
    folder.keep_workload(load_workload(workload).workload)
    folder.keep_inputs(RunInputs(traffic="quick", archive_sha256=SHA256))
    folder.keep_bytes(PAYLOADS, b"")
    members = {"token": "t", "names": ("job-1",), "expected_s": 60.0, "payload_url": "s3://b/k", **jobs}
    folder.keep_jobs(Jobs(**members), (request or {"JobName": "job-1", "InputConfig": {"ModelName": "m"}},))
    if measured:
        folder.keep_measurements(measured)
    return folder


class Watched(Progress):
    """A progress that keeps what it receives."""

    def __init__(self) -> None:
        self.updates: list[ProgressUpdate] = []
        self.said: list[str] = []

    def update(self, update: ProgressUpdate) -> None:
        self.updates.append(update)

    def say(self, text: str) -> None:
        self.said.append(text)


def known(value: T | None) -> T:
    """Returns a value that a test expects to be there."""
    assert value is not None
    return value


def message_of(
    error: type[Exception] | tuple[type[Exception], ...], call: Callable[P, object], *args: P.args, **kwargs: P.kwargs
) -> str:
    """Returns the message of the error that the call must raise."""
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def assert_is_golden(file: Path, text: str) -> None:
    """Fails on a difference after rewriting the file: read the diff, then run again."""
    expected = file.read_text("utf-8") if file.exists() else ""
    if text != expected:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
    assert text == expected, f"{file} was rewritten: review the difference"


def failure_of(error: type[Exception], call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> tuple[str, int]:
    """Returns the message and the exit code of the error that the call must raise."""
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    failure: Any = caught.value
    return str(failure), failure.exit_code


def a_program(file: Path, script: str) -> Path:
    """Writes a shell script in a program's place."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
