"""Reads what a run's folder holds beside its measurements: summaries and records of load generators, and hashes."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from inference_recommender.load_generator.records import SentRequests
from inference_recommender.load_generator.requests import read_payloads
from inference_recommender.run_folder import PAYLOADS
from workloads.artifact import file_sha256
from workloads.document import Document

SUMMARY = "summary.json"
INPUTS = {"workload": "workload.json", "payloads": "payloads.tar.gz", "traffic": "request.json"}
FINGERPRINT_DIGITS = 16


class _GeneratorWatch(Document, extra="ignore"):
    cpu_share: float
    lag_ms: float


class GeneratorSummary(Document, extra="ignore"):
    """The members of a generator's summary.json that a report shows."""

    generator: _GeneratorWatch
    duration_s: float
    invocations: int
    errors: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeGroup:
    """The successful requests whose bodies are of similar size. Latencies are from intended send."""

    bytes_at_most: int
    requests: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderInputs:
    generators: tuple[GeneratorSummary, ...] = ()
    """One for each probe or generator with a summary in the folder."""
    sizes: tuple[SizeGroup, ...] = ()
    """Requests of a closed-loop test or a proof, the shortest first; empty if all have one size."""
    hashes: dict[str, str] = field(default_factory=dict)
    """sha256 of each input in the folder, by the input's name."""

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
        sizes=_sizes(path),
        hashes={name: file_sha256(path / file) for name, file in INPUTS.items() if (path / file).is_file()},
    )


def _sizes(path: Path) -> tuple[SizeGroup, ...]:
    files = sorted(path.glob("probe-*/records.npz")) or list(path.glob("load/records.npz"))
    if not files or not (path / PAYLOADS).is_file():
        return ()
    sizes = np.array([len(body) for body in read_payloads(path / PAYLOADS)])
    bounds = np.unique(np.percentile(sizes, [25, 50, 75, 100], method="higher"))
    rows = [SentRequests.read(file) for file in files]
    group = np.searchsorted(bounds, sizes[np.concatenate([each.payload[each.succeeded] for each in rows])])
    latencies_ms = np.concatenate([each.from_intended_ms[each.succeeded] for each in rows])
    of_group = [latencies_ms[group == number] for number in range(len(bounds))]
    return tuple(
        SizeGroup(
            bytes_at_most=int(bound),
            requests=len(each),
            p50_ms=float(np.percentile(each, 50)),
            p99_ms=float(np.percentile(each, 99)),
        )
        for bound, each in zip(bounds, of_group, strict=True)
        if len(bounds) > 1 and len(each)
    )
