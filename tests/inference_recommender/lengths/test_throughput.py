"""Steps of users are read into what each number of them completed, and are driven by the real generator."""

from pathlib import Path

import numpy as np
import pytest

from inference_recommender.lengths.served import Server
from inference_recommender.lengths.throughput import driven, settled, step_seconds, user_levels
from inference_recommender.payloads import payload_archive
from tests.inference_recommender.server import serving
from workloads import Unavailable


def server_at(url: str) -> Server:
    return Server(
        name="a server", post=lambda body: b"", url=url, endpoint=None, archive_sha256=None, measured_on="local"
    )


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    file = tmp_path / "payloads.tar.gz"
    file.write_bytes(payload_archive([{"text": "running shoes"}, {"text": "jacket"}]))
    return file


@pytest.mark.parametrize(("at_once", "users"), [(1, (1, 2)), (12, (1, 2, 4, 8, 16, 32)), (16, (1, 2, 4, 8, 16, 32))])
def test_the_most_users_keep_a_batch_waiting_while_one_is_computed(at_once: int, users: tuple[int, ...]) -> None:
    assert user_levels(at_once) == users


@pytest.mark.parametrize(("alone_ms", "seconds"), [(3.0, 1), (20.0, 3), (900.0, 10)])
def test_steps_are_longer_where_requests_are(alone_ms: float, seconds: int) -> None:
    assert step_seconds(16, alone_ms) == seconds


def test_the_beginning_of_a_step_and_what_failed_do_not_count() -> None:
    """A user has 100 answers a second, two have 200; in each step's first quarter there are ten times as many."""
    steps = [np.arange(0.25, 1.0, 0.01) + 1e-6, 1 + np.arange(0.25, 1.0, 0.005) + 1e-6]
    early = [np.arange(0.0, 0.25, 0.001), 1 + np.arange(0.0, 0.25, 0.0005)]
    finished = np.sort(np.concatenate([*steps, *early, [0.5, 1.5]]))
    succeeded = ~np.isin(finished, [0.5, 1.5])
    found = settled(finished, np.full(len(finished), 7.0), succeeded, (1, 2), 1)
    assert found is not None
    assert found.users.tolist() == [1, 1, 1, 2, 2, 2]
    assert found.completed.tolist() == [25, 25, 25, 50, 50, 50]
    assert found.period_s == 0.25
    assert np.allclose(found.latencies_ms, 7.0)
    server = found.server()
    assert server.completions.tolist() == [6000, 12000]


def test_one_user_of_a_slow_server_is_told_by_few_answers() -> None:
    """A request takes a second; what is alone must not be taken from two users for lack of answers."""
    one, two = np.arange(0.0, 8.0) + 0.5, 8 + np.arange(0.0, 8.0, 0.5) + 0.4
    latencies = np.repeat([1000.0, 1500.0], [len(one), len(two)])
    found = settled(np.concatenate([one, two]), latencies, np.ones(len(latencies), np.bool_), (1, 2), 8)
    assert found is not None
    assert (found.users.tolist(), found.completed.tolist()) == ([1, 1, 1, 2, 2, 2], [2, 2, 2, 4, 4, 4])
    assert found.latencies_ms[0, 0] == 1000


def test_failures_and_the_beginnings_of_steps_tell_nothing() -> None:
    assert settled(np.array([0.1, 0.6]), np.array([1.0, 1.0]), np.array([True, False]), (1, 2), 1) is None


def test_every_payload_is_sent_by_each_number_of_users(archive: Path, tmp_path: Path) -> None:
    with serving() as server:
        found = driven(server_at(server.url), archive, tmp_path / "turn", (1, 2), 1)
        assert {body for body in server.seen if b"jacket" in body or b"shoes" in body} == set(server.seen)
    assert set(found.users) == {1.0, 2.0}
    assert (tmp_path / "turn/records.npz").exists()


def test_a_server_that_answers_nothing_is_told(archive: Path, tmp_path: Path) -> None:
    with (
        serving(lambda body: (500, b"{}")) as server,
        pytest.raises(Unavailable, match=r"load was not sent|answered no request"),
    ):
        driven(server_at(server.url), archive, tmp_path / "turn", (1,), 1)
