"""Reads a sample of the answers of status 200: a sign-in page or an error in JSON is no inference.

The first answer to each payload is read, then one in a thousand. After an invalid answer, all are read until each
payload has a valid answer again.
"""

import json
import re
from collections.abc import Callable, Sequence

from inference_recommender.kserve import read_outputs
from inference_recommender.load_generator.http_answer import ParsedAnswer

ONE_IN = 1000
SHOWN_CHARACTERS = 100
BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
JSON_SIZE = re.compile(rb"json-header-size=([0-9]{1,15})")

Complaint = Callable[[bytes, int | None], str | None]
"""Returns the problem of a body with this size of its JSON header (None: all of it), or None."""


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


def complaint_for(bodies: Sequence[bytes], content_type: str, *, of_endpoint: bool) -> Complaint:
    """Returns the check for answers to `bodies`. A SageMaker endpoint may serve another protocol than KServe v2."""
    return _not_json if of_endpoint and not _is_kserve_request(bodies[0], content_type) else _not_kserve


def _is_kserve_request(body: bytes, content_type: str) -> bool:
    if content_type.startswith(BINARY_TYPE):
        return True
    try:
        request = json.loads(body)
        return all("datatype" in tensor for tensor in request["inputs"])
    except (LookupError, RecursionError, TypeError, ValueError):
        return False


def _not_kserve(content: bytes, header_size: int | None) -> str | None:
    try:
        outputs = read_outputs(content, header_size)
    except ValueError as error:
        return f"is no KServe v2 response: {_beginning(content)} ({error})"
    return None if outputs else f"is no KServe v2 response: {_beginning(content)} (it has no output)"


def _not_json(content: bytes, header_size: int | None) -> str | None:
    try:
        json.loads(content[:header_size])
    except (RecursionError, ValueError) as error:
        return f"is no JSON: {_beginning(content)} ({error})"
    return None


def _beginning(content: bytes) -> str:
    text = content[:SHOWN_CHARACTERS].decode("utf-8", "replace")
    return f"{text}…" if len(content) > SHOWN_CHARACTERS else text or "it is empty"
