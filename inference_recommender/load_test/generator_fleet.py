"""Several generators as one Processing job: send, wait, fetch what each measured, and merge it.

Knows `FleetAccount` as its one port. The request was built before anything is sent.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from inference_recommender.load_generator.merge import NothingToMerge, merge
from inference_recommender.load_generator.plan import LoadPlan
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_test.errors import OutputMissing, ProcessingFailed
from inference_recommender.load_test.load_test import PAYLOADS, OnEvent, Stopped
from inference_recommender.load_test.request import FleetPlan
from inference_recommender.load_test.source import pack_source
from inference_recommender.progress import Progress, ProgressUpdate

ENTRY = Path(__file__).with_name("generator_entry.py")
POLL_S = 15.0
ENDED = ("Completed", "Failed", "Stopped")


class FleetAccount(Protocol):
    """Every method raises `AwsUnavailable` where the service is not there."""

    def upload(self, url: str, body: bytes) -> None:
        """Put `body` at an s3:// URL."""

    def create_processing_job(self, request: Mapping[str, Any]) -> None: ...

    def describe_processing_job(self, name: str) -> Mapping[str, Any]: ...

    def stop_processing_job(self, name: str) -> None: ...

    def files(self, url: str) -> Sequence[str]:
        """The names of all files below an s3:// folder, relative to it."""

    def read(self, url: str) -> bytes: ...


class FleetDrive:
    """A `run.Drive`. The plan is every generator's; each takes its share."""

    def __init__(
        self, planned: FleetPlan, account: FleetAccount, root: Path, progress: Progress, poll_s: float = POLL_S
    ) -> None:
        self._planned = planned
        self._account = account
        self._root = root
        self._progress = progress
        self._poll_s = poll_s

    def __call__(self, plan: LoadPlan, folder: Path, on_event: OnEvent) -> Outcome:
        """Raises `ProcessingFailed`, `OutputMissing`, `NothingToMerge` or `Stopped`."""
        name = self._planned.job_name
        self._send(plan, folder)
        try:
            self._account.create_processing_job(self._planned.request)
            described = self._wait()
        except KeyboardInterrupt:
            self._stop()
            raise Stopped(self._merged_if_any(plan, folder)) from None
        if described["ProcessingJobStatus"] != "Completed":
            why = described.get("ExitMessage") or described.get("FailureReason") or "the service gave no reason."
            raise ProcessingFailed(name, why)
        return self._merged(plan, folder)

    def _send(self, plan: LoadPlan, folder: Path) -> None:
        payloads = folder.parent / PAYLOADS
        bodies = {
            "source.tar.gz": pack_source(self._root),
            "entry.py": ENTRY.read_bytes(),
            "plan.json": plan.model_dump_json(indent=2).encode(),
            PAYLOADS: payloads.read_bytes(),
        }
        for name, body in bodies.items():
            self._account.upload(f"{self._planned.source_url}/{name}", body)

    def _wait(self) -> Mapping[str, Any]:
        began = time.monotonic()
        limit_s = float(self._planned.request["StoppingCondition"]["MaxRuntimeInSeconds"])
        while True:
            described = self._account.describe_processing_job(self._planned.job_name)
            status = described["ProcessingJobStatus"]
            elapsed = time.monotonic() - began
            self._progress.update(
                ProgressUpdate(job_name=self._planned.job_name, status=status, elapsed_s=elapsed, expected_s=limit_s)
            )
            if status in ENDED:
                return described
            time.sleep(self._poll_s)

    def _stop(self) -> None:
        """Asked to stop, the generators end in good order and what they measured is uploaded."""
        self._account.stop_processing_job(self._planned.job_name)
        self._wait()

    def _merged_if_any(self, plan: LoadPlan, folder: Path) -> Outcome:
        """A fleet that was stopped while its instances started has measured nothing."""
        try:
            return self._merged(plan, folder)
        except (OutputMissing, NothingToMerge) as nothing:
            return Outcome(folder=folder, exit_code=nothing.exit_code, reason=str(nothing), summary=None)

    def _merged(self, plan: LoadPlan, folder: Path) -> Outcome:
        outcomes = self._fetched(folder)
        if len(outcomes) < self._planned.generators:
            raise OutputMissing(self._planned.output_url, len(outcomes), self._planned.generators)
        return merge(outcomes, plan, folder)

    def _fetched(self, folder: Path) -> list[Outcome]:
        """What each host left, in a folder of its own below `folder`."""
        for name in self._account.files(self._planned.output_url):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self._account.read(f"{self._planned.output_url}/{name}"))
        return [_outcome(file.parent) for file in sorted(folder.glob("*/exit.json"))]


def _outcome(host: Path) -> Outcome:
    ended = json.loads((host / "exit.json").read_text("utf-8"))
    summary = host / "summary.json"
    return Outcome(
        folder=host,
        exit_code=ended["exit_code"],
        reason=ended["reason"],
        summary=json.loads(summary.read_text("utf-8")) if summary.exists() else None,
    )
