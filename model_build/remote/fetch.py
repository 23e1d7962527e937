"""Downloads the output of finished jobs, checks it, merges it and moves it to build/WORKLOAD/VARIANT/.

Several machines build for one target: engines for T4 and for A10G. Their archives hold the same repository with
different engines, named by compute capability. The union is packed again; files that differ are an error. Parity is
the worst of the machines, and a toolchain names each version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aws_api.processing_jobs import ProcessingJob
from aws_api.sagemaker import SageMakerAccount
from containers.archive_reader import ArchiveRefused, unpack
from model_build import archive
from model_build.plan import TIMING_CACHES
from workloads import ModelArtifact, ParityReport, Unavailable, artifact_file, file_sha256

UNCHANGED = "build/ was not changed."
OF_ONE_MACHINE = {"archive_sha256", "archive_bytes", "toolchain", "parity"}


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedBuild:
    """A job's build, checked and on this machine."""

    job_name: str
    artifact: ModelArtifact
    archive: Path


def fetch(account: SageMakerAccount, job: ProcessingJob, workload: str, variant: str, folder: Path) -> FetchedBuild:
    """Downloads one job's output into an empty `folder`.

    Raises `Unavailable` if it is not a complete output of this build, `InvalidDocument` or `AwsUnavailable`.
    """
    output = job.output_url
    names = account.files(output)
    url = f"{output}/artifact.json"
    if "artifact.json" not in names:
        raise Unavailable(f"{url}: does not exist, although the job completed. {UNCHANGED}")
    account.download(url, folder / "artifact.json")
    artifact = ModelArtifact.from_json(folder / "artifact.json")
    if (artifact.workload, artifact.variant) != (workload, variant):
        raise Unavailable(
            f"{url}: is of {artifact.workload} {artifact.variant}, not of {workload} {variant}. {UNCHANGED}"
        )
    if artifact.archive not in names or Path(artifact.archive).name != artifact.archive:
        raise Unavailable(f"{url}: names the archive '{artifact.archive}', which does not exist. {UNCHANGED}")
    packed = folder / artifact.archive
    account.download(f"{output}/{artifact.archive}", packed)
    if (actual := file_sha256(packed)) != artifact.archive_sha256:
        raise Unavailable(
            f"{output}/{artifact.archive}: its sha256 is {actual}, but artifact.json has "
            f"{artifact.archive_sha256}. {UNCHANGED} Start the build again."
        )
    for name in names:
        place, _, cache = name.rpartition("/")
        if place == TIMING_CACHES.name and cache:
            (folder / place).mkdir(exist_ok=True)
            account.download(f"{output}/{name}", folder / place / cache)
    return FetchedBuild(job_name=job.name, artifact=artifact, archive=packed)


def combine(built: Sequence[FetchedBuild], scratch: Path) -> FetchedBuild:
    """Merges the builds. Raises `Unavailable` if their archives differ."""
    if len(built) == 1:
        return built[0]
    jobs = [each.job_name for each in built]
    first = built[0].artifact
    if len({each.artifact.model_dump_json(exclude=OF_ONE_MACHINE) for each in built}) > 1:
        raise _disagreement("artifacts", jobs)
    union = scratch / "union"
    for each in built:
        unpacked = scratch / each.job_name
        _unpack(each, unpacked)
        _merge(unpacked, union, jobs)
    tools: dict[str, list[str]] = {}
    for name, version in (pair for each in built for pair in each.artifact.toolchain.items()):
        tools.setdefault(name, []).append(version)
    packed = scratch / first.archive
    archive.pack(union, packed)
    changed = {
        "archive_sha256": file_sha256(packed),
        "archive_bytes": packed.stat().st_size,
        "toolchain": {name: ", ".join(dict.fromkeys(versions)) for name, versions in tools.items()},
        "parity": _worst([each.artifact.parity for each in built]),
    }
    return FetchedBuild(job_name=", ".join(jobs), artifact=first.model_copy(update=changed), archive=packed)


def publish(built: FetchedBuild, caches: list[Path], scratch: Path, root: Path, timing_caches: Path) -> None:
    """Moves a build into its place below `root`.

    Raises `Unavailable` for an archive that cannot be unpacked, before anything is replaced.
    """
    unpacked = scratch / "repository"
    _unpack(built, unpacked)
    for cache in caches:
        place = timing_caches / cache.name
        place.parent.mkdir(parents=True, exist_ok=True)
        cache.replace(place)
    target = artifact_file(root, built.artifact.workload, built.artifact.variant)
    archive.publish(built.artifact, built.archive, unpacked, target)


def _unpack(built: FetchedBuild, folder: Path) -> None:
    try:
        with built.archive.open("rb") as stream:
            unpack(stream, folder, built.artifact.archive_sha256)
    except ArchiveRefused as refused:
        raise Unavailable(f"The archive of {built.job_name}: {refused}. {UNCHANGED} Build it again.") from None


def _merge(unpacked: Path, union: Path, jobs: Sequence[str]) -> None:
    for file in sorted(unpacked.rglob("*")):
        name = file.relative_to(unpacked)
        there = union / name
        if file.is_dir():  # an ensemble's version folder is empty, and Triton needs it
            there.mkdir(parents=True, exist_ok=True)
            continue
        if there.exists() and file_sha256(there) != file_sha256(file):
            raise _disagreement(f"files {name.as_posix()}", jobs)
        file.replace(there)


def _disagreement(what: str, jobs: Sequence[str]) -> Unavailable:
    return Unavailable(
        f"The jobs {', '.join(jobs)} built different {what}, so their archives cannot be merged. {UNCHANGED}"
    )


def _worst(reports: Sequence[ParityReport | None]) -> ParityReport | None:
    """Returns the lowest figures; None if one machine compared nothing."""
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
