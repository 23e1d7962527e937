"""One test of an Inference Recommender job, run for real: a fresh Triton or an endpoint's own, the load generator
against it, the results.

What was measured is kept whichever way the test ends. The generator is a child process with a plan on disk and JSON
lines on its standard output; this module does not know how it makes its load.
"""

import json
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE
from typing import Any, Literal

from local_aws import machine
from local_aws.errors import LocalAccountError, UnsupportedModel
from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.triton import TritonServer
from local_aws.process.usage import UsageSampler
from local_aws.sagemaker.endpoint import shortened
from local_aws.sagemaker.endpoint_fleet import death_notice
from local_aws.sagemaker.job_subject import VARIANT, Deployed
from local_aws.sagemaker.model_host import Container, ModelHost, say
from local_aws.sagemaker.recommendation_request import JobPlan, LoadTest
from workloads import ROOT

GENERATOR = (sys.executable, "-m", "inference_recommender.load_generator")
WINDOW_S = 1.0

Status = Literal["PENDING", "IN_PROGRESS", "COMPLETED", "FAILED", "STOPPED"]
OnWindow = Callable[[Mapping[str, Any]], None]


@dataclass(slots=True)
class Step:
    """A test and what is known of it so far."""

    test: LoadTest | Deployed
    status: Status = "PENDING"
    endpoint_name: str = field(default_factory=lambda: f"sm-epc-{uuid.uuid4()}")
    metrics: dict[str, int | float] = field(default_factory=dict)
    failure_reason: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @classmethod
    def of(cls, test: LoadTest | Deployed) -> "Step":
        """On an endpoint of its own, or on the one that exists."""
        return cls(test, endpoint_name=test.endpoint_name) if isinstance(test, Deployed) else cls(test)

    @property
    def name(self) -> str:
        """For the person at the terminal."""
        return f"endpoint {self.endpoint_name}" if isinstance(self.test, Deployed) else self.test.instance_type

    @property
    def variant(self) -> str:
        return self.test.variant_name if isinstance(self.test, Deployed) else VARIANT

    def benchmark(self) -> dict[str, Any]:
        """In the shape of RecommendationJobInferenceBenchmark, and of InferenceRecommendation but for its id."""
        optional = {"InvocationStartTime": self.started_at, "InvocationEndTime": self.ended_at}
        return self._shown() | {name: value for name, value in optional.items() if value}

    def endpoint_metrics(self) -> dict[str, Any]:
        """InferenceMetrics, which an existing endpoint has in place of RecommendationMetrics; both members or none."""
        found = {name: self.metrics.get(name) for name in ("MaxInvocations", "ModelLatency")}
        return {} if None in found.values() else found

    def _shown(self) -> dict[str, Any]:
        if isinstance(self.test, Deployed):
            measured = self.endpoint_metrics()
            return {"ModelConfiguration": {}, **({"EndpointMetrics": measured} if measured else {})}
        return {
            "EndpointConfiguration": {
                "EndpointName": self.endpoint_name,
                "VariantName": VARIANT,
                "InstanceType": self.test.instance_type,
                "InitialInstanceCount": 1,
            },
            "ModelConfiguration": self.test.model_configuration(),
            **({"Metrics": dict(self.metrics)} if self.metrics else {}),
        }


