"""A small web server for one reader: the owner of this machine's account who was told its address.

It listens on 127.0.0.1, where every user of the machine and every page in a browser can reach it. So an address begins
with a random token, a Host must be this machine's loopback (another name can be made to resolve there), and a request
that a foreign page caused (an Origin, or Sec-Fetch-Site of another site) is refused. It answers GET and HEAD, reads no
body, and knows no files: what an address means is `Site`'s to say.
"""

import hmac
import http.server
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from workloads import UsageError

ADDRESS = "127.0.0.1"
IDLE_S = 30.0
"""A connection that asks nothing for so long is closed."""
_HOST = re.compile(r"(?:localhost|127\.0\.0\.1)(?::[0-9]{1,5})?", re.I)
_OWN_SITES = frozenset({"none", "same-origin"})
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    text: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/html; charset=utf-8"


Site = Callable[[tuple[str, ...], Mapping[str, str]], Page]
"""Returns the page of an address: the parts of its path, and its query."""
NOT_FOUND = Page(text="There is no such page.\n", status=HTTPStatus.NOT_FOUND, content_type="text/plain; charset=utf-8")


def refusal(headers: Mapping[str, str]) -> str | None:
    """Returns why a request is not answered, or None. Names of headers are capitalised."""
    if not _HOST.fullmatch(headers.get("Host", "")):
        return f"These reports are at localhost and 127.0.0.1, not at {headers.get('Host', '')[:100]!r}."
    if "Origin" in headers or headers.get("Sec-Fetch-Site", "none").lower() not in _OWN_SITES:
        return "These reports answer no other site's page: open the address that was printed."
    return None


class ReportServer:
    """Serves a site from a thread for each connection; pages are made one after another."""

    def __init__(self, site: Site, port: int = 0) -> None:
        """Listens on `port`, a free one for 0. Raises `UsageError` where the port is taken."""
        self.token = secrets.token_urlsafe(24)
        try:
            self._server = http.server.ThreadingHTTPServer((ADDRESS, port), _handler(site, self.token))
        except OSError as error:
            raise UsageError(f"--port: {port} cannot be listened on: {error.strerror}. Leave it out.") from error
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self._server.server_port}/{self.token}/"

    def serve(self) -> None:
        """Answers until `close` is called or Ctrl-C."""
        self._server.serve_forever()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(site: Site, token: str) -> type[http.server.BaseHTTPRequestHandler]:
    one_at_a_time = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = IDLE_S
        server_version, sys_version = "reports", ""

        def do_GET(self) -> None:
            page = self._page()
            content = page.text.encode()
            self.send_response(page.status)
            for name, value in {**HEADERS, "Content-Type": page.content_type, "Content-Length": len(content)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _page(self) -> Page:
            why = refusal({name.title(): value for name, value in self.headers.items()})
            if why is not None:
                return Page(text=why + "\n", status=HTTPStatus.FORBIDDEN, content_type="text/plain; charset=utf-8")
            address = urlsplit(self.path)
            first, *rest = [unquote(part) for part in address.path.removeprefix("/").split("/")]
            if not hmac.compare_digest(first.encode(), token.encode()):
                return NOT_FOUND
            with one_at_a_time:
                return site(tuple(rest), dict(parse_qsl(address.query)))

        def log_message(self, format: str, *arguments: Any) -> None:
            """Writes nothing: an address holds the token."""

    return Handler
