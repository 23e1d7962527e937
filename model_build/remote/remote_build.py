"""The use case: send the source, run the jobs, fetch what they built.

Knows `Account` as its one port. The requests were built before anything is sent. While it runs it holds the target's
lock and a scratch folder in the target's folder; nothing half-made stays.
"""

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from model_build.lock import exclusive
from model_build.progress import Progress, silent
from model_build.remote.account import Account
from model_build.remote.combine import combine
from model_build.remote.errors import AwsRefused, AwsUnavailable, Interrupted, JobNameTaken, LostSight, NoQuota
from model_build.remote.fetch import fetch, publish
from model_build.remote.request import RemoteBuild
from model_build.remote.source import TIMING_CACHES, pack_source
from model_build.remote.wait import Sleep, patiently, wait_for_jobs
from workloads import ModelArtifact, WorkloadFolder, artifact_file

ENTRY = Path(__file__).with_name("entry.py")


def build_remotely(
    folder: WorkloadFolder,
    variant_name: str,
    builds: Sequence[RemoteBuild],
    root: Path,
    account: Account,
    progress: Progress = silent,
    sleep: Sleep = time.sleep,
) -> ModelArtifact:
    """The artifact, in build/WORKLOAD/VARIANT/ with its archive, as after a build here.

    Raises `JobFailed`, `JobStopped`, `LostSight`, `Interrupted`, `ArchiveDiffers`, `UnusableOutput`, `BuildsDisagree`,
    `BuildRunning`, `CheckpointLeftBehind` or another `AwsUnavailable`.
    """
    workload = folder.workload.name
    with _scratch(root, workload, variant_name) as scratch:
        _send(folder, builds[0], root, scratch, account, progress)
        _run(builds, account, progress, sleep)
        progress("Fetching what was built")
        built = []
        for build in builds:
            fetched = scratch / f"{build.job_name}-output"
            fetched.mkdir()
            get = partial(fetch, account, build, workload, variant_name, fetched)
            built.append(patiently(get, progress, sleep))
        whole = combine(built, scratch)
        caches = [file for each in built for file in sorted((each.archive.parent / TIMING_CACHES.name).glob("*"))]
        publish(whole, caches, scratch, root)
    return whole.artifact


def _send(
    folder: WorkloadFolder, build: RemoteBuild, root: Path, scratch: Path, account: Account, progress: Progress
) -> None:
    packed = scratch / "source.tar.gz"
    progress("Packing the source")
    pack_source(folder, root, packed)
    progress(f"Uploading {packed.stat().st_size / 1e6:.1f} MB to {build.source_url}")
    for file in (packed, ENTRY):
        account.upload(f"{build.source_url}/{file.name}", file, build.kms_key)


def _run(builds: Sequence[RemoteBuild], account: Account, progress: Progress, sleep: Sleep) -> None:
    """Until all are completed. However else it ends, no job is left running that could be stopped."""
    begun: list[RemoteBuild] = []
    try:
        for build in builds:
            begun.append(build)  # before it is sent: an interrupted call may have reached AWS
            _create(account, build, begun)
        wait_for_jobs(account, builds, progress, sleep)
    except KeyboardInterrupt:
        raise Interrupted([_stop(account, build) for build in begun]) from None
    except LostSight:
        raise
    except BaseException:
        for build in begun:
            _stop(account, build)
        raise


def _create(account: Account, build: RemoteBuild, begun: list[RemoteBuild]) -> None:
    try:
        account.create_job(build.request)
    except (AwsRefused, JobNameTaken, NoQuota):
        begun.remove(build)  # it was not made; a job of that name is somebody else's
        raise


def _stop(account: Account, build: RemoteBuild) -> str:
    """Stop a job that nobody waits for any more; what became of it."""
    name = build.job_name
    try:
        status = account.describe_job(name)["ProcessingJobStatus"]
        if status not in ("InProgress", "Stopping"):
            return f"job {name} was {status} already"
        account.stop_job(name)
    except AwsUnavailable as error:
        by_hand = f"aws sagemaker stop-processing-job --processing-job-name {name}"
        return f"job {name} could not be stopped and may still run ({error}); stop it with `{by_hand}`"
    return f"job {name} was told to stop"


@contextlib.contextmanager
def _scratch(root: Path, workload: str, variant: str) -> Iterator[Path]:
    """An empty folder under the target's lock, gone afterwards."""
    target = artifact_file(root, workload, variant).parent
    with exclusive(target, workload, variant):
        scratch = target / ".remote"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