@dataclass(slots=True)
class LoadTestRunner:
    """Runs the steps of one job. `stop` may be called from another thread at any moment."""

    host: ModelHost
    plan: JobPlan
    container: Container
    payloads: Path
    folder: Path
    generator: Sequence[str] = GENERATOR
    stopped: threading.Event = field(default_factory=threading.Event)
    _process: GuardedProcess | None = None

    def stop(self) -> None:
        self.stopped.set()
        if self._process is not None:
            self._process.request_stop()

    def run(self, step: Step, left_s: float, on_window: OnWindow) -> None:
        """Run one step to its end; `left_s` is what is left of the job's duration. Never raises."""
        step.status = "IN_PROGRESS"
        try:
            self._run(step, left_s, on_window)
        except Exception as error:  # whatever it was: a step must not stay IN_PROGRESS for ever
            reason = str(error) if isinstance(error, LocalAccountError) else f"{type(error).__name__}: {error}"
            step.failure_reason = shortened(reason)
        step.status = "FAILED" if step.failure_reason else "STOPPED" if self.stopped.is_set() else "COMPLETED"
        say(f"test on {step.name}: {': '.join(filter(None, (step.status, step.failure_reason)))}")

    def _run(self, step: Step, left_s: float, on_window: OnWindow) -> None:
        if left_s < 1:
            raise UnsupportedModel("The job's JobDurationInSeconds was over before this test could start.")
        if isinstance(step.test, Deployed):
            self._load(step, step.test.server(), left_s, on_window)
        else:
            self._run_fresh(step, step.test, left_s, on_window)

    def _run_fresh(self, step: Step, test: LoadTest, left_s: float, on_window: OnWindow) -> None:
        if refused := machine.refusal(test.instance_type):
            raise UnsupportedModel(refused)
        environment = {**self.container.environment, **test.environment}
        container = Container(model_data_url=self.container.model_data_url, environment=environment)
        began = datetime.now(UTC)
        server = self.host.start(container, step.endpoint_name)
        try:
            step.metrics["ModelSetupTime"] = round((datetime.now(UTC) - began).total_seconds())
            if not self.stopped.is_set():
                self._load(step, server, left_s, on_window)
        finally:
            self.host.stop(server)

    def _load(self, step: Step, server: TritonServer, left_s: float, on_window: OnWindow) -> None:
        folder = self.folder / step.endpoint_name
        folder.mkdir(parents=True)
        plan_file = folder / "plan.json"
        plan_file.write_text(json.dumps(self._generator_plan(server, left_s), indent=2), "utf-8")
        usage = UsageSampler(server.pid)
        usage.start()
        step.started_at = datetime.now(UTC)
        say(f"test on {step.name}: load on Triton (process {server.pid}), kept in {folder}")
        try:
            status, reason = self._generate(plan_file, folder, on_window)
        finally:
            step.ended_at = datetime.now(UTC)
            usage.stop()
            step.metrics |= _metrics(folder / "summary.json", usage)
        if (failure := _failure(status, reason, server, step.variant, folder)) and not (
            self.stopped.is_set() and server.alive()
        ):
            step.failure_reason = shortened(failure)

    def _generator_plan(self, server: TritonServer, left_s: float) -> dict[str, Any]:
        return {
            "url": f"{server.sagemaker_url}/invocations",
            "payloads": str(self.payloads),
            "content_type": self.plan.content_type,
            "traffic_pattern": self.plan.traffic_pattern,
            "stopping_conditions": self.plan.stopping_conditions,
            "job_duration_s": left_s,
            "window_s": WINDOW_S,
        }

    def _generate(self, plan_file: Path, folder: Path, on_window: OnWindow) -> tuple[int, str]:
        """The generator's exit status and the reason it gave."""
        with (folder / "generator.log").open("ab") as log:
            process = GuardedProcess.start(
                [*self.generator, plan_file, "--out", folder],
                environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
                stdout=PIPE,
                stderr=log,
                working_directory=ROOT,
                grace_s=15,
            )
        self._process = process
        if self.stopped.is_set():  # Asked while it was starting, when there was no process to tell.
            process.request_stop()
        reason = ""
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "window":
                on_window(event)
            elif event["event"] == "finished":
                reason = event["reason"]
        self._process = None
        return process.wait(), reason


def _metrics(summary_file: Path, usage: UsageSampler) -> dict[str, int | float]:
    """RecommendationMetrics without costs: this machine has no price."""
    found: dict[str, int | float] = {}
    if summary_file.exists():
        summary = json.loads(summary_file.read_text("utf-8"))
        named = {"MaxInvocations": "max_invocations_per_minute", "ModelLatency": "model_latency_ms"}
        found |= {name: round(summary[key]) for name, key in named.items() if summary.get(key) is not None}
    if (highest := usage.highest) is not None:
        found |= {
            "CpuUtilization": round(highest.cpu_percent, 1),
            "MemoryUtilization": round(highest.memory_percent, 2),
        }
    return found


def _failure(status: int, reason: str, server: TritonServer, variant: str, folder: Path) -> str | None:
    """Why the test failed, or None when it did not."""
    if (ended := server.exit_status) is not None:
        return death_notice(variant, ended, server)
    if status == 0:
        return None
    if reason:  # in the generator's own words: by them a reader tells a test that failed from one that proves nothing
        return reason
    log = (folder / "generator.log").read_text("utf-8", "replace").strip()
    return f"The load generator ended with exit status {status}: {log[-600:] or 'it said nothing'}"
