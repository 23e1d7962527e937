"""Where the requests go, and each payload as the bytes that are sent. Pure.

Requests are whole HTTP/1.1 messages made before the clock starts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    host: str
    port: int
    authority: str
    """For the Host header and messages: host, and port where it is not the scheme's own."""
    path: str
    """With the query."""

    @classmethod
    def of(cls, url: str) -> "Target":
        parts = urlsplit(url)
        return cls(
            host=parts.hostname or "",
            port=parts.port or 80,
            authority=parts.netloc,
            path=f"{parts.path}?{parts.query}" if parts.query else parts.path,
        )


def serialise(target: Target, headers: Mapping[str, str], bodies: Sequence[bytes]) -> list[bytes]:
    """Each body as a whole HTTP request."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": target.authority, **headers}.items())
    head = f"POST {target.path} HTTP/1.1\r\n{lines}"
    return [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
