"""The pure parts of the local account, and its bounds for objects of S3 and data points of metrics."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from moto.cloudformation.exceptions import ValidationError
from moto.s3.exceptions import S3ClientError
from moto.s3.models import s3_backends
from moto.settings import get_s3_default_key_buffer_size

from aws_api.service_model import enum
from local_aws import account as local_account
from local_aws import machine
from local_aws.__main__ import main
from local_aws.account import LocalS3Backend
from local_aws.cloudformation.stack_change import in_order, references
from local_aws.cloudwatch import (
    Distribution,
    LocalCloudWatchBackend,
    distribution,
    is_statistic,
    metric_key,
    statistic,
)
from local_aws.owner_only import AccountKeys
from local_aws.process.triton import remove_leftovers
from local_aws.sagemaker.endpoint import REASON_CHARACTERS, shortened
from local_aws.sagemaker.model_host import default_model, model_data_url, unpack_model
from local_aws.sagemaker.recommendation_request import InstanceTest, plan
from local_aws.server import as_shell, exports
from tests.builders import a_program, known, message_of
from tests.local_aws.conftest import ECHO_CONFIG, echo_archive, texts_archive
from tests.local_aws.sagemaker.test_recommendation_jobs import request
from workloads import Unavailable

URL = "s3://models/model.tar.gz"


def repository(tmp_path: Path, files: Mapping[str, str]) -> Path:
    unpack_model(texts_archive(files), URL, tmp_path / "repository")
    return tmp_path / "repository"


def test_an_archive_whose_name_tells_another_sha256_is_refused(tmp_path: Path) -> None:
    """CDK names an asset in S3 by its sha256."""
    content = echo_archive()
    named = f"s3://models/{hashlib.sha256(content).hexdigest()}.tar.gz"
    unpack_model(content, named, tmp_path / "repository")
    with pytest.raises(Unavailable, match="it is damaged, or another archive"):
        unpack_model(texts_archive({"echo/config.pbtxt": ""}), named, tmp_path / "repository")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "environment", "message"),
    [
        (
            {"config.pbtxt": ECHO_CONFIG},
            {},
            "The archive has config.pbtxt at its root: pack the model's own folder, so that it unpacks to "
            "<model>/config.pbtxt.",
        ),
        (
            {"a/config.pbtxt": "", "b/config.pbtxt": ""},
            {},
            "The archive has 2 model folders (a, b): set SAGEMAKER_TRITON_DEFAULT_MODEL_NAME in the container's "
            "environment to the one that answers.",
        ),
        (
            {"a/config.pbtxt": ""},
            {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "b"},
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME is 'b', but the archive has no such folder (it has: a).",
        ),
    ],
)
def test_a_repository_that_leaves_open_which_model_answers_is_refused(
    tmp_path: Path, files: dict[str, str], environment: dict[str, str], message: str
) -> None:
    assert message_of(Unavailable, default_model, repository(tmp_path, files), environment) == message


def test_a_model_is_named_in_either_way_and_is_one_archive() -> None:
    source = {"S3Uri": URL, "S3DataType": "S3Object", "CompressionType": "Gzip"}
    assert model_data_url({"ModelDataUrl": URL}) == model_data_url({"ModelDataSource": {"S3DataSource": source}}) == URL
    assert message_of(Unavailable, model_data_url, {"Mode": "MultiModel", "ModelDataUrl": "s3://bucket/models/"}) == (
        "Mode is MultiModel, and this local account serves one archive on an endpoint: make a model and an endpoint "
        "for each archive."
    )


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing but this program is on PATH; the test writes it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for function in (machine.gpus, machine.description):
        function.cache_clear()
    yield tmp_path / "nvidia-smi"
    for function in (machine.gpus, machine.description):
        function.cache_clear()


def test_a_gpu_of_this_machine_stands_in_for_every_type_with_one(nvidia_smi: Path) -> None:
    a_program(nvidia_smi, 'echo "NVIDIA GeForce RTX 3060"')
    assert machine.refusal("ml.g5.xlarge") is None
    assert machine.refusal("ml.g4dn.xlarge") is None
    assert machine.refusal("ml.inf1.xlarge") is not None
    assert machine.description().endswith(" and NVIDIA GeForce RTX 3060")


@pytest.mark.parametrize("script", [None, "echo 'NVIDIA-SMI has failed'; exit 9", "exit 0"])
def test_without_a_gpu_that_its_driver_lists_there_is_none(nvidia_smi: Path, script: str | None) -> None:
    if script is not None:
        a_program(nvidia_smi, script)
    assert machine.gpus() == ()
    assert machine.refusal("ml.g5.xlarge") == (
        "ml.g5.xlarge has an NVIDIA GPU and this local account serves on the CPU only: choose a CPU instance type "
        "here, or use a real AWS account."
    )
    assert "GeForce" not in machine.description()


def test_only_types_with_a_chip_are_refused(nvidia_smi: Path) -> None:
    refused = {name for name in enum("sagemaker", "ProductionVariantInstanceType") if machine.refusal(name)}
    families = {name.split(".")[1] for name in refused}
    assert families >= {"g4dn", "g5", "g6e", "inf1", "inf2", "p3", "p4d", "trn1", "dl1"}
    assert not families & {"c5", "c6g", "m6g", "t2", "r7i"}, "the g of a Graviton is no GPU"


def test_statistics_weigh_values_by_their_counts() -> None:
    data = [Distribution(0, (1.0, 10.0), (9.0, 1.0)), Distribution(1, (2.0,), (10.0,))]
    found = {name: statistic(name, data) for name in ("SampleCount", "Sum", "Average", "Minimum", "Maximum", "p50")}
    assert found == {"SampleCount": 20, "Sum": 39, "Average": 1.95, "Minimum": 1, "Maximum": 10, "p50": 2}
    assert not is_statistic("p101")


def test_statistic_values_keep_their_sum_count_and_extremes() -> None:
    kept = distribution({"StatisticValues": {"Minimum": 1, "Maximum": 9, "SampleCount": 4, "Sum": 20}})
    assert [statistic(name, [kept]) for name in ("Minimum", "Maximum", "SampleCount", "Sum")] == [1, 9, 4, 20]


def test_resources_come_after_all_they_refer_to() -> None:
    resources = {
        "D": {"DependsOn": ["C"], "Properties": {}},
        "C": {"Properties": {"a": {"Fn::Sub": "x-${B.Arn}-${AWS::Region}"}}},
        "B": {"Properties": {"a": {"Fn::Join": ["", [{"Ref": "A"}, {"Fn::GetAtt": "A.Name"}]]}}},
        "A": {"Properties": {}},
    }
    assert in_order(resources) == ["A", "B", "C", "D"]
    assert set(references(resources["C"])) == {"B", "AWS::Region"}
    with pytest.raises(ValidationError, match=r"Circular dependency between resources: \[A, B\]"):
        in_order({"A": {"DependsOn": "B"}, "B": {"Properties": {"a": {"Ref": "A"}}}})


def test_a_long_reason_keeps_its_beginning_and_its_end() -> None:
    short = known(shortened("begin " + "x" * 5000 + " end"))
    assert len(short) <= REASON_CHARACTERS
    assert short.startswith("begin ")
    assert short.endswith(" end")


def test_other_work_is_the_cpu_time_of_programs_that_are_not_this_process_or_its_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, own = iter([100.0, 103.0, 104.0]), iter([{1: 10.0}, {1: 11.0, 2: 0.5}, {1: 12.5}])
    monkeypatch.setattr(machine, "_machine_cpu_s", lambda: next(whole))
    monkeypatch.setattr(machine, "_own_cpu_s", lambda: next(own))
    other = machine.OtherWork()
    assert other.seconds() == 1.5
    assert other.seconds() == 0.0


def test_a_job_tests_every_combination_up_to_its_limit() -> None:
    wanted = request("combinations", "model")
    ranges = [{"Name": "A", "Value": ["1", "2"]}, {"Name": "B", "Value": ["x", "y", "z"]}]
    wanted["InputConfig"]["EndpointConfigurations"] = [
        {"InstanceType": "ml.c5.xlarge", "EnvironmentParameterRanges": {"CategoricalParameterRanges": ranges}}
    ]
    tests = [test for test in plan(wanted, {}).tests if isinstance(test, InstanceTest)]
    assert len(tests) == 5, "MaxNumberOfTests"
    assert [dict(test.environment) for test in tests][:2] == [{"A": "1", "B": "x"}, {"A": "1", "B": "y"}]


def test_a_default_job_tests_the_supported_types_with_its_own_traffic() -> None:
    wanted = request("default", "model")
    configuration = wanted["InputConfig"]
    del configuration["EndpointConfigurations"], configuration["TrafficPattern"]
    configuration["ContainerConfig"]["SupportedInstanceTypes"] = ["ml.c5.large", "ml.c5.xlarge"]
    planned = plan(wanted | {"JobType": "Default"}, {})
    assert [test.instance_type for test in planned.tests if isinstance(test, InstanceTest)] == [
        "ml.c5.large",
        "ml.c5.xlarge",
    ]
    assert planned.traffic_pattern["Stairs"] == {"DurationInSeconds": 45, "NumberOfSteps": 3, "UsersPerStep": 1}
    configuration["JobDurationInSeconds"] = 6
    assert plan(wanted | {"JobType": "Default"}, {}).traffic_pattern["Stairs"]["DurationInSeconds"] == 6


def test_the_exports_are_what_a_shell_can_read() -> None:
    keys = AccountKeys("LOCAL0123456789ABCDE", "a-secret_key")
    assert as_shell(exports(5055, "eu-west-1", keys)).splitlines() == [
        "unset AWS_PROFILE AWS_SESSION_TOKEN",
        "export AWS_ENDPOINT_URL=http://localhost:5055",
        "export AWS_ACCESS_KEY_ID=LOCAL0123456789ABCDE",
        "export AWS_SECRET_ACCESS_KEY=a-secret_key",
        "export AWS_DEFAULT_REGION=eu-west-1",
        "export AWS_REGION=eu-west-1",
        "export AWS_EC2_METADATA_DISABLED=true",
    ]


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_that_there_is_not_is_a_wrong_option(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"--port={port}"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"argument --port: got '{port}'. Allowed: 0 to 65535\n")


def test_empty_folders_of_killed_tritons_are_removed_and_no_other(tmp_path: Path) -> None:
    for name in ("python_env_old", "python_env_used", "python_env_young", "another"):
        (tmp_path / name).mkdir()
    (tmp_path / "python_env_used" / "0").mkdir()
    for name in ("python_env_old", "python_env_used", "another"):
        os.utime(tmp_path / name, (0, 0))
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"python_env_used", "python_env_young", "another"}


SMALL = get_s3_default_key_buffer_size() // 5


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(local_account, "MAX_STORED_BYTES", 12 * SMALL)
    monkeypatch.setattr(local_account, "MAX_STORED_IN_MEMORY_BYTES", 3 * SMALL)
    backend = LocalS3Backend("aws", "123456789012")
    backend.create_bucket("bucket", "us-east-1")
    yield backend
    s3_backends.bucket_accounts.pop("bucket")


def test_small_objects_which_are_in_memory_have_a_bound_of_their_own(s3: Any) -> None:
    for number in range(3):
        s3.put_object("bucket", str(number), b"x" * SMALL)
    with pytest.raises(S3ClientError) as refused:
        s3.put_object("bucket", "one more", b"x" * SMALL)
    assert refused.value.code == "EntityTooLarge"


def test_large_objects_and_parts_count_together(s3: Any) -> None:
    s3.put_object("bucket", "large", b"x" * 6 * SMALL)
    upload = s3.create_multipart_upload("bucket", "parts", {}, "STANDARD", {}, None, None, None)
    s3.upload_part("bucket", upload.id, 1, b"x" * 6 * SMALL)
    with pytest.raises(S3ClientError, match="S3 of this local account holds at most"):
        s3.upload_part("bucket", upload.id, 2, b"x")


def test_a_metric_keeps_its_latest_data_points(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, key = LocalCloudWatchBackend("us-east-1", "123456789012"), metric_key("N", "Metric", [])
    monkeypatch.setattr("local_aws.cloudwatch.MAX_DATA_POINTS", 10)
    for second in range(25):
        backend.put(key, Distribution(float(second), (1.0,), (1.0,)))
    assert list(backend.by_period(key, 0, 100, 1)) == list(range(15, 25))


@pytest.mark.integration
def test_a_checksum_of_an_uploads_parts_is_told_as_one(client: Callable[[str], Any]) -> None:
    s3, place = client("s3"), {"Bucket": "in-parts", "Key": "archive"}
    s3.create_bucket(Bucket="in-parts")
    upload = place | {"UploadId": s3.create_multipart_upload(**place, ChecksumAlgorithm="SHA256")["UploadId"]}
    parts = [
        {
            "PartNumber": number,
            "ETag": s3.upload_part(**upload, PartNumber=number, Body=body, ChecksumAlgorithm="SHA256")["ETag"],
        }
        for number, body in ((1, bytes(5 << 20)), (2, b"rest"))
    ]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert s3.head_object(**place, ChecksumMode="ENABLED")["ChecksumSHA256"].endswith("-2")
    assert s3.get_object(**place, ChecksumMode="ENABLED")["ChecksumSHA256"].endswith("-2")
    s3.delete_object(**place)
    s3.delete_bucket(Bucket="in-parts")
