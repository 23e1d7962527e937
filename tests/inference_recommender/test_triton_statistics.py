"""A Triton is asked for its counters where they are; a server that has none is no error."""

import json

import pytest
import urllib3

from inference_recommender.triton_statistics import POLL_S, SETTLED_S, TritonStatistics, statistics_url
from tests.builders import known
from tests.inference_recommender.capacity.test_server_times import told

URL = "http://server:8000/v2/models/m/infer"


def answer(requests: int) -> bytes:
    stats = told("m", requests=requests, queue_ms=requests, compute_ms=(0, 2 * requests, 0), batches=requests)
    return json.dumps({"model_stats": [stats]}).encode()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (URL, "http://server:8000/v2/models/stats"),
        ("https://host/behind/v2/models/m/versions/2/infer", "https://host/behind/v2/models/stats"),
        ("http+unix://%2Ftmp%2Fhttp/v2/models/m/infer", "http+unix://%2Ftmp%2Fhttp/v2/models/stats"),
        ("https://runtime.sagemaker.us-east-1.amazonaws.com/endpoints/e/invocations", None),
        ("http://server:8080/predict", None),
        (None, None),
    ],
)
def test_where_a_server_tells_what_it_counted(url: str | None, place: str | None) -> None:
    assert statistics_url(url) == place


@pytest.mark.parametrize(("later", "requests", "slept_s"), [([108, 109, 110], 10, 2 * POLL_S), ([107], 7, SETTLED_S)])
def test_the_last_requests_are_waited_for_a_second_because_triton_counts_them_after_their_answers(
    later: list[int], requests: int, slept_s: float
) -> None:
    counts, slept = iter([100, *later]), list[float]()
    statistics = TritonStatistics(URL, lambda url: answer(next(counts, later[-1])), slept.append)
    found = known(statistics.since(statistics.read(), 10))
    assert (found.requests, found.queue_ms, found.compute_ms.infer) == pytest.approx((requests, 1.0, 2.0))
    assert sum(slept) == pytest.approx(slept_s)


def _hangs_up(url: str) -> bytes:
    raise urllib3.exceptions.MaxRetryError(urllib3.HTTPConnectionPool("server"), url)


@pytest.mark.parametrize(
    "fetch",
    [lambda url: b"", lambda url: b'{"error":"not found"}', lambda url: b"[]", lambda url: b"{", _hangs_up],
    ids=["refused", "another answer", "a list", "no JSON", "no server"],
)
def test_a_server_without_counters_leaves_it_unknown(fetch: object) -> None:
    statistics = TritonStatistics(URL, fetch)  # type: ignore[arg-type]  # of lambdas in a list
    assert statistics.read() is None
    assert statistics.since(statistics.read(), 10) is None
    assert TritonStatistics(None, lambda url: answer(1)).read() is None, "nothing is asked without a place"
