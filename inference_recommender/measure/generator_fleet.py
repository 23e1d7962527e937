"""Several generators as one SageMaker Processing job: the request, the wait, and the merged results.

Every instance gets the same folder from S3: code, plan and payloads. It runs its share of the plan, by its place among
the job's hosts. The hosts meet over the network to start together, so in a VPC the security group must allow traffic
between its members on `generator_entry.MEETING_PORT`.
"""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_api.processing_jobs import ENDED, ProcessingJob
from aws_api.sagemaker import SageMakerAccount
from containers import archive_reader
from inference_recommender.load_generator.load_plan import LoadPlan
from inference_recommender.load_generator.process import OnEvent, Outcome
from inference_recommender.load_generator.summary import NothingToMerge, merge
from inference_recommender.measure.generator_entry import TOKEN
from inference_recommender.measure.load_test import Stopped
from inference_recommender.payloads import tar_gz
from inference_recommender.progress import Progress
from inference_recommender.run_folder import PAYLOADS
from workloads import Unavailable
from workloads.files import replacing

ENTRY = Path(__file__).with_name("generator_entry.py")
CODE = ("aws_api", "inference_recommender")
LOCKS = ("requirements/generator.txt", "requirements/uv.txt")
POLL_S = 15.0
VOLUME_GB = 30
SETUP_S = 1800
"""Seconds for instances to start, install Python and meet, added to the traffic."""


def plan_fleet(
    workload: str, name: str, duration_s: float, *, generators: int, bucket: str, region: str, **instances: Any
) -> ProcessingJob:
    """Returns the Processing job called `name`; `instances` are more members of it. The stack's role may read below the
    prefix of the bucket.
    """
    base = f"s3://{bucket}/inference-recommender/{workload}/load-test/{name}"
    return ProcessingJob(
        name=name,
        instances=generators,
        volume_gb=VOLUME_GB,
        source_url=f"{base}/source",
        output_name="measured",
        output_url=f"{base}/output",
        upload="Continuous",  # a stopped job keeps what its generators wrote at their end
        max_runtime_s=int(duration_s) + SETUP_S,
        environment={"AWS_DEFAULT_REGION": region},
        tags={"workload": workload},
        **instances,
    )


@dataclass(frozen=True, slots=True)
class FleetDrive:
    """A `Drive` by several generators. All get the same plan, and each takes its share."""

    job: ProcessingJob
    account: SageMakerAccount
    root: Path
    progress: Progress
    poll_s: float = POLL_S

    def __call__(self, plan: LoadPlan, folder: Path, on_event: OnEvent) -> Outcome:
        """Raises `Unavailable`, `NothingToMerge` or `Stopped`."""
        self._send(plan, folder)
        try:
            self.account.create_processing_job(self.job.request())
            described = self._wait()
        except KeyboardInterrupt:
            self.account.stop_processing_job(self.job.name)  # the generators end in good order and upload results
            self._wait()
            outcomes = self._fetched(folder)
            try:
                raise Stopped(self._merged(outcomes, plan, folder)) from None
            except (Unavailable, NothingToMerge) as nothing:  # it was stopped while its instances started
                code, reason = nothing.exit_code, str(nothing)
                raise Stopped(Outcome(folder=folder, exit_code=code, reason=reason, summary=None)) from None
        if described["ProcessingJobStatus"] != "Completed":
            why = described.get("ExitMessage") or described.get("FailureReason") or "the service gave no reason."
            raise Unavailable(f"Processing job {self.job.name} failed: {why}")
        return self._merged(self._fetched(folder), plan, folder)

    def _send(self, plan: LoadPlan, folder: Path) -> None:
        bodies = {
            "source.tar.gz": pack_source(self.root),
            "entry.py": ENTRY.read_bytes(),
            **{name: file.read_bytes() for name, file in archive_reader.BESIDE.items()},
            "plan.json": plan.model_dump_json(indent=2).encode(),
            TOKEN: secrets.token_hex(32).encode(),
            PAYLOADS: (folder.parent / PAYLOADS).read_bytes(),
        }
        for name, body in bodies.items():
            self.account.upload(f"{self.job.source_url}/{name}", body)

    def _wait(self) -> Mapping[str, Any]:
        report = self.progress.timed(self.job.name, float(self.job.max_runtime_s))
        while True:
            described = self.account.describe_processing_job(self.job.name)
            report(status := described["ProcessingJobStatus"])
            if status in ENDED:
                return described
            time.sleep(self.poll_s)

    def _merged(self, outcomes: Sequence[Outcome], plan: LoadPlan, folder: Path) -> Outcome:
        if len(outcomes) != self.job.instances:
            raise Unavailable(
                f"{self.job.output_url}: has what {len(outcomes)} of {self.job.instances} generators measured. Without "
                "the others no rate is known."
            )
        return merge(outcomes, plan, folder)

    def _fetched(self, folder: Path) -> list[Outcome]:
        """Downloads what each host left into a folder of its own below `folder`."""
        for name in self.account.files(self.job.output_url):
            with replacing(folder / name) as file:
                file.write(self.account.read(f"{self.job.output_url}/{name}"))
        ended = {file.parent: json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*/exit.json"))}
        return [Outcome.of(host, each["exit_code"], each["reason"]) for host, each in ended.items()]


def source_files(root: Path) -> dict[str, Path]:
    """Returns what every instance needs of the repository, by its name in the archive.

    Compiled Python stays here; of `workloads/` only the contract goes.
    """
    code = [file for name in CODE for file in (root / name).rglob("*") if file.suffix in (".py", ".json")]
    contract = [file for file in (root / "workloads").glob("*") if file.suffix in (".py", ".json")]
    files = {file.relative_to(root).as_posix(): file for file in [*code, *contract, *(root / name for name in LOCKS)]}
    return dict(sorted({**files, **archive_reader.BESIDE}.items()))


def pack_source(root: Path) -> bytes:
    """Returns a tar.gz of `source_files`. The same files give the same bytes."""
    return tar_gz({name: file.read_bytes() for name, file in source_files(root).items()})
