"""Reads what a run's folder holds beside its measurements: how its generators fared, and its inputs' hashes."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ValidationError

from inference_recommender.load_generator.self_watch import MAX_CPU_SHARE, MAX_LAG_MS, MAX_RATE_SHARE
from inference_recommender.report.document import Table, table
from workloads.artifact import file_sha256
from workloads.errors import InvalidDocument

SUMMARY = "summary.json"
INPUTS = {"workload": "workload.json", "payloads": "payloads.tar.gz", "traffic": "request.json"}
SHORT = 16
"""Digits of a fingerprint."""


class _Calibration(BaseModel):
    highest_per_second: float


class _Watch(BaseModel):
    cpu_share: float
    lag_ms: float
    peak_per_second: float
    calibration: _Calibration | None = None


class Summary(BaseModel):
    """The members that are read of a generator's summary.json."""

    generator: _Watch
    duration_s: float
    invocations: int
    errors: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    generators: tuple[Summary, ...] = ()
    """One for each probe or generator whose summary is in the folder."""
    hashes: dict[str, str] = field(default_factory=dict)
    """sha256 of each input that is in the folder, by what it is."""

    def fingerprint(self, *facts: str) -> str:
        """Returns a short hash of the inputs and `facts`: two runs with the same one measured the same thing on the
        same kind of machine.
        """
        lines = [*(f"{name}={value}" for name, value in sorted(self.hashes.items())), *facts]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:SHORT]


NOTHING = Found()


def found(path: Path) -> Found:
    """Reads a folder. Raises `InvalidDocument` where a generator's summary is damaged."""
    return Found(
        generators=tuple(_summary(file) for file in sorted(path.rglob(SUMMARY))),
        hashes={name: file_sha256(path / file) for name, file in INPUTS.items() if (path / file).is_file()},
    )


def _summary(file: Path) -> Summary:
    try:
        return Summary.model_validate(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        raise InvalidDocument(file, [f"cannot be read: {error}"]) from error


def generator_table(found: Found) -> Table | None:
    """Returns how near the generators came to the limits at which they refuse a verdict; None where none is known."""
    if not found.generators:
        return None
    watches = [each.generator for each in found.generators]
    shares = [each.peak_per_second / each.calibration.highest_per_second for each in watches if each.calibration]
    rows = [
        ("CPU time, share of a core", max(each.cpu_share for each in watches), MAX_CPU_SHARE),
        ("lateness of its clock, 90th percentile, ms", max(each.lag_ms for each in watches), MAX_LAG_MS),
        ("answers in a second, share of what it can have", max(shares, default=None), MAX_RATE_SHARE),
    ]
    requests, errors = (sum(getattr(each, name) for each in found.generators) for name in ("invocations", "errors"))
    return table(
        "generator",
        "Load generator",
        [("figure", "worst figure of all probes", ""), ("worst", "seen", ".3g"), ("limit", "refuses above", ".3g")],
        rows,
        f"{len(watches)} probes, {requests:,} requests, {errors:,} of them failed.",
    )
