"""HTTP/1.1 answers. `whole_head` reads the usual ones: status 200 with a Content-Length in a head that arrives at once.

All others (errors, chunked answers, heads in pieces) go through httptools (`ParsedAnswer`).

A sample of the answers of status 200 is read (`AnswerCheck`): a sign-in page or an error in JSON is no inference. The
first answer to each payload is read, then one in a thousand. After an invalid answer, all are read until each payload
has a valid answer again.
"""

import re
from collections.abc import Callable
from functools import lru_cache

import httptools

from inference_recommender.kserve import read_outputs

SHOWN_BYTES, MOST_ANSWER_BYTES, MOST_HEAD_BYTES = 300, 64 << 20, 64 << 10
"""Bytes of an error's body that are kept; a larger answer or head is an error. SageMaker's limit is 25 MB."""
OK = (b"HTTP/1.1 200 ", b"HTTP/1.1 200\r")
DECISIVE = re.compile(rb"\n(content-length|connection|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*)")
"""Headers that define the end of an answer and whether another may follow, in lower case."""
MORE_THAN_AN_ANSWER = "it sends more than an answer to each request"
LENGTH_DIGITS, ONE_IN, SHOWN_CHARACTERS = 9, 1000, 100
JSON_SIZE = re.compile(rb"json-header-size=([0-9]{1,15})")

Complaint = Callable[[bytes, int | None], str | None]
"""Returns the problem of a body with this size of its JSON header (None: all of it), or None."""


def whole_head(data: bytes) -> tuple[int, bool] | None:
    """Returns the length of an answer of status 200 that starts with `data`, and whether its connection stays open, or
    None if these bytes do not show it.
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


class KeptAnswer(ParsedAnswer):
    """An answer whose body is kept whole, with the size of its JSON header."""

    def __init__(self) -> None:
        super().__init__()
        self.content = bytearray()
        self.header_size: int | None = None

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower == b"inference-header-content-length" and re.fullmatch(rb"[0-9]{1,15}", value):
            self.header_size = int(value)
        elif lower == b"content-type" and (size := JSON_SIZE.search(value)):
            self.header_size = int(size[1])

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self.content += body


class AnswerCheck:
    """Chooses the answers of a run that are read, and reads them."""

    def __init__(self, payloads: int, complaint: Complaint) -> None:
        self._payloads = payloads
        self._complaint = complaint
        self._unread = set(range(payloads))
        self._count = 0

    def chooses(self, payload: int) -> bool:
        """Counts a request and returns whether its answer is read."""
        self._count += 1
        return self._count % ONE_IN == 0 or payload in self._unread

    def problem(self, payload: int, answer: KeptAnswer) -> str | None:
        """Returns the problem of the answer, or None."""
        if complaint := self._complaint(bytes(answer.content), answer.header_size):
            self._unread = set(range(self._payloads))
            return f"the answer to payload {payload} {complaint}"
        self._unread.discard(payload)
        return None


def not_kserve(content: bytes, header_size: int | None) -> str | None:
    """Is the `Complaint` of an answer that is no KServe v2 response."""
    try:
        why = None if read_outputs(content, header_size) else "it has no output"
    except ValueError as error:
        why = str(error)
    shown = content[:SHOWN_CHARACTERS].decode("utf-8", "replace") or "it is empty"
    return why and f"is no KServe v2 response: {shown}{'…' * (len(content) > SHOWN_CHARACTERS)} ({why})"
