"""The account's calls against moto in this process. moto starts no container: tests put built models into S3."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from containers import archive_reader
from model_build.remote.build_account import BuildAccount
from model_build.remote.remote_build import build_remotely
from model_build.remote.request import plan_remote
from tests.model_build.remote.remote_account import built, miniature, site
from workloads import WorkloadFolder, load_artifact, load_workload

FILES = {"spellcheck/config.pbtxt": b"name: spellcheck"}


@pytest.fixture
def account() -> Iterator[BuildAccount]:
    with mock_aws():
        account = BuildAccount(region="us-east-1")
        account.client("s3").create_bucket(Bucket="bucket")
        yield account


@pytest.fixture
def folder(tmp_path: Path) -> WorkloadFolder:
    return load_workload("spellcheck", miniature(tmp_path / "root") / "workloads")


def test_a_job_is_accepted_and_its_output_fetched(
    account: BuildAccount, folder: WorkloadFolder, tmp_path: Path
) -> None:
    (job,) = plan_remote(folder, "cpu", site(stamp="fetched"))
    for name, content in built("cpu", FILES).items():  # in the container's stead
        (tmp_path / name).write_bytes(content)
        account.upload(f"{job.output_url}/{name}", tmp_path / name)
    artifact = build_remotely(folder, "cpu", [job], tmp_path / "root", account, sleep=lambda seconds: None)
    assert load_artifact(tmp_path / "root", "spellcheck", "cpu") == artifact
    assert set(account.files(job.source_url)) == {"entry.py", "source.tar.gz", *archive_reader.BESIDE}
    described = account.describe_job(job.name)
    assert described["AppSpecification"] == job.request()["AppSpecification"]
    account.stop_job(job.name)
    assert account.describe_job(job.name)["ProcessingJobStatus"] == "Stopped"
    assert account.job_log(job.name, 2) == []
