"""The end of an HTTP/1.1 answer, found with as little work as it takes.

Nearly every answer has status 200 and gives its Content-Length in a head that comes in one piece: `whole_head` reads no
more of those than the length. All others (errors, whose body is kept, chunked, a head in pieces) are `ParsedAnswer`'s,
which is httptools.
"""

from functools import lru_cache

import httptools

SHOWN_BYTES = 300


def whole_head(data: bytes) -> tuple[int, bool] | None:
    """Of the first bytes of an answer of status 200: its length with the head, and whether the connection stays.

    None where that cannot be told from these bytes alone.
    """
    return _read(data[: data.find(b"\r\n\r\n") + 2])


@lru_cache(maxsize=128)
def _read(head: bytes) -> tuple[int, bool] | None:
    """As `whole_head`. Heads without a date or an id are few, and then this is the half of all work."""
    head = head.lower()
    at = head.find(b"\r\ncontent-length:")
    if not head.startswith(b"http/1.1 200") or at < 0 or b"\r\ntransfer-encoding:" in head:
        return None
    try:
        length = int(head[at + 17 : head.index(b"\r", at + 17)])
    except ValueError:
        return None
    return None if length < 0 else (len(head) + 2 + length, b"\r\nconnection: close" not in head)


class ParsedAnswer:
    """One answer, of any form. Fed with all of its bytes."""

    def __init__(self) -> None:
        self.complete = False
        self.status = 0
        self.keep_alive = False
        self.body = b""
        """Its first bytes."""
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Raises `httptools.HttpParserError`."""
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        if len(self.body) < SHOWN_BYTES:
            self.body += body[:SHOWN_BYTES]

    def on_message_complete(self) -> None:
        """The parser tells whether the connection stays only here."""
        self.status, self.keep_alive = self._parser.get_status_code(), self._parser.should_keep_alive()
        self.complete = self.status >= 200  # "100 Continue" comes before the answer
