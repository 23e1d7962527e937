"""Reads what a run's folder holds beside its measurements: summaries of load generators, and hashes of the inputs."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from workloads.artifact import file_sha256
from workloads.document import Document

SUMMARY = "summary.json"
INPUTS = {"workload": "workload.json", "payloads": "payloads.tar.gz", "traffic": "request.json"}
FINGERPRINT_DIGITS = 16


class _GeneratorWatch(Document, extra="ignore"):
    cpu_share: float
    lag_ms: float


class SizeGroup(Document):
    """The successful requests whose bodies are of similar size. Latencies are from intended send."""

    bytes_at_most: int
    requests: int
    p50_ms: float
    p99_ms: float


class GeneratorSummary(Document, extra="ignore"):
    """The members of a generator's summary.json that a report shows."""

    generator: _GeneratorWatch
    duration_s: float
    invocations: int
    errors: int
    latency_by_size: tuple[SizeGroup, ...] = ()
    """The shortest first; empty if all bodies have one size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderInputs:
    generators: tuple[GeneratorSummary, ...] = ()
    """One for each probe or generator with a summary in the folder."""
    hashes: dict[str, str] = field(default_factory=dict)
    """sha256 of each input in the folder, by the input's name."""

    @property
    def sizes(self) -> tuple[SizeGroup, ...]:
        """The latency by size of the request, in the run of the most requests."""
        return max(self.generators, key=lambda each: each.invocations).latency_by_size if self.generators else ()

    def fingerprint(self, *facts: str) -> str:
        """Returns a short hash of the inputs and `facts`. Runs with equal fingerprints measured the same thing on the
        same kind of machine.
        """
        lines = [*(f"{name}={value}" for name, value in sorted(self.hashes.items())), *facts]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:FINGERPRINT_DIGITS]

    def facts(self) -> dict[str, str]:
        """Returns the hashes as a report's environment has them."""
        return {f"sha256 of the {name}": value for name, value in self.hashes.items()}


def read_inputs(path: Path) -> FolderInputs:
    """Reads a folder. Raises `InvalidDocument` if a generator's summary is damaged."""
    return FolderInputs(
        generators=tuple(GeneratorSummary.from_json(file) for file in sorted(path.rglob(SUMMARY))),
        hashes={name: file_sha256(path / file) for name, file in INPUTS.items() if (path / file).is_file()},
    )
