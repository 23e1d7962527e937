"""HTTP/1.1 answers as the generator reads them.

Nearly every answer has status 200 and gives its Content-Length in a head that arrives in one piece: `whole_head` reads
the length and nothing else. All other answers (errors, whose body is kept, chunked ones, heads in pieces) go through
httptools (`ParsedAnswer`).
"""

import re
from functools import lru_cache

import httptools

SHOWN_BYTES = 300
"""At most so much of an error's body is kept."""
MOST_ANSWER_BYTES = 64 << 20
"""A larger answer is an error; SageMaker's own are 6 MB at most, or 25 MB. None is kept in memory."""
MOST_HEAD_BYTES = 64 << 10
"""An answer of more bytes without an end of its head is an error."""
OK = (b"HTTP/1.1 200 ", b"HTTP/1.1 200\r")
DECISIVE = re.compile(rb"\n(content-length|connection|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*)")
"""The headers, in lower case, that say where an answer ends and whether another may follow."""
LENGTH_DIGITS = 9
MORE_THAN_AN_ANSWER = "it sends more than an answer to each request"


def whole_head(data: bytes) -> tuple[int, bool] | None:
    """Returns the length with the head of an answer of status 200, and whether its connection stays open.

    `data` is the beginning of the answer. Returns None where these bytes alone do not tell.
    """
    return _read(data[: data.find(b"\r\n\r\n") + 2])


@lru_cache(maxsize=128)
def _read(head: bytes) -> tuple[int, bool] | None:
    """Reads a head for `whole_head`. Heads without a date or an id are few, so the cache saves half of all work."""
    if not head.startswith(OK):
        return None
    length, keep_alive = None, True
    for name, value in DECISIVE.findall(head.lower()):
        if name == b"content-length" and length is None and value.isdigit() and len(value) <= LENGTH_DIGITS:
            length = int(value)
        elif name == b"connection" and value in (b"keep-alive", b"close"):
            keep_alive = keep_alive and value == b"keep-alive"
        else:
            return None
    if length is None or len(head) + 2 + length > MOST_ANSWER_BYTES:
        return None
    return len(head) + 2 + length, keep_alive


class BadAnswer(Exception):
    """The bytes of a server are no answer to one request, or too many. Says why."""


class ParsedAnswer:
    """One answer of any form, fed with all of its bytes."""

    def __init__(self) -> None:
        self.complete = False
        self.status = 0
        self.keep_alive = False
        self.body = b""
        """The first bytes of the body, about `SHOWN_BYTES`."""
        self._bytes = 0
        self._head_ended = False
        self._goes_on = False
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Reads the next bytes; not to be called again when the answer is complete. Raises `BadAnswer`."""
        assert self._parser is not None, "the answer is complete or refused"
        self._bytes += len(data)
        refused = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            refused = "it asks for another protocol"
        except httptools.HttpParserError as error:
            refused = f"its answer is not HTTP: {error}"
        if self._goes_on:
            refused = MORE_THAN_AN_ANSWER
        elif self._bytes > MOST_ANSWER_BYTES:
            refused = f"its answer is larger than {MOST_ANSWER_BYTES >> 20} MiB"
        elif not self._head_ended and self._bytes > MOST_HEAD_BYTES:
            refused = f"its answer has more than {MOST_HEAD_BYTES >> 10} KiB of headers"
        if refused or self.complete:
            self._parser = None  # they hold each other, and a run collects no such pairs
        if refused:
            raise BadAnswer(refused)

    def on_message_begin(self) -> None:
        self._goes_on = self._goes_on or self.complete
        self._head_ended = False

    def on_headers_complete(self) -> None:
        self._head_ended = True

    def on_body(self, body: bytes) -> None:
        if len(self.body) < SHOWN_BYTES:
            self.body += body[:SHOWN_BYTES]

    def on_message_complete(self) -> None:
        """Only here does the parser know whether the connection stays open."""
        assert self._parser is not None
        self.status, self.keep_alive = self._parser.get_status_code(), self._parser.should_keep_alive()
        self.complete = self.status >= 200  # "100 Continue" comes before the answer
