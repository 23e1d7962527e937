"""The account bounds the objects of S3 and the data points of metrics."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from moto.s3.exceptions import S3ClientError
from moto.s3.models import s3_backends
from moto.settings import get_s3_default_key_buffer_size

from local_aws import account as local_account
from local_aws.account import LocalS3Backend
from local_aws.cloudwatch import Distribution, LocalCloudWatchBackend, metric_key

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
