"""Keeps what actions hand on in the pipeline's bucket, and projects' caches, each with the role of who does it on AWS.

An artifact is a zip, as CodePipeline's are. Files come out of it without their executable bit: no step may count on
one. An artifact is found again by its key for as long as the account lives, so another execution may start from it.
"""

import io
import zipfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from scripts.rehearsal.release.roles import Roles, allowed


class Storage:
    def __init__(self, roles: Roles, bucket: str) -> None:
        self._roles = roles
        self._bucket = bucket
        self._numbers = count(1)

    def put(self, name: str, folder: Path, role_arn: str) -> str:
        """Returns the key of the new artifact."""
        key = f"rehearsal/{name[:20]}/{next(self._numbers):04}.zip"
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        self._upload(self._bucket, key, _zipped(files, folder), role_arn)
        return key

    def get(self, key: str, folder: Path, role_arn: str) -> None:
        """Unpacks an artifact into the new `folder`."""
        self._download(self._bucket, key, folder, role_arn)

    def keep_cache(self, location: str, source: Path, files: Sequence[Path], role_arn: str) -> None:
        bucket, _, prefix = location.partition("/")
        self._upload(bucket, f"{prefix}/cache.zip", _zipped(files, source), role_arn)

    def restore_cache(self, location: str, source: Path, role_arn: str) -> None:
        """Unpacks the cache over `source`; a project that never kept one has none."""
        bucket, _, prefix = location.partition("/")
        try:
            self._download(bucket, f"{prefix}/cache.zip", source, role_arn)
        except ClientError as error:
            if error.response["Error"]["Code"] not in {"NoSuchKey", "404"}:
                raise

    def _upload(self, bucket: str, key: str, data: bytes, role_arn: str) -> None:
        s3 = self._roles.client("s3", role_arn)
        allowed(lambda: s3.put_object(Bucket=bucket, Key=key, Body=data), f"{role_arn} puts s3://{bucket}/{key}")

    def _download(self, bucket: str, key: str, folder: Path, role_arn: str) -> None:
        s3: Any = self._roles.client("s3", role_arn)
        what = f"{role_arn} gets s3://{bucket}/{key}"
        data = allowed(lambda: s3.get_object(Bucket=bucket, Key=key)["Body"].read(), what)
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(folder)


def _zipped(files: Sequence[Path], base: Path) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for file in files:
            # A fixed date: a checkout's own may be before 1980, which a zip cannot hold.
            entry = zipfile.ZipInfo(file.relative_to(base).as_posix(), (2026, 1, 1, 0, 0, 0))
            archive.writestr(entry, file.read_bytes())
    return data.getvalue()
