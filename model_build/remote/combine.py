"""What several machines built for one target, as one archive: engines for T4 and for A10G side by side.

Each machine's archive holds the same repository with its own engines, named by compute capability. The union of the
files is packed anew; a file that two machines made differently cannot be chosen between, so that is refused. Parity is
the worst of the machines; where their toolchains differ, each is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_build import archive
from model_build.remote.errors import BuildsDisagree
from workloads import ModelArtifact, ParityReport, file_sha256

OF_ONE_MACHINE = {"archive_sha256", "archive_bytes", "toolchain", "parity"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """What one job built, checked and on this machine."""

    job_name: str
    artifact: ModelArtifact
    archive: Path


def combine(built: Sequence[Built], scratch: Path) -> Built:
    """One of all. Raises `BuildsDisagree`."""
    if len(built) == 1:
        return built[0]
    jobs = [each.job_name for each in built]
    first = built[0].artifact
    if any(_common(each.artifact) != _common(first) for each in built):
        raise BuildsDisagree("artifacts", jobs)
    union = scratch / "union"
    for each in built:
        unpacked = scratch / each.job_name
        unpacked.mkdir()
        archive.unpack(each.archive, unpacked)
        _merge(unpacked, union, jobs)
    packed = scratch / first.archive
    archive.pack(union, packed)
    changed = {
        "archive_sha256": file_sha256(packed),
        "archive_bytes": packed.stat().st_size,
        "toolchain": _toolchain([each.artifact.toolchain for each in built]),
        "parity": _worst([each.artifact.parity for each in built]),
    }
    return Built(job_name=", ".join(jobs), artifact=first.model_copy(update=changed), archive=packed)


def _common(artifact: ModelArtifact) -> dict[str, object]:
    return artifact.model_dump(exclude=OF_ONE_MACHINE)


def _merge(unpacked: Path, union: Path, jobs: Sequence[str]) -> None:
    for file in sorted(path for path in unpacked.rglob("*") if path.is_file()):
        name = file.relative_to(unpacked)
        there = union / name
        if there.exists() and file_sha256(there) != file_sha256(file):
            raise BuildsDisagree(f"files {name.as_posix()}", jobs)
        there.parent.mkdir(parents=True, exist_ok=True)
        file.replace(there)


def _toolchain(toolchains: Sequence[dict[str, str]]) -> dict[str, str]:
    names = dict.fromkeys(name for each in toolchains for name in each)
    return {name: ", ".join(dict.fromkeys(each[name] for each in toolchains if name in each)) for name in names}


def _worst(reports: Sequence[ParityReport | None]) -> ParityReport | None:
    """None as soon as one machine compared nothing."""
    compared = [report for report in reports if report is not None]
    if len(compared) < len(reports):
        return None
    return ParityReport(
        examples=compared[0].examples,
        identical_answers=min(report.identical_answers for report in compared),
        max_logit_difference=max(report.max_logit_difference for report in compared),
        mean_logit_difference=max(report.mean_logit_difference for report in compared),
        original=compared[0].original,
        compiled={name: min(report.compiled[name] for report in compared) for name in compared[0].compiled},
    )
