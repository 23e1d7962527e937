"""S3 that is slow, reports conflicts, or whose copies differ."""

import base64
import io
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from containers.batch.s3 import CONFIG, CONFLICT, CONFLICT_WAITS_S, Bucket
from containers.container_errors import Unavailable

CREATE = {"Bucket": "bucket", "Key": "out/job.json", "Body": b"mine", "ChecksumAlgorithm": "SHA256", "IfNoneMatch": "*"}


@pytest.fixture
def client() -> Any:
    make: Any = boto3.client
    return make("s3", config=CONFIG, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")


@pytest.fixture
def stub(client: Any) -> Iterator[Stubber]:
    with Stubber(client) as stub:
        yield stub
        stub.assert_no_pending_responses()


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def bucket(client: Any, slept: list[float]) -> Bucket:
    return Bucket(client, "s3://bucket/out", slept.append)


def test_a_run_tries_each_request_ten_times_and_checks_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore retries SlowDown and compares what it reads with S3's checksum, whatever the environment requests."""
    options: dict[str, Any] = {}
    monkeypatch.setattr(boto3, "client", lambda service, **given: options.update(given))
    Bucket.open("s3://bucket/out")
    assert options == {"config": CONFIG}
    known: Any = CONFIG
    assert known.retries == {"mode": "standard", "total_max_attempts": 10}
    assert known.request_checksum_calculation == known.response_checksum_validation == "when_supported"


def test_a_claim_in_conflict_is_tried_again(bucket: Bucket, stub: Stubber, slept: list[float]) -> None:
    for _ in range(2):
        stub.add_client_error("put_object", CONFLICT, http_status_code=409, expected_params=CREATE)
    stub.add_response("put_object", {}, CREATE)
    assert bucket.create("job.json", b"mine") == b"mine"
    assert slept == [0.1, 0.2]


@pytest.mark.parametrize(
    ("codes", "waits"), [([CONFLICT, "PreconditionFailed"], 1), ([CONFLICT] * len(CONFLICT_WAITS_S), 6)]
)
def test_a_claim_in_conflict_reads_the_winners_claim(
    codes: list[str], waits: int, bucket: Bucket, stub: Stubber, slept: list[float]
) -> None:
    for code in codes:
        stub.add_client_error("put_object", code, expected_params=CREATE)
    body = StreamingBody(io.BytesIO(b"theirs"), 6)
    stub.add_response("get_object", {"Body": body}, {"Bucket": "bucket", "Key": "out/job.json"})
    assert bucket.create("job.json", b"mine") == b"theirs"
    assert slept == list(CONFLICT_WAITS_S[:waits])


def test_another_error_of_a_claim_is_raised(bucket: Bucket, stub: Stubber) -> None:
    stub.add_client_error("put_object", "AccessDenied", http_status_code=403, expected_params=CREATE)
    with pytest.raises(Unavailable, match=r"^s3://bucket/out: An error occurred \(AccessDenied\)"):
        bucket.create("job.json", b"mine")


CRC32 = {"ChecksumCRC32": base64.b64encode(zlib.crc32(b"right").to_bytes(4, "big")).decode()}
PARTS = {"ChecksumCRC32": "AAAAAA==-3", "ChecksumType": "COMPOSITE"}


@pytest.mark.parametrize(
    ("known", "copy", "accepted"),
    [(CRC32, b"right", True), (CRC32, b"wrong", False), (PARTS, b"wrong", True), (PARTS, b"too long", False)],
    ids=["equal", "other checksum", "checksum of parts", "other size"],
)
def test_a_copy_is_compared_with_the_objects_size_and_checksum(
    known: Mapping[str, str],
    copy: bytes,
    accepted: bool,
    bucket: Bucket,
    client: Any,
    stub: Stubber,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """boto3 does not compare an object that it reads in parts."""
    stub.add_response(
        "head_object",
        {"ContentLength": 5, **known},
        {"Bucket": "bucket", "Key": "in/rows.jsonl", "ChecksumMode": "ENABLED"},
    )
    monkeypatch.setattr(client, "download_file", lambda bucket, key, name: Path(name).write_bytes(copy))
    if accepted:
        bucket.fetch("in/rows.jsonl", tmp_path / "copy")
        return
    with pytest.raises(Unavailable) as refused:
        bucket.fetch("in/rows.jsonl", tmp_path / "copy")
    assert str(refused.value) == (
        "s3://bucket/in/rows.jsonl: the copy differs from the object in S3. It was damaged or replaced during the "
        "download. Start again."
    )
