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
from aws_api.sagemaker import SageMakerAccount
from aws_api.temporary_endpoint import START_S, temporary_endpoint
from inference_recommender.payloads import tar_gz
from model_build.remote.recording import Recording, plan_recording, record_on_chip
from tests.builders import a_program, an_artifact, message_of
from tests.model_build.remote.remote_account import FakeAccount, site
from workloads import ROOT, Unavailable, UsageError, artifact_file, file_sha256, load_workload

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/transformers-in-production@sha256:" + "a" * 64


class Chip(FakeAccount):
    """An account whose endpoints take one status after another; in service, the container has recorded."""

    def __init__(self, *statuses: str, refusal: AwsRefused | None = None, records: bool = True) -> None:
        super().__init__()
        self.made: list[Mapping[str, Any]] = []
        """The requests of models."""
        self.deleted: list[str] = []
        self._endpoint_statuses = iter(statuses)
        self._refusal, self._records = refusal, records

    def make_model(self, request: Mapping[str, Any]) -> None:
        self.made.append(request)

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        (self.variant,) = config["ProductionVariants"]
        if self._refusal:
            raise self._refusal

    def describe_endpoint(self, name: str) -> dict[str, Any]:
        status = next(self._endpoint_statuses, "InService")
        if status == "interrupted":
            raise KeyboardInterrupt
        if status == "InService" and self._records:
            self.objects[self.made[-1]["PrimaryContainer"]["Environment"]["RECORD_OUTPUT"]] = b"recorded"
        return {"EndpointStatus": status, "FailureReason": "the container did not pass the ping health check"}

    def delete_endpoint(self, name: str, *_: Any) -> None:
        self.deleted.append(name)

    def delete_model(self, name: str) -> None:
        self.deleted.append(f"model {name}")

    def log_end(self, group: str, lines: int, prefix: str | None = None) -> list[str]:
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
    (model,) = account.made
    name, container = model["ModelName"], model["PrimaryContainer"]
    assert name == "spellcheck-record-20261122-120000"
    assert account.deleted == [name, f"model {name}"]
    assert account.variant["InstanceType"] == "ml.inf1.xlarge", "SageMaker's name of the target's EC2 type"
    assert account.objects[container["ModelDataUrl"]] == (root / "build/spellcheck/inf1/model.tar.gz").read_bytes()
    assert account.objects[container["Environment"]["RECORD_INPUT"]] == b'{"text": "runing"}\n'
    assert container["Environment"]["RECORD_OUTPUT"].startswith("s3://releases/recordings/spellcheck/")


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
    name = account.made[0]["ModelName"]
    assert (account.deleted, account.hurried) == ([name, f"model {name}"], True)


def test_a_failing_container_is_reported_with_its_log_and_deleted(root: Path) -> None:
    account = Chip("Creating", "Failed")
    message = message_of(Unavailable, record, root, account)
    name = account.made[0]["ModelName"]
    assert message == (
        f"The endpoint {name} failed: the container did not pass the ping health check\n"
        f"The last lines of its log in /aws/sagemaker/Endpoints/{name}:\n  /dev/neuron0 is not there."
    )
    assert account.deleted == [name, f"model {name}"]


def test_a_missing_quota_is_named(root: Path) -> None:
    refusal = AwsRefused("CreateEndpoint", "ResourceLimitExceeded", "The limit is 0 Instances.")
    account = Chip(refusal=refusal)
    assert message_of(Unavailable, record, root, account) == (
        "The quota does not allow the endpoint: The limit is 0 Instances.\n"
        "Request more of 'ml.inf1.xlarge for endpoint usage' in Service Quotas."
    )
    name = "spellcheck-record-20261122-120000"
    assert account.deleted == [name, f"model {name}"], "its model and configuration may be there"


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
def account() -> Iterator[SageMakerAccount]:
    with mock_aws():
        yield SageMakerAccount(region="us-east-1")


def test_sagemaker_accepts_the_requests_and_deletes_everything(root: Path, account: SageMakerAccount) -> None:
    endpoint, sagemaker = planned(root).endpoint, account.client("sagemaker")
    with temporary_endpoint(account, endpoint, print) as name:
        described = account.describe_endpoint(name)
        assert described["EndpointConfigName"] == endpoint.name
        expires_at = expiry_of(sagemaker.list_tags(ResourceArn=described["EndpointArn"])["Tags"])
        assert expires_at is not None, "`jobs cleanup` finds what a killed recording leaves"
        assert START_S < (expires_at - datetime.now(UTC)).total_seconds() < START_S + 7201
    assert sagemaker.list_endpoints()["Endpoints"] == []
    assert sagemaker.list_endpoint_configs()["EndpointConfigs"] == []
    assert sagemaker.list_models()["Models"] == []
    assert account.log_end("/aws/sagemaker/Endpoints/none", 3) == []


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
