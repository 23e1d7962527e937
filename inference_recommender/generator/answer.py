"""The end of an HTTP/1.1 answer, found with as little work as it takes.

Nearly every answer has status 200 and gives its Content-Length in a head that comes in one piece: `whole_head` reads no
more of those than the length. All others (errors, whose body is kept, chunked, a head in pieces) are `ParsedAnswer`'s,
which is httptools.
"""

import httptools

SHOWN_BYTES = 300


def whole_head(data: bytes) -> tuple[int, bool] | None:
    """Of the first bytes of an answer of status 200: its length with the head, and whether the connection stays.

    None where that cannot be told from these bytes alone.
    """
    end = data.find(b"\r\n\r\n") + 2
    if end == 1 or not data.startswith(b"HTTP/1.1 200"):
        return None
    head = data[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0 or b"\r\ntransfer-encoding:" in head:
        return None
    try:
        length = int(head[at + 17 : head.index(b"\r", at + 17)])
    except ValueError:
        return None
    return None if length < 0 else (end + 2 + length, b"\r\nconnection: close" not in head)


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
