"""Files in S3 by their s3:// URLs. Every method raises `AwsUnavailable`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from aws_api.errors import AwsRefused, translate_aws_errors, unreachable
from aws_api.session import AwsSession
from workloads import Unavailable


def split_url(url: str) -> tuple[str, str]:
    """Returns bucket and key of an s3:// URL."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key


class S3Session(AwsSession):
    """A session that reads and writes files in S3."""

    def upload(self, url: str, body: bytes) -> None:
        """Writes an S3 object; creates the bucket if it does not exist."""
        bucket, key = split_url(url)
        _put_in_bucket(self, bucket, lambda: self.call("s3", "put_object", Bucket=bucket, Key=key, Body=body))

    def upload_archive(self, url: str, file: Path) -> None:
        """Writes an S3 object unless one of the same size exists; creates the bucket if it does not exist."""
        if self.size(url) != file.stat().st_size:
            _put_in_bucket(self, split_url(url)[0], lambda: self.upload_file(url, file))

    def upload_file(self, url: str, file: Path, kms_key: str | None = None) -> None:
        """Writes a file of any size."""
        bucket, key = split_url(url)
        encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
        with _transfer("PutObject"):
            s3 = self.client("s3")
            s3.upload_file(str(file), bucket, key, ExtraArgs=encryption, Config=_transfer_config(self))

    def read(self, url: str) -> bytes:
        bucket, key = split_url(url)
        with translate_aws_errors("GetObject"):
            return bytes(self.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())

    def download(self, url: str, file: Path) -> None:
        bucket, key = split_url(url)
        with _transfer("GetObject"):
            self.client("s3").download_file(bucket, key, str(file), Config=_transfer_config(self))

    def files(self, url: str) -> Sequence[str]:
        """Returns the names of all files below a folder, relative to it.

        Raises `Unavailable` for a key that would lead out of a folder here: a key may hold anything.
        """
        names = tuple(_sizes(self, *split_url(f"{url.rstrip('/')}/")))
        for name in names:
            if name.startswith("/") or ".." in name.split("/"):
                raise Unavailable(
                    f"{url.rstrip('/')}/{name}: a key that would lead out of a folder. Delete that object."
                )
        return names

    def exists(self, url: str) -> bool:
        return self.size(url) is not None

    def size(self, url: str) -> int | None:
        """Returns a file's bytes; None where it, or its bucket, does not exist."""
        bucket, key = split_url(url)
        try:
            return _sizes(self, bucket, key).get("")
        except AwsRefused as error:
            if error.code == "NoSuchBucket":
                return None
            raise


def _sizes(aws: AwsSession, bucket: str, prefix: str) -> dict[str, int]:
    items = aws.pages("s3", "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix)
    return {item["Key"].removeprefix(prefix): int(item["Size"]) for item in items}


def _put_in_bucket(aws: AwsSession, bucket: str, put: Callable[[], object]) -> None:
    try:
        put()
    except AwsRefused as error:
        if error.code != "NoSuchBucket":
            raise
        _create_bucket(aws, bucket)
        put()


def _create_bucket(aws: AwsSession, bucket: str) -> None:
    """Makes a bucket that is closed to the public."""
    # us-east-1 is the one region that must not be named.
    where = {} if aws.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
    blocked = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    aws.call("s3", "create_bucket", Bucket=bucket, **where)
    closed = dict.fromkeys(blocked, True)
    aws.call("s3", "put_public_access_block", Bucket=bucket, PublicAccessBlockConfiguration=closed)


def _transfer_config(aws: AwsSession) -> Any:
    from boto3.s3.transfer import TransferConfig

    # Ctrl-C waits for a transfer's threads, and with `notify` those may sit out an outage of minutes.
    return TransferConfig(use_threads=aws.notify is None)


@contextmanager
def _transfer(operation: str) -> Iterator[None]:
    """Translates like `translate_aws_errors`; a transfer also raises errors of boto3's own around botocore's."""
    from boto3.exceptions import Boto3Error

    with translate_aws_errors(operation):
        try:
            yield
        except Boto3Error as error:
            cause: Any = getattr(error, "last_exception", error.__context__)
            if isinstance(cause, (BotoCoreError, ClientError)):
                raise cause from error
            raise unreachable(cause if isinstance(cause, Exception) else error) from error
