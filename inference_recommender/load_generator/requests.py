"""The requests of a run as complete HTTP/1.1 messages, made before the clock starts, and their target.

A target is a URL or a SageMaker endpoint by name. boto3 gives the address, region and credentials of an endpoint.
Requests to it have a Signature Version 4, which is valid for five minutes. After the start they are signed again one at
a time over `CYCLE_S`, so the sending loop is delayed by one signature (0.1 ms) at most.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from containers.archive_reader import ArchiveRefused, Limits, read_files
from inference_recommender.kserve import BINARY, SIZE_HEADER
from inference_recommender.load_generator.http_answer import Complaint, not_kserve
from inference_recommender.load_generator.load_plan import REQUEST_TIMEOUT_S, LoadPlan, NamedEndpoint
from workloads import UsageError

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

DEFAULT_PORTS = {"http": 80, "https": 443}
CYCLE_S = 120.0
"""Seconds in which every request is signed again once."""
PAYLOAD_LIMITS = Limits(entries=100_000, bytes=1 << 30)
"""All payloads are held in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Address of an HTTP server: host and port, or a Unix socket."""

    url: str
    host: str
    port: int
    tls: bool
    socket: str | None = None
    """Path of the server's Unix socket. `host` is then "localhost"."""

    @classmethod
    def of(cls, url: str) -> "Target":
        """Parses `http://`, `https://` and `http+unix://PERCENT-ENCODED-PATH/...`."""
        parts = urlsplit(url)
        if parts.scheme == "http+unix":
            return cls(url=url, host="localhost", port=DEFAULT_PORTS["http"], tls=False, socket=unquote(parts.netloc))
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        return cls(url=url, host=parts.hostname or "", port=port, tls=parts.scheme == "https")

    @property
    def authority(self) -> str:
        """Host and port for the Host header, without the port if it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"

    @property
    def name(self) -> str:
        """The address in messages."""
        return self.socket or self.authority

    def message(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """Returns one POST request as bytes."""
        parts = urlsplit(self.url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        lines = {"Host": self.authority, **headers, "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


@dataclass(frozen=True, kw_only=True, slots=True)
class Outgoing:
    """All that a run sends."""

    target: Target
    requests: list[bytes]
    """One per payload, in their order; a `signer` replaces them as they age."""
    tls: ssl.SSLContext | None = None
    signer: "Signer | None" = None
    complaint: Complaint | None = None
    """The check of a sample of the answers; None reads none."""
    timeout_s: float = REQUEST_TIMEOUT_S
    """Seconds from a request's send to the end of its answer; after them it has failed."""

    @property
    def sizes(self) -> list[int]:
        """The bytes of each payload."""
        return [len(request.partition(b"\r\n\r\n")[2]) for request in self.requests]


def outgoing(plan: LoadPlan, bodies: Sequence[bytes]) -> Outgoing:
    """Returns the requests of `plan`. Raises `AwsUnavailable` without credentials or a region."""
    headers = {"Content-Type": plan.content_type, **plan.headers}
    if plan.url and plan.content_type.startswith(BINARY):  # only SageMaker reads the size from the Content-Type
        headers[SIZE_HEADER] = plan.content_type.removeprefix(BINARY)
    signer, trusted = _signer(plan.endpoint, headers, bodies) if plan.endpoint else (None, None)
    target = signer.target if signer else Target.of(plan.url or "")
    return Outgoing(
        target=target,
        requests=signer.sign_all() if signer else [target.message(headers, body) for body in bodies],
        tls=ssl.create_default_context(cafile=trusted) if target.tls else None,
        signer=signer,
        complaint=not_kserve,
        timeout_s=plan.request_timeout_s,
    )


def _signer(endpoint: NamedEndpoint, headers: dict[str, str], bodies: Sequence[bytes]) -> "tuple[Signer, str | None]":
    import boto3  # only a run against an endpoint by name needs it
    from botocore.exceptions import NoRegionError
    from botocore.httpsession import get_cert_path
    from botocore.session import Session

    from aws_api.errors import NO_CREDENTIALS, NO_REGION, AwsUnavailable

    core = Session()
    session = boto3.Session(botocore_session=core, region_name=endpoint.region)
    if (credentials := session.get_credentials()) is None:
        raise AwsUnavailable(NO_CREDENTIALS)
    try:
        client = session.client("sagemaker-runtime")
    except NoRegionError:
        raise AwsUnavailable(NO_REGION) from None
    target = Target.of(f"{client.meta.endpoint_url}/endpoints/{endpoint.name}/invocations")
    signer = Signer(target, headers, bodies, client.meta.region_name, credentials.get_frozen_credentials)
    return signer, core.get_config_variable("ca_bundle") or get_cert_path(True)


def read_payloads(archive: Path) -> list[bytes]:
    """Returns the request bodies in a tar.gz: every file's content, by name. Raises `UsageError` without any."""
    try:
        with archive.open("rb") as stream:
            bodies = [body for _, body in sorted(read_files(stream, limits=PAYLOAD_LIMITS).items())]
        why = None if bodies else "holds no file"
    except (OSError, ArchiveRefused) as error:
        why = f"cannot be read: {error}"
    if why:
        raise UsageError(f"{archive}: {why}. Give a tar.gz of request bodies, one file each.")
    return bodies


@dataclass(frozen=True, slots=True)
class Signer:
    """Makes requests with a signature, and keeps their signatures fresh while they are being sent."""

    target: Target
    headers: Mapping[str, str]
    bodies: Sequence[bytes]
    region: str
    credentials: "Callable[[], ReadOnlyCredentials]"
    """Returns the present ones. It may block while it fetches them."""

    def sign_all(self) -> list[bytes]:
        """Returns every request, signed now."""
        credentials = self.credentials()
        return [self._signed(body, credentials) for body in self.bodies]

    async def keep_fresh(self, requests: list[bytes]) -> None:
        """Replaces `requests`, made by `sign_all`, one by one without end. Raises what `credentials` raises."""
        while True:
            credentials = await asyncio.to_thread(self.credentials)
            for number, body in enumerate(self.bodies):
                await asyncio.sleep(CYCLE_S / len(self.bodies))
                requests[number] = self._signed(body, credentials)

    def _signed(self, body: bytes, credentials: "ReadOnlyCredentials") -> bytes:
        from botocore.auth import SigV4Auth  # takes a while to import, and most runs need none of it
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method="POST", url=self.target.url, data=body, headers=dict(self.headers))
        SigV4Auth(credentials, "sagemaker", self.region).add_auth(request)
        return self.target.message(dict(request.headers.items()), body)
