"""Reads the counters of a Triton before and after a load.

They are at `GET /v2/models/stats`. InvokeEndpoint does not reach that path, other servers lack it, and a Triton may
restrict it. The result is then None. `capacity.server_times` evaluates the counters.
"""

import json
import time
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

import urllib3

from inference_recommender.capacity.server_times import Counters, ServerTimes, answered, read_counters, server_times
from inference_recommender.load_generator import unix_socket

TIMEOUT_S = 2.0
MODELS = "/v2/models/"
SETTLED_S, POLL_S = 1.0, 0.02
"""Triton counts a request after it sent the answer. Longest wait for the last ones, and the interval, in seconds."""

Fetch = Callable[[str], bytes]
"""Returns the body at a URL. Raises `urllib3.exceptions.HTTPError`, or OSError."""
Sleep = Callable[[float], None]


def statistics_url(url: str | None) -> str | None:
    """Returns the URL of the counters of the server at `url`, or None."""
    parts = urlsplit(url or "")
    if not parts.path.endswith("/infer") or MODELS not in parts.path:
        return None
    path = f"{parts.path.partition(MODELS)[0]}{MODELS}stats"
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def fetch(url: str) -> bytes:
    response = unix_socket.request("GET", url, timeout=TIMEOUT_S, retries=False)
    return response.data if response.status == 200 else b""


class TritonStatistics:
    """The counters of the server whose requests go to `url`."""

    def __init__(self, url: str | None, fetch: Fetch = fetch, sleep: Sleep = time.sleep) -> None:
        self._url = statistics_url(url)
        self._fetch = fetch
        self._sleep = sleep

    def read(self) -> Counters | None:
        """Returns the counters, or None if the server does not report them."""
        if self._url is None:
            return None
        try:
            return read_counters(json.loads(self._fetch(self._url)))
        except (LookupError, TypeError, ValueError, OSError, urllib3.exceptions.HTTPError):
            return None

    def since(self, before: Counters | None, requests: int) -> ServerTimes | None:
        """Returns the means since a reading, when the answers to `requests` requests are counted, or a second later."""
        if before is None:
            return None
        after = self.read()
        for _ in range(round(SETTLED_S / POLL_S)):
            if after is None or answered(before, after) >= requests:
                break
            self._sleep(POLL_S)
            after = self.read()
        return None if after is None else server_times(before, after)
