"""A run's folder: its inputs, the measurements and the result. Analysis can run again from here, without AWS."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, TypeAdapter

from inference_recommender.measurement import Measurement
from workloads import NoVerdict, PayloadLengths, Recommendation, UsageError, Workload
from workloads.document import Document
from workloads.errors import InvalidDocument
from workloads.files import PRIVATE, from_here, replace_text, replacing

T = TypeVar("T")

PAYLOADS = "payloads.tar.gz"

_MEASUREMENTS = TypeAdapter(tuple[Measurement, ...])


class Jobs(Document):
    """Contents of `jobs.json`: what a run needs to continue after it was killed. Written before any job is created."""

    token: str
    """Value of the tag `run` of every job of the run. Another job of the same name has another value."""
    names: tuple[str, ...]
    expected_s: float
    """Expected seconds of one job's traffic."""
    payload_url: str
    existing_endpoint: dict[str, Any] | None = None
    """EndpointConfiguration of an existing endpoint that the job tests."""


class RunInputs(Document):
    """Contents of `run.json`: traffic profile, archive hash and payload lengths of the measurements."""

    traffic: str
    archive_sha256: str
    lengths: PayloadLengths | None = None


class _Traffic(Document, extra="ignore"):
    DurationInSeconds: int = Field(gt=0)
    NumberOfSteps: int = Field(default=1, gt=0, le=10_000)


class _TrafficPattern(Document, extra="ignore"):
    Phases: tuple[_Traffic, ...] | None = None
    Stairs: _Traffic | None = None


class _InputConfig(Document, extra="ignore"):
    TrafficPattern: _TrafficPattern | None = None


class _Request(Document, extra="ignore"):
    """The members of a request that are read here; the API has checked the others."""

    InputConfig: _InputConfig


class RunFolder:
    """Reads and writes workload.json, jobs.json, run.json, payloads.tar.gz, measurements.json, recommendation.json,
    report.html, and for each job request.json, describe.json and steps.json. A second job's files are request-2.json
    and so on. Every method that reads raises `UsageError` if its file is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        """Returns the path, relative to the working folder if it is below it."""
        return str(from_here(self.path))

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def no_verdict(self, why: str) -> NoVerdict:
        """Returns the error of a run whose measurements allow no conclusion."""
        return NoVerdict(f"No verdict: {why} Measurements: {self}.")

    def keep(self, name: str, document: Any) -> None:
        """Writes one of the API's documents; datetimes become ISO 8601."""
        self.keep_text(name, as_json(document) + "\n")

    def keep_bytes(self, name: str, content: bytes) -> None:
        """Writes a file that only its owner can read: payloads are requests of real users."""
        with replacing(self.path / name, PRIVATE) as file:
            file.write(content)

    def keep_text(self, name: str, text: str) -> None:
        replace_text(self.path / name, text)

    def keep_workload(self, workload: Workload) -> None:
        workload.write_json(self.path / "workload.json")

    def keep_measurements(self, measured: tuple[Measurement, ...]) -> None:
        self.keep_text("measurements.json", _MEASUREMENTS.dump_json(measured, indent=2).decode() + "\n")

    def keep_recommendation(self, recommendation: Recommendation) -> None:
        recommendation.write_json(self.path / "recommendation.json")

    def keep_report(self, page: str) -> None:
        self.keep_text(self.report.name, page)

    def workload(self) -> Workload:
        return Workload.from_json(self._existing("workload.json"))

    def recommendation(self) -> Recommendation:
        missing = f"{self} has no recommendation.json: the run ended without a verdict."
        return Recommendation.from_json(self._existing("recommendation.json", missing))

    def keep_jobs(self, jobs: Jobs, requests: tuple[dict[str, Any], ...]) -> None:
        for number, request in enumerate(requests, start=1):
            self.keep(_numbered("request", number), request)
        jobs.write_json(self.path / "jobs.json")

    def keep_job(self, number: int, described: Any, steps: Any) -> None:
        """Writes the result of job `number`, counted from 1."""
        self.keep(_numbered("steps", number), steps)
        self.keep(_numbered("describe", number), described)

    def keep_inputs(self, inputs: RunInputs) -> None:
        inputs.write_json(self.path / "run.json")

    @property
    def begun(self) -> bool:
        return any((self.path / name).exists() for name in ("jobs.json", "measurements.json"))

    @property
    def relative_name(self) -> str:
        """The name that a recommendation has for this folder: runs/NAME."""
        return f"{self.path.parent.name}/{self.path.name}"

    def jobs(self) -> Jobs:
        missing = f"--resume: {self} has no jobs.json, so there is no job to continue. Name a run folder below --runs "
        return Jobs.from_json(self._existing("jobs.json", f"{missing}(default: runs/)."))

    def inputs(self) -> RunInputs:
        return RunInputs.from_json(self._existing("run.json"))

    def description(self, number: int = 1) -> dict[str, Any]:
        """Returns the last description of job `number`; its datetimes are ISO 8601."""
        return self._object(_numbered("describe", number))

    def steps(self) -> list[dict[str, Any]]:
        """Returns the steps of all jobs that are kept."""
        return [step for file in sorted(self.path.glob("steps*.json")) for step in read_json(file, list)]

    def request(self, number: int = 1) -> dict[str, Any]:
        """Returns the request of job `number`. Raises `UsageError` or `InvalidDocument`."""
        name = _numbered("request", number)
        _Request.from_json(self._existing(name))
        return self._object(name)

    def measurements(self) -> tuple[Measurement, ...]:
        file = self._existing("measurements.json")
        return tuple(Measurement.from_table(file, row) for row in read_json(file, list))

    def _object(self, name: str) -> dict[str, Any]:
        return read_json(self._existing(name), dict)

    def _existing(self, name: str, missing: str | None = None) -> Path:
        """Returns a file of the folder. Raises `UsageError` if there is none; `missing` is then its sentence."""
        file = self.path / name
        if file.exists():
            return file
        if missing is None and (self.path / "jobs.json").exists():
            missing = (
                f"{self} has no {name}: the run ended before it was written. Continue it with `python -m "
                f"inference_recommender run --resume {self}`."
            )
        raise UsageError(missing or f"{self} is not a run folder: it has no {name}.")


def run_of(recommendation: Recommendation, *folders: Path) -> RunFolder | None:
    """Returns the first of the folders that is the run of the recommendation; None without one."""
    for run in map(RunFolder, folders):
        complete = all((run.path / name).exists() for name in ("measurements.json", "recommendation.json"))
        if complete and run.recommendation().provenance == recommendation.provenance:
            return run
    return None


def as_json(document: Any) -> str:
    """Returns one of the API's documents as JSON; datetimes become ISO 8601."""
    return json.dumps(document, indent=2, default=_plain)


def read_json(file: Path, kind: type[T]) -> T:
    """Reads a document that is of `kind` as a whole. Raises `InvalidDocument`."""
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidDocument(file, [f"cannot be read: {error}"]) from error
    if not isinstance(document, kind):
        raise InvalidDocument(file, [f"holds a {type(document).__name__}, not a {kind.__name__}."])
    return document


def _numbered(name: str, number: int) -> str:
    return f"{name}.json" if number == 1 else f"{name}-{number}.json"


def _plain(value: Any) -> str:
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


def run_name(workload: str, kind: str) -> str:
    """Returns a name that begins with the workload's: the stack's role allows no other job."""
    return f"{workload}-{kind}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}".replace("_", "-")
