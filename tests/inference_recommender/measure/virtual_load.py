"""The load generator in virtual time, for load tests: one generator, or several instances in an account."""

import io
import json
import signal
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.load_generator.load_plan import LoadPlan, Share
from inference_recommender.load_generator.process import OnEvent, Outcome
from inference_recommender.measure.load_test import Drive, Stopped
from tests.inference_recommender.load_generator.virtual_run import START_S, URL, run_command
from tests.virtual_time import EPOCH, Network, VirtualLoop, answering

SERVICE_S = 0.02


def virtual_drive(network: Network | None = None, *, stopped_after_s: float | None = None) -> Drive:
    """Returns a `Drive` by one generator, against servers that answer within `SERVICE_S`.

    With `stopped_after_s` the user presses Ctrl-C at that second of the run.
    """
    servers = network or Network(answering(SERVICE_S))

    def drive(plan: LoadPlan, folder: Path, on_event: OnEvent) -> Outcome:
        events: dict[float, Callable[[VirtualLoop], object]] = {}
        if stopped_after_s is not None:
            events[stopped_after_s] = lambda loop: loop.signal_handlers[signal.SIGTERM]()
        printed = io.StringIO()
        with redirect_stdout(printed):
            outcome = run_command(_without_network(plan), answering(), folder, events=events, network=servers)
        for line in printed.getvalue().splitlines():
            on_event(json.loads(line))
        if stopped_after_s is not None:
            raise Stopped(outcome)
        return outcome

    return drive


class VirtualFleet(SageMakerAccount):
    """An account whose instances run in virtual time, each its share of the plan that was uploaded."""

    def __init__(self, network: Network | None = None) -> None:
        self.network = network or Network(answering(SERVICE_S))
        self.objects: dict[str, bytes] = {}
        self.created: list[Mapping[str, Any]] = []
        self.stopped: list[str] = []
        self.measures = True
        """Whether the instances come to measure anything before the job ends."""
        self.failure: str | None = None
        """The message of a job that fails."""
        self.interrupted = False
        """Whether the user presses Ctrl-C while the job runs."""

    def upload(self, url: str, body: bytes) -> None:
        self.objects[url] = body

    def create_processing_job(self, request: Mapping[str, Any]) -> None:
        self.created.append(request)
        count = request["ProcessingResources"]["ClusterConfig"]["InstanceCount"]
        source_url = request["ProcessingInputs"][0]["S3Input"]["S3Uri"]
        (output,) = request["ProcessingOutputConfig"]["Outputs"]
        if self.measures:
            for index in range(count):
                self._run(source_url, output["S3Output"]["S3Uri"], Share(index=index, of=count))

    def describe_processing_job(self, name: str) -> Mapping[str, Any]:
        if self.interrupted and not self.stopped:
            raise KeyboardInterrupt
        if self.failure:
            return {"ProcessingJobStatus": "Failed", "ExitMessage": self.failure}
        return {"ProcessingJobStatus": "Stopped" if self.stopped else "Completed"}

    def stop_processing_job(self, name: str) -> None:
        self.stopped.append(name)

    def files(self, url: str) -> list[str]:
        return [name.removeprefix(f"{url}/") for name in self.objects if name.startswith(f"{url}/")]

    def read(self, url: str) -> bytes:
        return self.objects[url]

    def _run(self, source_url: str, output_url: str, part: Share) -> None:
        index = part.index
        plan = LoadPlan.model_validate_json(self.objects[f"{source_url}/plan.json"])
        share = {"share": part, "start_at": EPOCH + START_S + 2.2 + 0.05 * index}
        folder = Path(str(plan.payloads)).parent / f"instance-{index}"
        with redirect_stdout(io.StringIO()):
            outcome = run_command(
                _without_network(plan).model_copy(update=share), answering(), folder, network=self.network
            )
        ended = {"exit_code": outcome.exit_code, "reason": outcome.reason}
        (folder / "exit.json").write_text(json.dumps(ended), "utf-8")
        for name in ("summary.json", "records.npz", "exit.json"):
            self.objects[f"{output_url}/instance-{index}/{name}"] = (folder / name).read_bytes()


def _without_network(plan: LoadPlan) -> LoadPlan:
    """Returns the plan against a virtual server."""
    return plan.model_copy(update={"url": URL, "endpoint": None})
