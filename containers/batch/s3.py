"""Reads from and writes to S3. Only this module needs boto3, which finds credentials and region.

Many shards start at once and write to one prefix, so S3 may answer SlowDown: each request is tried up to ten times.
Writes carry a sha256 that S3 checks.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..container_errors import Unavailable

CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 10},
    request_checksum_calculation="when_supported",
    response_checksum_validation="when_supported",
)
EXISTS, CONFLICT = "PreconditionFailed", "ConditionalRequestConflict"  # the object exists; others create it now
CONFLICT_WAITS_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


class Bucket:
    """An output under a prefix, with the methods of `storage.Folder`. S3 shows an object only when it is complete."""

    def __init__(self, client: Any, location: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self.location = location.rstrip("/")
        self._client = client
        self._sleep = sleep
        self._bucket, _, self._prefix = self.location.removeprefix("s3://").partition("/")

    @classmethod
    def open(cls, location: str) -> "Bucket":
        return cls(boto3.client("s3", config=CONFIG), location)

    def names(self) -> set[str]:
        """Returns the names directly under the prefix."""
        return {name for name in self.objects() if "/" not in name}

    def read(self, name: str) -> bytes:
        with self._errors():
            content: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(name))["Body"].read()
        return content

    def write(self, name: str, content: bytes) -> None:
        with self._errors():
            self._put(name, content)

    def create(self, name: str, content: bytes) -> bytes:
        with self._errors():
            for wait_s in CONFLICT_WAITS_S:
                try:
                    self._put(name, content, IfNoneMatch="*")
                    return content
                except ClientError as error:
                    code = error.response["Error"]["Code"]
                    if code == EXISTS:
                        break
                    if code != CONFLICT:
                        raise
                self._sleep(wait_s)
            return self.read(name)

    def tidy(self) -> None:
        """Does nothing: S3 has no scratch files."""

    def objects(self) -> dict[str, str]:
        """Returns keys by name: of the object at the location itself, or of all objects below it."""
        folder = self._key("")
        with self._errors():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
        if self._prefix in keys:
            return {self._prefix.rpartition("/")[2]: self._prefix}
        return {key.removeprefix(folder): key for key in keys if key.startswith(folder)}

    def fetch(self, key: str, file: Path) -> None:
        with self._errors():
            self._client.download_file(self._bucket, key, str(file))

    def _put(self, name: str, content: bytes, **conditions: str) -> None:
        self._client.put_object(
            Bucket=self._bucket, Key=self._key(name), Body=content, ChecksumAlgorithm="SHA256", **conditions
        )

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise Unavailable(f"{self.location}: {error}") from None
