"""S3 that is slow, reports conflicts, or damages content."""

import base64
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.endpoint
import pytest

from containers.batch.s3 import CONFIG, CONFLICT_WAITS_S, Bucket
from containers.errors import Unavailable
from tests.containers.batch.faulty_s3 import FaultyS3, faulty_s3

CONFLICT = (409, "ConditionalRequestConflict")
SLOW_DOWN = (503, "SlowDown")


@pytest.fixture
def account() -> Iterator[FaultyS3]:
    with faulty_s3() as account:
        yield account


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the seconds between botocore's attempts. No time passes."""
    waited: list[float] = []
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=waited.append))
    return waited


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def bucket(account: FaultyS3, waited: list[float], slept: list[float], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """The environment requests fewer checksums, and is ignored."""
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    client: Any = boto3.client(
        "s3",
        endpoint_url=account.url,
        config=CONFIG,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    return Bucket(client, "s3://bucket/out", slept.append)


def test_the_client_of_a_run_tries_ten_times(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(boto3, "client", lambda service, **options: given.update(options))
    Bucket.open("s3://bucket/out")
    assert given == {"config": CONFIG}
    assert CONFIG.retries == {"mode": "standard", "total_max_attempts": 10}  # type: ignore[attr-defined]


def test_a_slow_s3_is_tried_ten_times(bucket: Bucket, account: FaultyS3, waited: list[float]) -> None:
    account.faults["PUT"] = [SLOW_DOWN] * 9
    bucket.write("a", b"1")
    assert account.objects == {"/bucket/out/a": b"1"}
    assert len(waited) == 9
    account.faults["GET"] = [(500, "InternalError"), SLOW_DOWN]
    assert bucket.read("a") == b"1"


def test_an_s3_that_stays_slow_is_an_error(bucket: Bucket, account: FaultyS3) -> None:
    account.faults["PUT"] = [SLOW_DOWN] * 10
    with pytest.raises(
        Unavailable, match=r"^s3://bucket/out: An error occurred \(SlowDown\) .* \(reached max retries: 9"
    ):
        bucket.write("a", b"1")


def test_a_claim_in_conflict_is_tried_again(bucket: Bucket, account: FaultyS3, slept: list[float]) -> None:
    account.faults["PUT"] = [CONFLICT, CONFLICT]
    assert bucket.create("job.json", b"mine") == b"mine"
    assert slept == [0.1, 0.2]


def test_a_claim_in_conflict_reads_the_winners_claim(bucket: Bucket, account: FaultyS3, slept: list[float]) -> None:
    account.objects["/bucket/out/job.json"] = b"theirs"
    account.faults["PUT"] = [CONFLICT]
    assert bucket.create("job.json", b"mine") == b"theirs"
    assert slept == [0.1]
    account.faults["PUT"] = [CONFLICT] * len(CONFLICT_WAITS_S)
    assert bucket.create("job.json", b"mine") == b"theirs"
    assert account.objects["/bucket/out/job.json"] == b"theirs"


def test_another_error_of_a_claim_is_raised(bucket: Bucket, account: FaultyS3) -> None:
    account.faults["PUT"] = [(403, "AccessDenied")]
    with pytest.raises(Unavailable, match="AccessDenied"):
        bucket.create("job.json", b"mine")
    assert account.requests == ["PUT"]


def test_content_that_is_read_is_compared_with_its_checksum(bucket: Bucket, account: FaultyS3) -> None:
    bucket.write("a", b"right")
    account.damage = lambda content: content.replace(b"right", b"wrong")
    with pytest.raises(Unavailable, match="did not match calculated checksum"):
        bucket.read("a")


def crc32(content: bytes) -> str:
    return base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()


COMPOSITE = {"x-amz-checksum-crc32": f"{crc32(b'parts')}-3", "x-amz-checksum-type": "COMPOSITE"}


@pytest.mark.parametrize(
    ("checksums", "copy", "accepted"),
    [
        (lambda content: {"x-amz-checksum-crc32": crc32(content)}, b"right", True),
        (lambda content: {"x-amz-checksum-crc32": crc32(content)}, b"wrong", False),
        (lambda content: COMPOSITE, b"wrong", True),
        (lambda content: COMPOSITE, b"too long", False),
    ],
    ids=["equal", "other checksum", "checksum of parts", "other size"],
)
def test_a_copy_is_compared_with_the_objects_size_and_checksum(
    checksums: Callable[[bytes], dict[str, str]],
    copy: bytes,
    accepted: bool,
    bucket: Bucket,
    account: FaultyS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """boto3 does not compare an object that it reads in parts."""
    account.objects["/bucket/in/rows.jsonl"] = b"right"
    account.checksums = checksums
    monkeypatch.setattr(bucket._client, "download_file", lambda bucket, key, name: Path(name).write_bytes(copy))
    if accepted:
        bucket.fetch("in/rows.jsonl", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == copy
        return
    with pytest.raises(Unavailable) as refused:
        bucket.fetch("in/rows.jsonl", tmp_path / "copy")
    assert str(refused.value) == (
        "s3://bucket/in/rows.jsonl: the copy differs from the object in S3. It was damaged or replaced during the "
        "download. Start again."
    )
