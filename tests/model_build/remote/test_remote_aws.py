"""A remote build's calls and the archive of its source, against moto in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from aws_api.processing_jobs import LOG_GROUP
from aws_api.sagemaker import SageMakerAccount
from containers import archive_reader
from model_build.remote.remote_build import build_remotely, source_files
from model_build.remote.request import plan_remote
from tests.builders import message_of
from tests.model_build.remote.remote_account import built, site
from workloads import UsageError, WorkloadFolder, load_artifact, load_workload

FILES = {"spellcheck/config.pbtxt": b"name: spellcheck"}


@pytest.fixture
def account() -> Iterator[SageMakerAccount]:
    with mock_aws():
        account = SageMakerAccount(region="us-east-1")
        account.client("s3").create_bucket(Bucket="bucket")
        yield account


def test_a_job_is_accepted_and_its_output_fetched(
    account: SageMakerAccount, folder: WorkloadFolder, root: Path, tmp_path: Path
) -> None:
    (job,) = plan_remote(folder, "cpu", site(stamp="fetched"))
    for name, content in built("cpu", FILES).items():  # in the container's stead
        (tmp_path / name).write_bytes(content)
        account.upload_file(f"{job.output_url}/{name}", tmp_path / name)
    artifact = build_remotely(folder, "cpu", [job], root, account, sleep=lambda seconds: None)
    assert load_artifact(root, "spellcheck", "cpu") == artifact
    assert set(account.files(job.source_url)) == {"entry.py", "source.tar.gz", *archive_reader.BESIDE}
    described = account.describe_processing_job(job.name)
    assert described["AppSpecification"] == job.request()["AppSpecification"]
    account.stop_processing_job(job.name)
    assert account.describe_processing_job(job.name)["ProcessingJobStatus"] == "Stopped"
    assert account.log_end(LOG_GROUP, 2, f"{job.name}/") == []


def _edit(root: Path, checkpoint: str) -> None:
    toml = root / "workloads" / "spellcheck" / "workload.toml"
    toml.write_text(toml.read_text("utf-8").replace('"./checkpoint"', f'"{checkpoint}"'), "utf-8")


def test_the_code_of_a_build_and_one_workload_travel_and_nothing_else(root: Path) -> None:
    assert sorted(source_files(load_workload("spellcheck", root / "workloads"), root)) == [
        "cdk.json",
        "containers/engine.py",
        "model_build/plan.py",
        "pyproject.toml",
        "requirements/build.txt",
        "requirements/modelopt.txt",
        "requirements/torch-cpu.txt",
        "requirements/uv.txt",
        "workloads/folder.py",
        "workloads/spellcheck/checkpoint/config.json",
        "workloads/spellcheck/checkpoint/model.safetensors",
        "workloads/spellcheck/workload.toml",
    ]


def test_a_checkpoint_that_workloads_share_travels_too(root: Path) -> None:
    _edit(root, "../shared/checkpoint")
    (root / "workloads" / "spellcheck" / "checkpoint").rename(root / "workloads" / "kept")
    (root / "workloads" / "shared").mkdir()
    (root / "workloads" / "kept").rename(root / "workloads" / "shared" / "checkpoint")
    found = source_files(load_workload("spellcheck", root / "workloads"), root)
    assert "workloads/shared/checkpoint/model.safetensors" in found


@pytest.mark.parametrize("checkpoint", ["../../elsewhere", "/models/t5"])
def test_a_local_checkpoint_that_would_not_arrive_is_refused(root: Path, checkpoint: str) -> None:
    _edit(root, checkpoint)
    workload = load_workload("spellcheck", root / "workloads")
    assert message_of(UsageError, source_files, workload, root) == (
        f"{workload.file}: model.checkpoint: got '{checkpoint}', which is outside {root / 'workloads'}. Only that "
        "folder is uploaded. Move the checkpoint there, or name an s3:// URI or a model id of the Hugging Face hub."
    )
