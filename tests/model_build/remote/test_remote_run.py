"""A remote build from source to artifact, against a fake account: uploads, waits, downloads and failures."""

import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from aws_api.errors import AwsRefused, ExpiredCredentials
from model_build.remote.remote_build import build_remotely
from model_build.remote.request import plan_remote
from tests.builders import an_artifact, failure_of, known, message_of
from tests.model_build.remote.remote_account import FakeAccount, built, site
from workloads import Interrupted, ModelArtifact, Unavailable, load_artifact, load_workload

BASE = "s3://bucket/model-build/spellcheck"
CPU, CPU_JOB = f"{BASE}/cpu/20261121-034500", "spellcheck-cpu-20261121-034500"
GPU_JOBS = ["spellcheck-gpu-g4dn-20261121-034500", "spellcheck-gpu-g5-20261121-034500"]
FILES = {"spellcheck/config.pbtxt": b"name: spellcheck", "spellcheck/1/model.py": b"pass"}


class Trouble:
    """Raises the given errors one after another, then no more."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)

    def __call__(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def run(root: Path, account: FakeAccount, variant: str = "cpu", **ports: Any) -> ModelArtifact:
    folder = load_workload("spellcheck", root / "workloads")
    builds = plan_remote(folder, variant, site())
    ports.setdefault("sleep", lambda seconds: None)
    return build_remotely(folder, variant, builds, root, account, **ports)


def left(root: Path, variant: str = "cpu") -> list[str]:
    """Returns what lies in the target's folder, hidden files but the lock included."""
    return sorted(path.name for path in (root / "build" / "spellcheck" / variant).iterdir() if path.name != ".lock")


def test_a_completed_job_leaves_the_same_files_as_a_local_build(root: Path) -> None:
    account, old = FakeAccount(built("cpu", FILES)), root / "build/spellcheck/cpu"
    (old / "repository" / "gone").mkdir(parents=True)
    (old / "model.tar.gz").write_bytes(b"old")
    artifact = run(root, account)
    assert load_artifact(root, "spellcheck", "cpu") == artifact
    assert not (old / "repository" / "gone").exists()
    assert left(root) == ["artifact.json", "model.tar.gz", "repository"]
    assert (root / "build/spellcheck/cpu/repository/spellcheck/1/model.py").read_bytes() == b"pass"
    assert account.stopped == []


def test_the_source_is_where_the_job_looks_for_it(root: Path, tmp_path: Path) -> None:
    account = FakeAccount(built("cpu", FILES))
    run(root, account)
    assert b"def install_commands" in account.objects[f"{CPU}/source/entry.py"]
    (tmp_path / "sent.tar.gz").write_bytes(account.objects[f"{CPU}/source/source.tar.gz"])
    with tarfile.open(tmp_path / "sent.tar.gz") as sent:
        assert "workloads/spellcheck/checkpoint/model.safetensors" in sent.getnames()
    assert list(account.jobs) == [CPU_JOB]


