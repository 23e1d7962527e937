"""Reads from and writes to S3. Only this module needs boto3, which finds credentials and region by itself.

Many shards begin at once and write to one prefix, so S3 may answer SlowDown for a while: each request is tried up to
ten times. What is written goes with its sha256, which S3 compares; what is read is compared with the checksum that S3
keeps of it. Of an object that was uploaded in parts S3 may keep only checksums of the parts: then only its size is.
"""

import base64
import hashlib
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..errors import Unavailable

CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 10},
    request_checksum_calculation="when_supported",
    response_checksum_validation="when_supported",
)
PRECONDITION_FAILED = "PreconditionFailed"
CONFLICT = "ConditionalRequestConflict"
"""S3's answer to all but one of those that create the same object at the same time; the others are to try again."""
CONFLICT_WAITS_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


class Bucket:
    """A `Storage` under a prefix. Putting an object is atomic, so an object is never there in part."""

    def __init__(self, client: Any, location: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self.location = location.rstrip("/")
        self._client = client
        self._sleep = sleep
        self._bucket, self._prefix = split(self.location)

    @classmethod
    def open(cls, location: str) -> "Bucket":
        return cls(boto3.client("s3", config=CONFIG), location)

    def names(self) -> set[str]:
        """Returns the names directly under the prefix."""
        return {name for name in self.objects() if "/" not in name}

    def read(self, name: str) -> bytes:
        with self._refusals():
            content: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(name))["Body"].read()
        return content

    def write(self, name: str, content: bytes) -> None:
        with self._refusals():
            self._put(name, content)

    def create(self, name: str, content: bytes) -> bytes:
        with self._refusals():
            for wait_s in CONFLICT_WAITS_S:
                try:
                    self._put(name, content, IfNoneMatch="*")
                    return content
                except ClientError as error:
                    code = error.response["Error"]["Code"]
                    if code not in (PRECONDITION_FAILED, CONFLICT):
                        raise
                if code == PRECONDITION_FAILED:
                    break
                self._sleep(wait_s)
            return self.read(name)

    def _put(self, name: str, content: bytes, **conditions: str) -> None:
        self._client.put_object(
            Bucket=self._bucket, Key=self._key(name), Body=content, ChecksumAlgorithm="SHA256", **conditions
        )

    def tidy(self) -> None:
        """Does nothing: writing to S3 leaves no scratch files."""

    def objects(self) -> dict[str, str]:
        """Returns keys by name: of the object at the location itself, or of all objects below it."""
        folder = self._key("")
        with self._refusals():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
        if self._prefix in keys:
            return {self._prefix.rpartition("/")[2]: self._prefix}
        return {key.removeprefix(folder): key for key in keys if key.startswith(folder)}

    def fetch(self, key: str, file: Path) -> None:
        """Copies an object to `file`: parts of a large one are read at the same time, so only the whole is compared."""
        with self._refusals():
            self._client.download_file(self._bucket, key, str(file))
            kept = self._client.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
        if differs := _difference(kept, file):
            raise Unavailable(
                f"s3://{self._bucket}/{key}: what was read has another {differs} than S3 keeps. It was damaged on its "
                "way, or replaced meanwhile: start again."
            )

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise Unavailable(f"{self.location}: {error}") from None


def _difference(kept: Mapping[str, Any], file: Path) -> "str | None":
    """Returns what differs between a file and the answer of HeadObject: its size, or one of its checksums."""
    if kept["ContentLength"] != file.stat().st_size:
        return "size"
    whole = kept.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
    for key, checksum in CHECKSUMS.items():
        if whole and "-" not in (known := kept.get(key, "-")) and known != base64.b64encode(checksum(file)).decode():
            return key.removeprefix("Checksum")
    return None


def _crc32(file: Path) -> bytes:
    crc = 0
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return crc.to_bytes(4, "big")


def _sha256(file: Path) -> bytes:
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.digest()


CHECKSUMS: "Mapping[str, Callable[[Path], bytes]]" = {"ChecksumCRC32": _crc32, "ChecksumSHA256": _sha256}
"""The checksums that Python computes fast, of the five that S3 keeps; boto3 and the AWS CLI upload with the first."""


def split(location: str) -> tuple[str, str]:
    """Splits s3://bucket/some/prefix into bucket and prefix."""
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    return bucket, prefix
