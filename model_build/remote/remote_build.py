"""Uploads the source, runs the processing jobs, waits for them, and fetches their builds.

While it runs it holds the target's lock and a scratch folder in the target's folder. The account retries throttled
calls and broken connections. The source is one reproducible archive of code, workload and local checkpoint, with the
timing caches of earlier builds, so that TensorRT does not time the same kernels again.
"""

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from aws_api.errors import AwsRefused, AwsUnavailable
from aws_api.processing_jobs import LOG_GROUP, ProcessingJob
from aws_api.sagemaker import SageMakerAccount
from containers import archive_reader
from model_build import archive
from model_build.compiled import exclusive, scratch_folder
from model_build.plan import TIMING_CACHES
from model_build.progress import Progress, silent
from model_build.remote.fetch import combine, fetch, publish
from workloads import CODE, Interrupted, ModelArtifact, Unavailable, UsageError, WorkloadFolder, artifact_file

PACKAGES = ("aws_api", "containers", "model_build")
FILES = (
    "cdk.json",  # by which a build in the job finds the project's root
    "pyproject.toml",
    "requirements/build.txt",
    "requirements/modelopt.txt",
    "requirements/torch-cpu.txt",
    "requirements/uv.txt",
)
ENTRY = Path(__file__).with_name("entry.py")
POLL_S = 15.0
LOG_LINES = 20

Sleep = Callable[[float], None]


class LostSight(Unavailable):
    """AWS no longer answers, and the jobs continue to run."""


def build_remotely(
    folder: WorkloadFolder,
    variant_name: str,
    jobs: Sequence[ProcessingJob],
    root: Path,
    account: SageMakerAccount,
    progress: Progress = silent,
    sleep: Sleep = time.sleep,
) -> ModelArtifact:
    """Returns the artifact, in build/WORKLOAD/VARIANT/ with its archive, as after a build here.

    Raises `Unavailable` for a job that failed (with the build's own exit code), was stopped or left an unusable output,
    `LostSight`, `Interrupted`, `BuildRunning`, `UsageError` or `AwsUnavailable`.
    """
    workload, builds_root = folder.workload.name, folder.builds(root)
    target = artifact_file(builds_root, workload, variant_name).parent
    with exclusive(target, workload, variant_name), scratch_folder(target / ".remote") as scratch:
        _send(folder, jobs[0], root, scratch, account, progress)
        _run(jobs, account, progress, sleep)
        progress("Fetching the build")
        built = []
        for job in jobs:
            fetched = scratch / f"{job.name}-output"
            fetched.mkdir()
            built.append(fetch(account, job, workload, variant_name, fetched))
        whole = combine(built, scratch)
        caches = [file for each in built for file in sorted((each.archive.parent / TIMING_CACHES.name).glob("*"))]
        publish(whole, caches, scratch, builds_root, root / TIMING_CACHES)
    return whole.artifact


def _send(
    folder: WorkloadFolder, job: ProcessingJob, root: Path, scratch: Path, account: SageMakerAccount, progress: Progress
) -> None:
    packed = scratch / "source.tar.gz"
    progress("Packing the source")
    pack_source(folder, root, packed)
    progress(f"Uploading {packed.stat().st_size / 1e6:.1f} MB to {job.source_url}")
    for name, file in {packed.name: packed, ENTRY.name: ENTRY, **archive_reader.BESIDE}.items():
        account.upload_file(f"{job.source_url}/{name}", file, job.kms_key)


def _run(jobs: Sequence[ProcessingJob], account: SageMakerAccount, progress: Progress, sleep: Sleep) -> None:
    """Runs all to completion. On any failure it stops the jobs that it can."""
    started: list[ProcessingJob] = []
    try:
        for job in jobs:
            started.append(job)  # first: an interrupted call may have reached AWS
            _create(account, job, started)
        _wait(account, jobs, progress, sleep)
    except KeyboardInterrupt:
        account.stop_retrying()
        outcomes = "; ".join(_stop(account, job.name) for job in started) or "no job was started"
        raise Interrupted(
            f"Interrupted: {outcomes}. No incomplete files remain. Start the build again to repeat it."
        ) from None
    except LostSight:
        raise
    except BaseException:
        account.stop_retrying()
        for job in started:
            _stop(account, job.name)
        raise


def _create(account: SageMakerAccount, job: ProcessingJob, started: list[ProcessingJob]) -> None:
    try:
        account.create_processing_job(job.request())
    except AwsRefused as error:
        started.remove(job)  # it was not created; a job of that name belongs to another user
        if error.code == "ResourceInUse":
            raise Unavailable(
                f"A processing job called '{job.name}' exists. Start the build again: names contain the time."
            ) from error
        if error.code == "ResourceLimitExceeded":
            raise Unavailable(
                f"The quota does not allow the job: {error.reason}\nRequest more of '{job.instance_type} for "
                "processing job usage' in Service Quotas, or choose another machine with --instance-type."
            ) from error
        raise


