"""HTTP/1.1 answers. `whole_head` reads the usual ones: status 200 with a Content-Length in a head that arrives at once.

All others (errors, chunked answers, heads in pieces) go through httptools (`ParsedAnswer`).
"""

import re
from functools import lru_cache

import httptools

SHOWN_BYTES = 300
"""Bytes of an error's body that are kept."""
MOST_ANSWER_BYTES = 64 << 20
"""A larger answer is an error. SageMaker's limit is 25 MB."""
MOST_HEAD_BYTES = 64 << 10
"""A larger head is an error."""
OK = (b"HTTP/1.1 200 ", b"HTTP/1.1 200\r")
DECISIVE = re.compile(rb"\n(content-length|connection|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*)")
"""Headers that define the end of an answer and whether another may follow, in lower case."""
LENGTH_DIGITS = 9
MORE_THAN_AN_ANSWER = "it sends more than an answer to each request"


def whole_head(data: bytes) -> tuple[int, bool] | None:
    """Returns the length of an answer of status 200 that starts with `data`, and whether its connection stays open.

    Returns None if these bytes do not show it.
    """
    return _read(data[: data.find(b"\r\n\r\n") + 2])


@lru_cache(maxsize=128)
def _read(head: bytes) -> tuple[int, bool] | None:
    """Reads a head. Most heads repeat, so the cache saves half of the work."""
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
    """The bytes are not one answer. The message says why."""


class ParsedAnswer:
    """One answer of any form."""

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
        """Reads the next bytes of an incomplete answer. Raises `BadAnswer`."""
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
            self._parser = None  # a run collects no reference cycles
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
