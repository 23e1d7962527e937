"""moto's S3 with bounds, and the operations whose results moto would make up."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from moto.codebuild.responses import CodeBuildResponse
from moto.ecs.responses import EC2ContainerServiceResponse
from moto.s3 import urls as s3_urls
from moto.s3.exceptions import S3ClientError
from moto.s3.models import FakeKey, S3Backend
from moto.settings import get_s3_default_key_buffer_size
from moto.stepfunctions.responses import StepFunctionResponse
from moto.sts.responses import TokenResponse

REFUSED: Mapping[Any, Mapping[str, str]] = {
    CodeBuildResponse: {"start_build": "StartBuild, because no build runs here"},
    EC2ContainerServiceResponse: {"run_task": "RunTask, because no task runs here"},
    StepFunctionResponse: {"start_execution": "StartExecution, because no step of a state machine runs here"},
    # moto answers these with AWS's example key, which everybody knows.
    TokenResponse: {
        "get_federation_token": "GetFederationToken; use AssumeRole",
        "get_session_token": "GetSessionToken; use AssumeRole",
    },
}
"""By moto's class: the operation, and what cannot be done."""


def refuse_operations() -> None:
    """Makes moto reject the operations of `REFUSED` in this process."""
    for response, operations in REFUSED.items():
        for name, reason in operations.items():
            setattr(response, name, _refusal(reason))


def _refusal(reason: str) -> Callable[[Any], NoReturn]:
    def refuse(response: Any) -> NoReturn:
        raise NotImplementedError(reason)

    return refuse


MAX_STORED_BYTES = 16 << 30
"""Bound of all objects of S3. moto keeps large ones in temporary files, which end with the account."""
MAX_STORED_IN_MEMORY_BYTES = 2 << 30
"""Bound of the objects that moto keeps in memory, each less than `get_s3_default_key_buffer_size`."""


class LocalS3Backend(S3Backend):
    """Refuses what goes beyond its bounds; moto would take it until the disk or the memory is full."""

    @property
    def _url_module(self) -> Any:
        return s3_urls

    def put_object(self, bucket_name: str, key_name: str, value: bytes, *more: Any, **named: Any) -> FakeKey:
        self._check_room(len(value))
        return super().put_object(bucket_name, key_name, value, *more, **named)

    def upload_part(self, bucket_name: str, multipart_id: str, part_id: int, value: bytes) -> FakeKey:
        self._check_room(len(value))
        return super().upload_part(bucket_name, multipart_id, part_id, value)

    def complete_multipart_upload(
        self, bucket_name: str, multipart_id: str, body: Iterator[tuple[int, str]]
    ) -> FakeKey | None:
        """Marks a checksum of checksums by the number of parts, as S3 does: moto's HeadObject leaves that out."""
        key = super().complete_multipart_upload(bucket_name, multipart_id, body)
        if key is not None and key.checksum_type == "COMPOSITE":
            key.checksum_value, key.checksum_type = f"{key.checksum_value}-{key.checksum_parts}", None
        return key

    def _check_room(self, more: int) -> None:
        sizes = [more, *(int(key.contentsize) for key in self._kept())]
        in_memory = sum(size for size in sizes if size <= get_s3_default_key_buffer_size())
        if sum(sizes) > MAX_STORED_BYTES or in_memory > MAX_STORED_IN_MEMORY_BYTES:
            raise S3ClientError(
                "EntityTooLarge",
                f"S3 of this local account holds at most {MAX_STORED_BYTES >> 30} GiB, of which "
                f"{MAX_STORED_IN_MEMORY_BYTES >> 30} GiB in small objects: delete objects first.",
            )

    def _kept(self) -> Iterator[FakeKey]:
        for bucket in list(self.buckets.values()):
            for versions in list(dict(bucket.keys).values()):
                yield from (each for each in versions if isinstance(each, FakeKey))
            for multipart in list(bucket.multiparts.values()):
                yield from list(multipart.parts.values())
