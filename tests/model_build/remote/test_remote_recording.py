"""A model for Inferentia is recorded on a temporary endpoint with its chip."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from aws_api.errors import AwsRefused
from aws_api.expiry import expiry_of
from aws_api.sagemaker import Endpoint
from inference_recommender.payloads import tar_gz
from model_build.remote.build_account import BuildAccount
from model_build.remote.recording import Recording, plan_recording, record_on_chip
from tests.builders import a_program, an_artifact, message_of
from tests.model_build.remote.remote_account import FakeAccount, site
from workloads import ROOT, Unavailable, UsageError, artifact_file, file_sha256, load_workload

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/transformers-in-production@sha256:" + "a" * 64


class Chip(FakeAccount):
    """An account whose endpoints take one status after another; in service, the container has recorded."""

    def __init__(self, *statuses: str, refusal: AwsRefused | None = None, records: bool = True) -> None:
        super().__init__()
        self.made: list[Endpoint] = []
        self.deleted: list[str] = []
        self._endpoint_statuses = iter(statuses)
        self._refusal, self._records = refusal, records

    def create_endpoint(self, endpoint: Endpoint) -> None:
        if self._refusal:
            raise self._refusal
        self.made.append(endpoint)

    def describe_endpoint(self, name: str) -> Mapping[str, Any]:
        status = next(self._endpoint_statuses, "InService")
        if status == "interrupted":
            raise KeyboardInterrupt
        if status == "InService" and self._records:
            self.objects[self.made[-1].environment["RECORD_OUTPUT"]] = b"recorded"
        return {"EndpointStatus": status, "FailureReason": "the container did not pass the ping health check"}

    def delete_endpoint(self, name: str, *_: Any) -> None:
        self.deleted.append(name)

    def endpoint_log(self, name: str, lines: int) -> list[str]:
        return ["/dev/neuron0 is not there."]


@pytest.fixture
def root(root: Path) -> Path:
    """The miniature with an archive for Inf1 and one for the CPU, which nothing was compared with."""
    (root / "workloads/spellcheck/evaluation.jsonl").write_text('{"text": "runing"}\n')
    for target, runtime in (("inf1", "neuron"), ("cpu", "onnxruntime")):
        file = artifact_file(root, "spellcheck", target)
        file.parent.mkdir(parents=True)
        archive = file.with_name("model.tar.gz")
        archive.write_bytes(tar_gz({"model.pt": b"graph"}))
        facts = {"variant": target, "target": target, "runtime": runtime, "archive_sha256": file_sha256(archive)}
        an_artifact(**facts, parity=None).write_json(file)
    return root


def planned(root: Path, target: str = "inf1", instance_type: str | None = None) -> Recording:
    folder = load_workload("spellcheck", root / "workloads")
    chosen = site(bucket="releases", image_uri=IMAGE, instance_type=instance_type, stamp="20261122-120000")
    return plan_recording(folder, target, root, chosen)


def record(root: Path, account: Chip) -> Path:
    output = root / "recorded/outputs.json"
    record_on_chip(planned(root), output, account, sleep=lambda seconds: None)
    return output


def test_an_endpoint_runs_the_rows_and_is_deleted(root: Path) -> None:
    account = Chip("Creating", "Creating", "InService")
    assert record(root, account).read_bytes() == b"recorded"
    (endpoint,) = account.made
    assert account.deleted == [endpoint.name] == ["spellcheck-record-20261122-120000"]
    assert endpoint.instance_type == "ml.inf1.xlarge", "SageMaker's name of the target's EC2 type"
    assert account.objects[endpoint.model_url] == (root / "build/spellcheck/inf1/model.tar.gz").read_bytes()
    assert account.objects[endpoint.environment["RECORD_INPUT"]] == b'{"text": "runing"}\n'
    assert endpoint.environment["RECORD_OUTPUT"].startswith("s3://releases/recordings/spellcheck/")


def test_the_same_archive_rows_and_image_are_recorded_once(root: Path) -> None:
    account = Chip()
    record(root, account)
    assert record(root, account).read_bytes() == b"recorded"
    assert len(account.made) == 1
    (root / "workloads/spellcheck/evaluation.jsonl").write_text('{"text": "other"}\n')
    record(root, account)
    assert len(account.made) == 2


def test_ctrl_c_deletes_the_endpoint(root: Path) -> None:
    account = Chip("Creating", "interrupted")
    with pytest.raises(KeyboardInterrupt):
        record(root, account)
    assert (account.deleted, account.hurried) == ([account.made[0].name], True)


def test_a_failing_container_is_reported_with_its_log_and_deleted(root: Path) -> None:
    account = Chip("Creating", "Failed")
    message = message_of(Unavailable, record, root, account)
    name = account.made[0].name
    assert message == (
        f"The endpoint {name} failed: the container did not pass the ping health check\n"
        f"The last lines of its log in /aws/sagemaker/Endpoints/{name}:\n  /dev/neuron0 is not there."
    )
    assert account.deleted == [name]


def test_a_missing_quota_is_named(root: Path) -> None:
    refusal = AwsRefused("CreateEndpoint", "ResourceLimitExceeded", "The limit is 0 Instances.")
    account = Chip(refusal=refusal)
    assert message_of(Unavailable, record, root, account) == (
        "The quota does not allow the endpoint: The limit is 0 Instances.\n"
        "Request more of 'ml.inf1.xlarge for endpoint usage' in Service Quotas."
    )
    assert account.deleted == ["spellcheck-record-20261122-120000"], "its model and configuration may be there"


def test_an_image_that_serves_and_records_nothing_is_too_old(root: Path) -> None:
    assert message_of(Unavailable, record, root, Chip(records=False)) == (
        f"{IMAGE} served the model but recorded nothing: it is older than this containers/neuron/serve. Build it again."
    )


def test_only_targets_and_instances_with_a_chip_are_accepted(root: Path) -> None:
    assert message_of(UsageError, planned, root, "cpu") == (
        "spellcheck for cpu does not run on Inferentia. "
        "`python -m model_build verify spellcheck --target cpu` compares it on this machine."
    )
    assert message_of(UsageError, planned, root, instance_type="ml.g5.xlarge") == (
        "--instance-type: got 'ml.g5.xlarge', which has no Inferentia chip. Name one such as ml.inf1.xlarge."
    )


@pytest.fixture
def account() -> Iterator[BuildAccount]:
    with mock_aws():
        yield BuildAccount(region="us-east-1")


def test_sagemaker_accepts_the_requests_and_deletes_everything(root: Path, account: BuildAccount) -> None:
    endpoint = planned(root).endpoint
    account.create_endpoint(endpoint)
    described = account.describe_endpoint(endpoint.name)
    assert described["EndpointConfigName"] == endpoint.name
    expires_at = expiry_of(account.client("sagemaker").list_tags(ResourceArn=described["EndpointArn"])["Tags"])
    assert expires_at is not None, "a recording that is killed leaves what `sweep` deletes"
    assert endpoint.startup_s < (expires_at - datetime.now(UTC)).total_seconds() < endpoint.startup_s + 7201
    for _ in range(2):  # deleting twice is no failure
        account.delete_endpoint(endpoint.name, print)
    sagemaker = account.client("sagemaker")
    assert sagemaker.list_endpoints()["Endpoints"] == []
    assert sagemaker.list_endpoint_configs()["EndpointConfigs"] == []
    assert sagemaker.list_models()["Models"] == []
    assert account.endpoint_log(endpoint.name, 3) == []


@pytest.mark.parametrize(
    ("variables", "status", "asked"),
    [
        ({}, 0, ["-m containers.neuron"]),
        (
            {"RECORD_INPUT": "s3://b/in", "RECORD_OUTPUT": "s3://b/out"},
            0,
            [
                "-m containers.batch.record --model /opt/ml/model --input s3://b/in --output s3://b/out",
                "-m containers.neuron",
            ],
        ),
        (
            {"RECORD_INPUT": "s3://b/in", "RECORD_OUTPUT": "s3://b/out"},
            3,
            ["-m containers.batch.record --model /opt/ml/model --input s3://b/in --output s3://b/out"],
        ),
    ],
)
def test_the_container_records_before_it_serves(
    tmp_path: Path, variables: dict[str, str], status: int, asked: list[str]
) -> None:
    """One that cannot record does not serve: then its endpoint fails, and is not taken for one that has recorded."""
    a_program(tmp_path / "python", f'echo "$*" >> {tmp_path}/asked\nexit {status}')
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}
    done = subprocess.run(["sh", ROOT / "containers/neuron/serve"], env=environment, check=False)
    assert done.returncode == status
    assert (tmp_path / "asked").read_text().splitlines() == asked
