"""Reads from and writes to S3. Only this module needs boto3, which finds credentials and region by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from ..errors import Unavailable

PRECONDITION_FAILED = "PreconditionFailed"


class Bucket:
    """A `Storage` under a prefix. Putting an object is atomic, so an object is never there in part."""

    def __init__(self, client: Any, location: str) -> None:
        self.location = location.rstrip("/")
        self._client = client
        self._bucket, self._prefix = split(self.location)

    @classmethod
    def open(cls, location: str) -> "Bucket":
        return cls(boto3.client("s3"), location)

    def names(self) -> set[str]:
        """Returns the names directly under the prefix."""
        return {name for name in self.objects() if "/" not in name}

    def read(self, name: str) -> bytes:
        with self._refusals():
            content: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(name))["Body"].read()
        return content

    def write(self, name: str, content: bytes) -> None:
        with self._refusals():
            self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=content)

    def create(self, name: str, content: bytes) -> bytes:
        with self._refusals():
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=content, IfNoneMatch="*")
            except ClientError as error:
                if error.response["Error"]["Code"] != PRECONDITION_FAILED:
                    raise
                return self.read(name)
        return content

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
        with self._refusals():
            self._client.download_file(self._bucket, key, str(file))

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise Unavailable(f"{self.location}: {error}") from None


def split(location: str) -> tuple[str, str]:
    """Splits s3://bucket/some/prefix into bucket and prefix."""
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    return bucket, prefix