def test_the_program_finds_its_reader_of_archives_among_what_was_sent(root: Path, tmp_path: Path) -> None:
    account = FakeAccount(built("cpu", FILES))
    run(root, account)
    for url, content in account.objects.items():
        if url.startswith(f"{CPU}/source/"):
            file = tmp_path / "source" / url.removeprefix(f"{CPU}/source/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    (tmp_path / "source/try.py").write_text("import entry; print(entry.unpack.__module__)", "utf-8")
    command = [sys.executable, "-E", "-S", str(tmp_path / "source/try.py")]
    assert subprocess.check_output(command, cwd=tmp_path, text=True) == "containers.archive_reader\n"


# Several machines.


def _gpus(**of_g5: Any) -> dict[str, bytes]:
    t4 = built("gpu", FILES | {"bert/1/model.7.5.plan": b"T4"}, toolchain={"tensorrt": "10.13", "gpu": "Tesla T4"})
    facts = {"toolchain": {"tensorrt": "10.13", "gpu": "NVIDIA A10G"}} | of_g5
    a10g = built("gpu", facts.pop("files", FILES) | {"bert/1/model.8.6.plan": b"A10G"}, **facts)
    return {f"g4dn:{name}": content for name, content in t4.items()} | {
        f"g5:{name}": content for name, content in a10g.items()
    }


def test_the_engines_of_two_gpus_become_one_archive(root: Path) -> None:
    worse = known(an_artifact().parity)
    worse = worse.model_copy(
        update={"identical_answers": 490, "compiled": {"exact_match": 0.88, "unchanged_rate": 0.97}}
    )
    account = FakeAccount(_gpus(parity=worse))
    artifact = run(root, account, "gpu")
    assert list(account.jobs) == GPU_JOBS
    assert load_artifact(root, "spellcheck", "gpu") == artifact
    with tarfile.open(root / "build/spellcheck/gpu/model.tar.gz") as archive:
        names = archive.getnames()
    assert "bert/1/model.7.5.plan" in names
    assert "bert/1/model.8.6.plan" in names
    assert artifact.toolchain == {"tensorrt": "10.13", "gpu": "Tesla T4, NVIDIA A10G"}
    assert known(artifact.parity).identical_answers == 490
    assert known(artifact.parity).compiled == {"exact_match": 0.88, "unchanged_rate": 0.97}
    assert left(root, "gpu") == ["artifact.json", "model.tar.gz", "repository"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"files": FILES | {"spellcheck/config.pbtxt": b"other"}}, "files spellcheck/config.pbtxt"),
        ({"checkpoint_sha256": "1" * 64}, "artifacts"),
    ],
)
def test_machines_that_disagree_make_no_archive(root: Path, changes: dict[str, Any], what: str) -> None:
    assert message_of(Unavailable, run, root, FakeAccount(_gpus(**changes)), "gpu") == (
        f"The jobs {', '.join(GPU_JOBS)} built different {what}, so their archives cannot be merged. build/ was not "
        "changed."
    )
    assert left(root, "gpu") == []


def test_timing_caches_come_back_for_the_next_build(root: Path) -> None:
    run(root, FakeAccount(built("cpu", FILES) | {"timing_caches/8.6.cache": b"timings"}))
    assert (root / "build/timing_caches/8.6.cache").read_bytes() == b"timings"


# How it fails.


def test_a_failed_job_reports_the_service_the_build_and_the_log(root: Path) -> None:
    account = FakeAccount(
        statuses=["InProgress", "Failed"],
        FailureReason="AlgorithmError: exit code 1",
        ExitMessage="model_build ended with exit status 1:\nParity failed.\n",
    )
    account.log = ["older", *["line"] * 19, "Parity failed."]
    lines = "\n".join(["  line"] * 19)
    message = (
        f"Job {CPU_JOB} failed: AlgorithmError: exit code 1\nmodel_build ended with exit status 1:\nParity failed.\n"
        f"The last lines of its log in /aws/sagemaker/ProcessingJobs:\n{lines}\n  Parity failed."
    )
    assert failure_of(Unavailable, run, root, account) == (message, 1)
    assert left(root) == []


@pytest.mark.parametrize(
    ("account", "message", "code"),
    [
        (FakeAccount(statuses=["Failed"]), f"Job {CPU_JOB} failed: the service gave no reason.", 3),
        (
            FakeAccount(statuses=["Failed"], FailureReason="AlgorithmError", ExitMessage="model_build crashed with …"),
            f"Job {CPU_JOB} failed: AlgorithmError\nmodel_build crashed with …",
            3,
        ),
        (
            FakeAccount(statuses=["InProgress", "Stopping", "Stopped"]),
            f"Job {CPU_JOB} was stopped by a user, or after its limit of 7200 s. --max-runtime-s sets another limit.",
            3,
        ),
        (
            FakeAccount(refusals={"cpu": AwsRefused("CreateProcessingJob", "ResourceLimitExceeded", "of 0")}),
            "The quota does not allow the job: of 0\nRequest more of 'ml.c5.2xlarge for processing job usage' in "
            "Service Quotas, or choose another machine with --instance-type.",
            3,
        ),
        (
            FakeAccount(refusals={"cpu": AwsRefused("CreateProcessingJob", "ValidationException", "No.")}),
            "AWS refused CreateProcessingJob: ValidationException: No.",
            3,
        ),
        (
            FakeAccount(on_describe=Trouble(ExpiredCredentials())),
            f"{ExpiredCredentials()}\nProbably still running: {CPU_JOB}. Stop with\n"
            f"  aws sagemaker stop-processing-job --processing-job-name {CPU_JOB}\n"
            f"Their output will be in {CPU}/c5.",
            3,
        ),
    ],
    ids=["no reason", "crash", "stopped", "quota", "refused", "credentials"],
)
def test_a_failure_is_one_message(root: Path, account: FakeAccount, message: str, code: int) -> None:
    assert failure_of(Unavailable, run, root, account) == (message, code)
    assert account.stopped == []


