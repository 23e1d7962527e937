"""From a finished job's output to build/WORKLOAD/VARIANT/: downloaded, checked against its hash, put in place whole."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from model_build import archive
from model_build.remote.account import Account
from model_build.remote.combine import Built
from model_build.remote.errors import ArchiveDiffers, UnusableOutput
from model_build.remote.request import RemoteBuild
from model_build.remote.source import TIMING_CACHES
from workloads import ModelArtifact, artifact_file, file_sha256


def fetch(account: Account, build: RemoteBuild, workload: str, variant: str, folder: Path) -> Built:
    """Download one job's output into an empty `folder`.

    Raises `UnusableOutput`, `ArchiveDiffers`, `InvalidDocument` or `AwsUnavailable`.
    """
    names = account.files(build.output_url)
    url = f"{build.output_url}/artifact.json"
    if "artifact.json" not in names:
        raise UnusableOutput(url, "is not there, although the job completed.")
    account.download(url, folder / "artifact.json")
    artifact = ModelArtifact.from_json(folder / "artifact.json")
    if (artifact.workload, artifact.variant) != (workload, variant):
        raise UnusableOutput(url, f"is of {artifact.workload} {artifact.variant}, not of {workload} {variant}.")
    if artifact.archive not in names or Path(artifact.archive).name != artifact.archive:
        raise UnusableOutput(url, f"names the archive '{artifact.archive}', which is not beside it.")
    packed = folder / artifact.archive
    account.download(f"{build.output_url}/{artifact.archive}", packed)
    if (actual := file_sha256(packed)) != artifact.archive_sha256:
        raise ArchiveDiffers(f"{build.output_url}/{artifact.archive}", artifact.archive_sha256, actual)
    _fetch_caches(account, build, names, folder)
    return Built(job_name=build.job_name, artifact=artifact, archive=packed)


def publish(built: Built, caches: list[Path], scratch: Path, root: Path) -> None:
    """The old artifact.json goes first and the new one comes last: in between the target counts as not built."""
    target = artifact_file(root, built.artifact.workload, built.artifact.variant)
    unpacked = scratch / "repository"
    unpacked.mkdir()
    archive.unpack(built.archive, unpacked)
    target.unlink(missing_ok=True)
    shutil.rmtree(target.with_name("repository"), ignore_errors=True)
    unpacked.replace(target.with_name("repository"))
    built.archive.replace(target.with_name(built.artifact.archive))
    for cache in caches:
        place = root / TIMING_CACHES / cache.name
        place.parent.mkdir(parents=True, exist_ok=True)
        cache.replace(place)
    built.artifact.write_json(target)


def _fetch_caches(account: Account, build: RemoteBuild, names: Sequence[str], folder: Path) -> None:
    for name in names:
        place, _, cache = name.rpartition("/")
        if place == TIMING_CACHES.name and cache:
            (folder / place).mkdir(exist_ok=True)
            account.download(f"{build.output_url}/{name}", folder / place / cache)