def _wait(account: SageMakerAccount, jobs: Sequence[ProcessingJob], progress: Progress, sleep: Sleep) -> None:
    """Polls until every job has completed. Raises at the first that has not."""
    while True:
        try:
            described = [account.describe_processing_job(job.name) for job in jobs]
        except AwsUnavailable as error:
            stops = "\n".join(f"  {_stop_command(job.name)}" for job in jobs)
            raise LostSight(
                f"{error}\nProbably still running: {', '.join(job.name for job in jobs)}. Stop with\n{stops}\n"
                f"Their output will be in {', '.join(job.output_url for job in jobs)}."
            ) from error
        progress("; ".join(_state(job, each) for job, each in zip(jobs, described, strict=True)))
        for job, each in zip(jobs, described, strict=True):
            _refuse(account, job, each)
        if all(each["ProcessingJobStatus"] == "Completed" for each in described):
            return
        sleep(POLL_S)


def _state(job: ProcessingJob, described: Mapping[str, Any]) -> str:
    began = described["CreationTime"]
    elapsed = int(((described.get("ProcessingEndTime") or datetime.now(timezone.utc)) - began).total_seconds())
    status = described["ProcessingJobStatus"]
    return f"{job.name} on {job.instance_type}: {status}, {elapsed // 60} min {elapsed % 60:02d} s"


def _refuse(account: SageMakerAccount, job: ProcessingJob, described: Mapping[str, Any]) -> None:
    status = described["ProcessingJobStatus"]
    if status == "Stopped":
        raise Unavailable(
            f"Job {job.name} was stopped by a user, or after its limit of {job.max_runtime_s} s. --max-runtime-s sets "
            "another limit."
        )
    if status == "Failed":
        error = failure(account, f"Job {job.name}", described, LOG_GROUP, f"{job.name}/")
        # The build's own exit code, if it ended in good order.
        if ended := re.match(r"model_build ended with exit status (\d+)", described.get("ExitMessage") or ""):
            error.exit_code = int(ended[1])
        raise error


def failure(
    account: SageMakerAccount, subject: str, described: Mapping[str, Any], group: str, prefix: str | None = None
) -> Unavailable:
    """Combines the messages of the service, the container and its log."""
    lines = [f"{subject} failed: {described.get('FailureReason') or 'the service gave no reason.'}"]
    if message := described.get("ExitMessage"):
        lines.append(message.rstrip())
    try:
        log = account.log_end(group, LOG_LINES, prefix)
    except AwsUnavailable as error:
        log = [f"(it cannot be read: {error})"]
    if log:
        lines += [f"The last lines of its log in {group}:", *(f"  {line}" for line in log)]
    return Unavailable("\n".join(lines))


def _stop(account: SageMakerAccount, name: str) -> str:
    """Stops a job and returns its state as a clause."""
    try:
        status = account.describe_processing_job(name)["ProcessingJobStatus"]
        if status not in ("InProgress", "Stopping"):
            return f"job {name} was already {status}"
        account.stop_processing_job(name)
    except AwsUnavailable as error:
        return f"job {name} could not be stopped and may still run ({error}); stop it with `{_stop_command(name)}`"
    return f"job {name} is stopping"


def _stop_command(name: str) -> str:
    return f"aws sagemaker stop-processing-job --processing-job-name {name}"


def source_files(folder: WorkloadFolder, root: Path) -> dict[str, Path]:
    """Returns name in the archive → file. Raises `UsageError` for a local checkpoint outside workloads/."""
    folders = [folder.path, *(CODE / name for name in PACKAGES), *_checkpoints(folder), root / TIMING_CACHES]
    loose = [*(CODE / name for name in FILES), *(CODE / "workloads").glob("*.py"), *(CODE / "workloads").glob("*.json")]
    files = [*loose, *(file for each in folders for file in _below(each))]
    return {_uploaded_name(file, folder, root): file for file in sorted(files)}


def pack_source(folder: WorkloadFolder, root: Path, packed: Path) -> None:
    """Writes the archive to `packed`. Raises what `source_files` raises."""
    with tempfile.TemporaryDirectory(dir=packed.parent) as scratch:
        for name, file in source_files(folder, root).items():
            link = Path(scratch) / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.resolve())  # weights may be gigabytes: nothing is copied
        archive.pack(Path(scratch), packed)


def _checkpoints(folder: WorkloadFolder) -> Iterator[Path]:
    """Yields folders of weights outside the workload's own folder."""
    for key in ("checkpoint", "backbone", "preprocess"):
        got = getattr(folder.workload.model, key, None)
        if not isinstance(got, str) or not got.startswith(("./", "../", "/")):
            continue
        path = (folder.path / got).resolve()
        if got.startswith("/") or not path.is_relative_to(folder.path.parent.resolve()):
            raise UsageError(
                f"{folder.file}: model.{key}: got '{got}', which is outside {folder.path.parent}. Only that folder is "
                "uploaded. Move the checkpoint there, or name an s3:// URI or a model id of the Hugging Face hub."
            )
        below = folder.path.parent / path.relative_to(folder.path.parent.resolve())
        yield below.parent if got.endswith(".pt") else below


def _below(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
            yield file


def _uploaded_name(file: Path, folder: WorkloadFolder, root: Path) -> str:
    """Returns a name below workloads/, where the build looks, also for a workload elsewhere on this machine."""
    if file.is_relative_to(folder.path.parent):
        return f"workloads/{file.relative_to(folder.path.parent).as_posix()}"
    return file.relative_to(root if file.is_relative_to(root / TIMING_CACHES) else CODE).as_posix()
