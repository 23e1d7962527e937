"""Runs one test of an Inference Recommender job: the load generator against a model server.

The generator is a child process. Its measurements are kept, whether the test completes or not.
"""

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from inference_recommender.load_generator.load_plan import LoadPlan
from inference_recommender.load_generator.process import GeneratorProcess, Outcome
from local_aws.machine import OtherWork, UsageSampler
from local_aws.process.model_server import ModelServer
from local_aws.sagemaker.endpoint import failure_reason, shortened
from local_aws.sagemaker.endpoint_fleet import death_notice
from local_aws.sagemaker.model_host import ModelContainer, ModelHost
from local_aws.sagemaker.recommendation_request import EndpointTest, InstanceTest, RecommendationPlan
from workloads import Unavailable

log = logging.getLogger(__name__)

WINDOW_S = 1.0

Status = Literal["PENDING", "IN_PROGRESS", "COMPLETED", "FAILED", "STOPPED"]
OnWindow = Callable[[Mapping[str, Any]], None]


@dataclass(slots=True)
class JobStep:
    """A test and its results so far."""

    test: InstanceTest | EndpointTest
    status: Status = "PENDING"
    metrics: dict[str, int | float] = field(default_factory=dict)
    failure_reason: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def endpoint_name(self) -> str:
        return self.test.endpoint_name

    @property
    def name(self) -> str:
        """Name of the step in the account's log."""
        return f"endpoint {self.endpoint_name}" if isinstance(self.test, EndpointTest) else self.test.instance_type

    def benchmark(self) -> dict[str, Any]:
        """Returns the shape of RecommendationJobInferenceBenchmark, which is InferenceRecommendation without its id."""
        shown: dict[str, Any] = {"InvocationStartTime": self.started_at, "InvocationEndTime": self.ended_at}
        if isinstance(self.test, EndpointTest):
            shown |= {"ModelConfiguration": {}, "EndpointMetrics": self.endpoint_metrics()}
        else:
            shown["ModelConfiguration"] = self.test.model_configuration()
            shown["EndpointConfiguration"] = {
                "EndpointName": self.endpoint_name,
                "VariantName": self.test.variant_name,
                "InstanceType": self.test.instance_type,
                "InitialInstanceCount": 1,
            }
            shown["Metrics"] = dict(self.metrics)
        return {name: value for name, value in shown.items() if value or name == "ModelConfiguration"}

    def endpoint_metrics(self) -> dict[str, Any]:
        """Returns InferenceMetrics of an existing endpoint: both members or none."""
        metrics = {name: self.metrics.get(name) for name in ("MaxInvocations", "ModelLatency")}
        return {} if None in metrics.values() else metrics


@dataclass(slots=True)
class LoadTestRunner:
    """Runs the steps of one job. Another thread may call `stop` at any moment."""

    host: ModelHost
    plan: RecommendationPlan
    container: ModelContainer
    payloads: Path
    folder: Path
    stopped: threading.Event = field(default_factory=threading.Event)
    _process: GeneratorProcess | None = None

    def stop(self) -> None:
        self.stopped.set()
        if self._process is not None:
            self._process.request_stop()

    def run(self, step: JobStep, left_s: float, on_window: OnWindow) -> None:
        """Runs one step to its end. `left_s` is the rest of the job's duration in seconds. Never raises."""
        step.status = "IN_PROGRESS"
        try:
            self._run(step, left_s, on_window)
        except Exception as error:  # every error: a step must not stay IN_PROGRESS for ever
            step.failure_reason = shortened(failure_reason(error))
        step.status = "FAILED" if step.failure_reason else "STOPPED" if self.stopped.is_set() else "COMPLETED"
        log.info(f"test on {step.name}: {': '.join(filter(None, (step.status, step.failure_reason)))}")

    def _run(self, step: JobStep, left_s: float, on_window: OnWindow) -> None:
        if left_s < 1:
            raise Unavailable("The job's JobDurationInSeconds was over before this test could start.")
        if isinstance(step.test, EndpointTest):
            self._load(step, step.test.server(), left_s, on_window)
        else:
            self._run_fresh(step, step.test, left_s, on_window)

    def _run_fresh(self, step: JobStep, test: InstanceTest, left_s: float, on_window: OnWindow) -> None:
        if refused := self.host.refusal(test.instance_type):
            raise Unavailable(refused)
        environment = {**self.container.environment, **test.environment}
        container = dataclasses.replace(self.container, environment=environment)
        began = datetime.now(UTC)
        server = self.host.start(container, step.endpoint_name, test.instance_type)
        try:
            step.metrics["ModelSetupTime"] = round((datetime.now(UTC) - began).total_seconds())
            if not self.stopped.is_set():
                self._load(step, server, left_s, on_window)
        finally:
            self.host.stop(server)

    def _load(self, step: JobStep, server: ModelServer, left_s: float, on_window: OnWindow) -> None:
        folder = self.folder / step.endpoint_name
        about = {
            "url": server.invocations_url,
            "headers": server.extra_headers(self.plan.content_type),
            "payloads": str(self.payloads),
            "content_type": self.plan.content_type,
            "traffic_pattern": self.plan.traffic_pattern,
            "stopping_conditions": self.plan.stopping_conditions,
            "job_duration_s": left_s,
            "window_s": WINDOW_S,
        }
        plan = LoadPlan.from_table(folder / "plan.json", about)
        usage = UsageSampler(server.pid)
        usage.start()
        step.started_at = datetime.now(UTC)
        log.info(f"test on {step.name}: load on {server.KIND} (process {server.pid}), kept in {folder}")
        outcome: Outcome | None = None
        try:
            outcome = self._generate(plan, folder, on_window)
        finally:
            step.ended_at = datetime.now(UTC)
            usage.stop()
            step.metrics |= _metrics(outcome, usage)
        if (failure := _failure(outcome, server, step.test.variant_name)) and not (
            self.stopped.is_set() and server.exit_status is None
        ):
            step.failure_reason = shortened(failure)

    def _generate(self, plan: LoadPlan, folder: Path, on_window: OnWindow) -> Outcome:
        with GeneratorProcess(plan, folder, self.host.settings.generator) as process:
            self._process = process
            if self.stopped.is_set():  # the request came while there was no process yet
                process.request_stop()
            other_work = OtherWork()
            for event in process.events():
                if event["event"] == "window":
                    stalled_s = max(event.get("stalled_s", 0.0), other_work.seconds())
                    on_window({**event, "stalled_s": stalled_s})
            self._process = None
            return process.outcome()


def _metrics(outcome: Outcome | None, usage: UsageSampler) -> dict[str, int | float]:
    metrics: dict[str, int | float] = {}
    if outcome is not None and outcome.summary is not None:
        named = {"MaxInvocations": "closed_loop_invocations_per_minute", "ModelLatency": "model_latency_ms"}
        summary = outcome.summary
        metrics |= {name: round(summary[key]) for name, key in named.items() if summary.get(key) is not None}
    if (highest := usage.highest) is not None:
        metrics |= {"CpuUtilization": round(highest[0], 1), "MemoryUtilization": round(highest[1], 2)}
    return metrics


def _failure(outcome: Outcome, server: ModelServer, variant: str) -> str | None:
    ended = server.exit_status if outcome.exit_code == 0 else server.exit_status_if_silent()
    if ended is not None:
        return death_notice(variant, ended, server)
    return outcome.reason if outcome.exit_code else None
