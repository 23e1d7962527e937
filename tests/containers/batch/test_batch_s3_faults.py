"""S3 that is slow, in conflict with itself, or damages what it sends: what was written is right, or it is said."""

import base64
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.endpoint
import pytest

from containers.batch.s3 import CONFIG, CONFLICT_WAITS_S, Bucket
from containers.errors import Unavailable
from tests.containers.batch.faulty_s3 import FaultyS3, faulty_s3, sha256

CONFLICT = (409, "ConditionalRequestConflict")
SLOW_DOWN = (503, "SlowDown")


@pytest.fixture
def account() -> Iterator[FaultyS3]:
    with faulty_s3() as account:
        yield account


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that botocore waited between its attempts; none pass."""
    waited: list[float] = []
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=waited.append))
    return waited


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def bucket(account: FaultyS3, waited: list[float], slept: list[float], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """The environment asks for fewer checksums, and is not heard."""
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


def test_s3_that_is_slow_is_asked_ten_times(bucket: Bucket, account: FaultyS3, waited: list[float]) -> None:
    account.faults["PUT"] = [SLOW_DOWN] * 9
    bucket.write("a", b"1")
    assert account.objects == {"/bucket/out/a": b"1"}
    assert len(waited) == 9
    account.faults["GET"] = [(500, "InternalError"), SLOW_DOWN]
    assert bucket.read("a") == b"1"


def test_s3_that_stays_slow_is_said_to_be(bucket: Bucket, account: FaultyS3) -> None:
    account.faults["PUT"] = [SLOW_DOWN] * 10
    with pytest.raises(
        Unavailable, match=r"^s3://bucket/out: An error occurred \(SlowDown\) .* \(reached max retries: 9"
    ):
        bucket.write("a", b"1")


def test_a_shard_whose_claim_is_in_conflict_tries_again_and_has_it(
    bucket: Bucket, account: FaultyS3, slept: list[float]
) -> None:
    account.faults["PUT"] = [CONFLICT, CONFLICT]
    assert bucket.create("job.json", b"mine") == b"mine"
    assert slept == [0.1, 0.2]


def test_a_shard_whose_claim_is_in_conflict_reads_that_of_the_first(
    bucket: Bucket, account: FaultyS3, slept: list[float]
) -> None:
    account.objects["/bucket/out/job.json"] = b"theirs"
    account.faults["PUT"] = [CONFLICT]
    assert bucket.create("job.json", b"mine") == b"theirs"
    assert slept == [0.1]
    account.faults["PUT"] = [CONFLICT] * len(CONFLICT_WAITS_S)
    assert bucket.create("job.json", b"mine") == b"theirs"
    assert account.objects["/bucket/out/job.json"] == b"theirs"


def test_any_other_refusal_of_a_claim_is_said(bucket: Bucket, account: FaultyS3) -> None:
    account.faults["PUT"] = [(403, "AccessDenied")]
    with pytest.raises(Unavailable, match="AccessDenied"):
        bucket.create("job.json", b"mine")
    assert account.requests == ["PUT"]


def test_what_is_read_is_compared_with_the_checksum_that_s3_keeps(bucket: Bucket, account: FaultyS3) -> None:
    bucket.write("a", b"right")
    account.damage = lambda content: content.replace(b"right", b"wrong")
    with pytest.raises(Unavailable, match="did not match calculated checksum"):
        bucket.read("a")


def kept_crc32(content: bytes) -> dict[str, str]:
    return {"x-amz-checksum-crc32": base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()}


def kept_of_parts(content: bytes) -> dict[str, str]:
    return {"x-amz-checksum-sha256": f"{sha256(b'parts')}-3", "x-amz-checksum-type": "COMPOSITE"}


def copy_to(file: Path, content: bytes, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches rows.jsonl, which arrives as `content`: boto3 compares nothing of an object that it reads in parts."""
    monkeypatch.setattr(bucket._client, "download_file", lambda bucket, key, name: Path(name).write_bytes(content))
    bucket.fetch("in/rows.jsonl", file)


@pytest.mark.parametrize(("content", "differs"), [(b"wrong", "SHA256"), (b"wrong", "CRC32"), (b"rig", "size")])
def test_a_copy_that_differs_from_the_object_is_refused(
    content: bytes,
    differs: str,
    bucket: Bucket,
    account: FaultyS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account.objects["/bucket/in/rows.jsonl"] = b"right"
    if differs == "CRC32":
        account.kept = kept_crc32
    copy_to(tmp_path / "right", b"right", bucket, monkeypatch)
    with pytest.raises(Unavailable) as refused:
        copy_to(tmp_path / "copy", content, bucket, monkeypatch)
    assert str(refused.value) == (
        f"s3://bucket/in/rows.jsonl: what was read has another {differs} than S3 keeps. It was damaged on its way, or "
        "replaced meanwhile: start again."
    )


def test_of_an_object_that_was_uploaded_in_parts_only_the_size_is_compared(
    bucket: Bucket, account: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.objects["/bucket/in/rows.jsonl"] = b"right"
    account.kept = kept_of_parts
    copy_to(tmp_path / "copy", b"wrong", bucket, monkeypatch)
    with pytest.raises(Unavailable, match="another size"):
        copy_to(tmp_path / "copy", b"wrong again", bucket, monkeypatch)


def test_a_copy_that_is_the_object_is_taken(bucket: Bucket, account: FaultyS3, tmp_path: Path) -> None:
    account.objects["/bucket/in/rows.jsonl"] = b"right" * 1000
    bucket.fetch("in/rows.jsonl", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"right" * 1000
