"""Where the requests go, and each payload as the bytes that are sent. Pure.

Requests are whole HTTP/1.1 messages made before the clock starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    url: str
    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> "Target":
        parts = urlsplit(url)
        return cls(
            url=url,
            host=parts.hostname or "",
            port=parts.port or DEFAULT_PORTS[parts.scheme],
            tls=parts.scheme == "https",
        )

    @property
    def authority(self) -> str:
        """For the Host header and for messages: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"

    def message(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """One POST, as it goes over the wire."""
        parts = urlsplit(self.url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        lines = {"Host": self.authority, **headers, "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body
