"""A probe leaves out what a stall of the machine delayed, and is repeated if a stall or the generator spoiled it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference_recommender.capacity.search import Bottleneck
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.records import SentRequests
from inference_recommender.measure import probe
from inference_recommender.measure.probe import GeneratorProbe, seen
from tests.builders import a_system
from tests.inference_recommender.load_generator.virtual_run import sent_requests


def _outcome(folder: Path, stalls: list[list[float]], reason: str = "traffic ended", code: int = 0) -> Outcome:
    """A request each 0.1 s for 10 s, each answered after 20 ms, but at the end of a stall if it meets one."""
    folder.mkdir(parents=True)
    intended = np.arange(0, 10, 0.1)
    finished = intended + 0.02
    for start, end in stalls:
        finished[(intended < end) & (finished > start)] = end
    sent = sent_requests(finished, (finished - intended) * 1000)
    replace(sent, stalls_s=np.array(stalls, dtype=np.float64).reshape(-1, 2)).write(folder / "records.npz")
    return Outcome(folder=folder, exit_code=code, reason=reason, summary={"reason": reason})


def _probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *runs: dict[str, Any]) -> tuple[GeneratorProbe, list[str]]:
    said: list[str] = []
    following: Iterator[dict[str, Any]] = iter(runs)
    monkeypatch.setattr(probe, "generate", lambda plan, folder: _outcome(folder, **next(following)))
    return GeneratorProbe(tmp_path / "p", tmp_path / "probes", a_system(), tell=said.append), said


def test_requests_that_a_stall_delayed_are_left_out(tmp_path: Path) -> None:
    stalled, found = seen(_outcome(tmp_path / "run", [[5.0, 5.4]]).records, 10.0)
    assert stalled == pytest.approx(0.04)
    assert found.latencies_ms.max() == pytest.approx(20)
    assert 85 < len(found.intended_s) < 100


def test_an_unanswered_request_long_before_a_stall_still_counts(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path / "run", [[9.0, 9.1]])
    replace(SentRequests.read(outcome.records), unfinished_intended_s=np.array([2.0])).write(outcome.records)
    _, found = seen(outcome.records, 10.0)
    assert np.isinf(found.latencies_ms).sum() == 1


def test_a_probe_that_a_stall_spoiled_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repeated, said = _probe(tmp_path, monkeypatch, {"stalls": [[2.0, 4.0]]}, {"stalls": []})
    assert len(repeated(600, 10.0).intended_s) == 100
    assert said[-1] == "probe 1 is repeated: this machine stalled for 20% of it"


def test_a_probe_is_repeated_a_bounded_number_of_times_and_the_best_attempt_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [{"stalls": [[2.0, 4.0]]}, {"stalls": [[2.0, 3.5]]}, {"stalls": [[2.0, 5.0]]}]
    repeated, _ = _probe(tmp_path, monkeypatch, *runs)
    assert len(repeated(600, 10.0).intended_s) == pytest.approx(55, abs=2)


@pytest.mark.parametrize(
    "reason", ["generator lagged: its own clock came 59 ms late", "machine stalled for 61 % of the run"]
)
def test_a_generator_that_lagged_once_ends_no_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    lagged = {"stalls": [], "reason": reason, "code": 4}
    repeated, said = _probe(tmp_path, monkeypatch, lagged, {"stalls": []})
    assert len(repeated(600, 10.0).intended_s) == 100
    assert said[-1] == f"probe 1 is repeated: {reason}"
    always, _ = _probe(tmp_path / "b", monkeypatch, lagged, lagged, lagged)
    with pytest.raises(Bottleneck, match=reason):
        always(600, 10.0)
