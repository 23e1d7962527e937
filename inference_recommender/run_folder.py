"""A run's folder: what was asked, what came back, what was concluded. Analysis starts again from here, without AWS."""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from inference_recommender.errors import NoSuchRun, NoVerdictKept
from inference_recommender.measurement import Measurement
from workloads import Recommendation, Workload
from workloads.errors import InvalidDocument

_MEASUREMENTS = TypeAdapter(tuple[Measurement, ...])


class RunFolder:
    """Files: workload.json, request.json, payloads.tar.gz, describe.json, steps.json, measurements.json,
    recommendation.json, report.html."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def keep(self, name: str, document: Any) -> None:
        """Write one of the API's documents; datetimes become ISO 8601."""
        self._write(name, json.dumps(document, indent=2, default=_plain) + "\n")

    def keep_bytes(self, name: str, content: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_bytes(content)

    def keep_workload(self, workload: Workload) -> None:
        workload.write_json(self.path / "workload.json")

    def keep_measurements(self, measured: tuple[Measurement, ...]) -> None:
        self._write("measurements.json", _MEASUREMENTS.dump_json(measured, indent=2).decode() + "\n")

    def keep_recommendation(self, recommendation: Recommendation) -> None:
        recommendation.write_json(self.path / "recommendation.json")

    def keep_report(self, page: str) -> None:
        self._write(self.report.name, page)

    def workload(self) -> Workload:
        return Workload.from_json(self._existing("workload.json"))

    def recommendation(self) -> Recommendation:
        """Raises `NoVerdictKept` where the job failed, was stopped or could not be believed."""
        file = self.path / "recommendation.json"
        if not file.exists():
            raise NoVerdictKept(self.path)
        return Recommendation.from_json(file)

    def description(self) -> dict[str, Any]:
        """The job as it last was; its moments are ISO 8601."""
        return dict(json.loads(self._existing("describe.json").read_text("utf-8")))

    def request(self) -> dict[str, Any]:
        return dict(json.loads(self._existing("request.json").read_text("utf-8")))

    def measurements(self) -> tuple[Measurement, ...]:
        file = self._existing("measurements.json")
        try:
            return _MEASUREMENTS.validate_json(file.read_bytes())
        except ValueError as error:
            raise InvalidDocument(file, [str(error)]) from error

    def _existing(self, name: str) -> Path:
        file = self.path / name
        if not file.exists():
            raise NoSuchRun(self.path, name)
        return file

    def _write(self, name: str, text: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text, "utf-8")


def _plain(value: Any) -> str:
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)