def test_if_one_job_cannot_be_created_the_others_are_stopped(root: Path) -> None:
    refusals = {"g5": AwsRefused("CreateProcessingJob", "ResourceInUse", "It exists.")}
    account = FakeAccount(statuses=["InProgress"], refusals=refusals)
    assert message_of(Unavailable, run, root, account, "gpu") == (
        f"A processing job called '{GPU_JOBS[1]}' exists. Start the build again: names contain the time."
    )
    assert account.stopped == GPU_JOBS[:1]


def test_an_archive_that_differs_from_its_hash_is_not_put_in_place(root: Path) -> None:
    outputs = built("cpu", FILES) | {"model.tar.gz": b"damaged"}
    expected = json.loads(outputs["artifact.json"])["archive_sha256"]
    (root / "build/spellcheck/cpu").mkdir(parents=True)
    an_artifact().write_json(root / "build/spellcheck/cpu/artifact.json")
    message = message_of(Unavailable, run, root, FakeAccount(outputs))
    actual = hashlib.sha256(b"damaged").hexdigest()
    assert message == (
        f"{CPU}/c5/model.tar.gz: its sha256 is {actual}, but artifact.json has {expected}. build/ was not changed. "
        "Start the build again."
    )
    assert left(root) == ["artifact.json"]  # the older build's


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "does not exist, although the job completed."),
        (built("cpu-int8", FILES), "is of spellcheck cpu-int8, not of spellcheck cpu."),
        (
            built("cpu", FILES, archive="../model.tar.gz"),
            "names the archive '../model.tar.gz', which does not exist.",
        ),
    ],
)
def test_an_output_that_is_not_of_this_build_is_refused(root: Path, outputs: dict[str, bytes], message: str) -> None:
    refused = f"{CPU}/c5/artifact.json: {message} build/ was not changed."
    assert message_of(Unavailable, run, root, FakeAccount(outputs)) == refused
    assert left(root) == []


# The connection and the user.


def test_ctrl_c_stops_every_job(root: Path) -> None:
    account = FakeAccount(statuses=["InProgress"])

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    message = (
        f"Interrupted: job {GPU_JOBS[0]} is stopping; job {GPU_JOBS[1]} is stopping. No incomplete files remain. Start "
        "the build again to repeat it."
    )
    assert failure_of(Interrupted, run, root, account, "gpu", sleep=interrupted) == (message, 130)
    assert account.stopped == GPU_JOBS
    assert account.hurried
    assert left(root, "gpu") == []


def test_ctrl_c_names_the_job_that_cannot_be_stopped_and_the_command_that_stops_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = FakeAccount(on_describe=Trouble(KeyboardInterrupt()))
    refused = AwsRefused("StopProcessingJob", "AccessDenied", "No.")
    monkeypatch.setattr(account, "stop_processing_job", lambda name: Trouble(refused)())
    assert message_of(Interrupted, run, root, account).startswith(
        f"Interrupted: job {CPU_JOB} could not be stopped and may still run ({refused}); stop it with "
        f"`aws sagemaker stop-processing-job --processing-job-name {CPU_JOB}`."
    )
