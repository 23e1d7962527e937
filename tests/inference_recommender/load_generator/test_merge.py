"""Several generators of one plan: together they do what one would, and their merged result is that of all records."""

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference_recommender.capacity.histogram import RELATIVE_ERROR
from inference_recommender.load_generator.arrivals import arrival_times
from inference_recommender.load_generator.errors import NothingToMerge
from inference_recommender.load_generator.merge import merge
from inference_recommender.load_generator.plan import Arrivals, LoadPlan, Share, StoppingConditions, TrafficPattern
from inference_recommender.load_generator.process import Outcome, generate
from inference_recommender.load_generator.records import Rows
from inference_recommender.load_generator.timeline import Timeline
from inference_recommender.payloads import payload_archive
from tests.inference_recommender.server import serving
from workloads.errors import InvalidDocument

GENERATORS = 3


def _plan(folder: Path, url: str, **members: Any) -> LoadPlan:
    payloads = folder / "payloads.tar.gz"
    payloads.write_bytes(payload_archive([{"text": f"query {number}"} for number in range(20)]))
    return LoadPlan(url=url, payloads=payloads, start_at=time.time() + 2, **members)


def _run_all(plan: LoadPlan, folder: Path) -> list[Outcome]:
    shares = [plan.model_copy(update={"share": Share(index=n, of=GENERATORS)}) for n in range(GENERATORS)]
    with ThreadPoolExecutor(GENERATORS) as pool:
        return list(pool.map(lambda share: generate(share, folder / f"generator-{share.share.index}"), shares))


def _columns(outcome: Outcome) -> dict[str, "np.typing.NDArray[np.float64]"]:
    with np.load(outcome.records, allow_pickle=False) as archive:
        return dict(archive)


@pytest.mark.integration
def test_the_merged_run_of_several_processes_is_that_of_all_their_records(tmp_path: Path) -> None:
    arrivals = Arrivals(invocations_per_minute=9000, duration_in_seconds=3.5, seed=3, connections=12)
    with serving() as server:
        plan = _plan(tmp_path, server.url, arrivals=arrivals)
        outcomes = _run_all(plan, tmp_path)
    merged = merge(outcomes, plan, tmp_path / "merged")
    assert merged.summary is not None
    assert merged.summary["ended"] == "traffic ended"

    records = [_columns(outcome) for outcome in outcomes]
    intended = np.sort(np.concatenate([columns["intended_s"] for columns in records]))
    assert intended == pytest.approx(arrival_times(arrivals), abs=1e-6)  # nobody's twice, nobody's left out

    started = [outcome.summary["started_at"] for outcome in outcomes if outcome.summary]
    assert max(started) - min(started) < 0.5
    offset = np.concatenate([np.full(len(c["sent_s"]), at) for c, at in zip(records, started, strict=True)])
    every = {name: np.concatenate([columns[name] for columns in records]) for name in records[0]}
    finished_at = every["finished_s"] + offset
    both = _columns(merged)
    first = merged.summary["started_at"]
    assert first == math.ceil(max(started))
    assert merged.summary["duration_s"] in (2, 3)
    for second in range(int(first), int(first + merged.summary["duration_s"])):
        of_all = (finished_at >= second) & (finished_at < second + 1)
        of_merged = np.floor(both["finished_s"] + first) == second
        assert of_merged.sum() == of_all.sum() > 50
        for start in ("sent_s", "intended_s"):
            exact = (every["finished_s"] - every[start])[of_all]
            found = (both["finished_s"] - both[start])[of_merged]
            for percentile in (50, 90, 95, 99):
                expected = np.percentile(exact, percentile, method="inverted_cdf")
                assert np.percentile(found, percentile, method="inverted_cdf") == pytest.approx(
                    expected, rel=RELATIVE_ERROR * 1.0001, abs=1e-9
                )


@pytest.mark.integration
def test_users_are_dealt_out_among_the_generators(tmp_path: Path) -> None:
    phases = [{"InitialNumberOfUsers": 4, "SpawnRate": 60, "DurationInSeconds": 3}]
    pattern = TrafficPattern.model_validate({"TrafficType": "PHASES", "Phases": phases}, strict=False)
    with serving() as server:
        plan = _plan(tmp_path, server.url, traffic_pattern=pattern)
        outcomes = _run_all(plan, tmp_path)
        merged = merge(outcomes, plan, tmp_path / "merged")
    users = [len(set(_columns(outcome)["user"])) for outcome in outcomes]
    assert users == [2, 2, 2]  # of six in the end
    assert server.connections == 6
    assert merged.summary is not None
    finished_at = np.concatenate(
        [_columns(outcome)["finished_s"] + outcome.summary["started_at"] for outcome in outcomes if outcome.summary]
    )
    start, end = merged.summary["started_at"], merged.summary["started_at"] + merged.summary["duration_s"]
    assert merged.summary["invocations"] == ((finished_at >= start) & (finished_at < end)).sum() > 100


def _outcome(folder: Path, exit_code: int, reason: str, **summary: Any) -> Outcome:
    generator = {"cpu_share": 0.1, "lag_ms": 1.0, "peak_per_second": 10, "calibration": None}
    document = {
        "started_at": 1000.0,
        "duration_s": 10.0,
        "first_error": None,
        "generator": generator,
        "ended": "traffic ended" if exit_code == 4 else reason,
    }
    return Outcome(folder=folder, exit_code=exit_code, reason=reason, summary={**document, **summary})


FEW = "too few samples: P95 needs at least 59 independent requests at one load; the run had 50 in all"
LAGGED = "generator lagged: its own clock came 60 ms late"
FAILED = "target failed: h refuses connections (Connection refused)"


@pytest.mark.parametrize(
    ("of_each", "of_all"),
    [
        ([(0, "traffic ended")] * 3, (0, "traffic ended")),
        ([(4, FEW)] * 3, (0, "traffic ended")),  # together they have enough
        ([(0, "traffic ended"), (0, "max invocations"), (4, FEW)], (0, "max invocations")),
        ([(0, "traffic ended"), (4, LAGGED), (4, FEW)], (4, LAGGED)),
        ([(4, LAGGED), (0, "traffic ended"), (3, FAILED)], (3, FAILED)),
        ([(0, "traffic ended"), (0, "stopped"), (4, FEW)], (0, "stopped")),
    ],
)
def test_a_generator_s_failure_is_everybody_s_but_for_too_few_samples(
    tmp_path: Path, of_each: list[tuple[int, str]], of_all: tuple[int, str]
) -> None:
    outcomes = []
    for number, (exit_code, reason) in enumerate(of_each):
        folder = tmp_path / str(number)
        folder.mkdir()
        finished = np.sort(np.random.default_rng(number).uniform(0, 10, 300))
        rows = Rows(
            finished_s=finished,
            latencies_ms=np.full(300, 5.0),
            from_intended_ms=np.full(300, 6.0),
            succeeded=np.full(300, True),
        )
        Timeline.of(rows, np.zeros(0), 1000.0).write(folder / "timeline.npz")
        outcomes.append(_outcome(folder, exit_code, reason))
    arrivals = Arrivals(invocations_per_minute=5400, duration_in_seconds=10)
    merged = merge(outcomes, LoadPlan(url="http://h/", payloads=tmp_path, arrivals=arrivals), tmp_path / "merged")
    assert (merged.exit_code, merged.reason) == of_all
    assert merged.summary is not None
    assert (merged.summary["reason"], merged.summary["generators"]) == (of_all[1], 3)
    assert merged.summary["max_invocations_per_minute"] == pytest.approx(3 * 300 * 6, rel=0.1)
    assert merged.summary["held_back_ms"]["p50"] == pytest.approx(1, abs=0.1)


def test_generators_that_never_ran_at_once_are_not_merged(tmp_path: Path) -> None:
    plan = LoadPlan(
        url="http://h/", payloads=tmp_path, arrivals=Arrivals(invocations_per_minute=1, duration_in_seconds=1)
    )
    outcomes = [_outcome(tmp_path, 0, "traffic ended"), _outcome(tmp_path, 0, "traffic ended", started_at=2000.0)]
    with pytest.raises(NothingToMerge) as refused:
        merge(outcomes, plan, tmp_path / "merged")
    assert str(refused.value) == (
        "The 2 generators were not at work at once for a second: the last began at 2000.0 s, the first ended at "
        "1010.0 s of the epoch. Give their plans one start_at, and check the clocks."
    )
    crashed = Outcome(folder=tmp_path, exit_code=1, reason="it said nothing", summary=None)
    with pytest.raises(NothingToMerge) as refused:
        merge([crashed], plan, tmp_path / "merged")
    assert str(refused.value) == f"{tmp_path} holds no summary: it said nothing"


def test_a_share_is_of_the_generators_there_are(tmp_path: Path) -> None:
    arrivals = {"invocations_per_minute": 60.0, "duration_in_seconds": 1.0}
    plan = {"url": "http://h/", "payloads": "p", "arrivals": arrivals, "share": {"index": 2, "of": 2}}
    (tmp_path / "plan.json").write_text(json.dumps(plan), "utf-8")
    with pytest.raises(InvalidDocument) as refused:
        LoadPlan.from_json(tmp_path / "plan.json")
    assert str(refused.value) == f"{tmp_path / 'plan.json'}: share: index is 2; of 2 generators the last has 1."


def test_each_stops_at_its_part_of_the_invocations() -> None:
    conditions = StoppingConditions(max_invocations=1000)
    assert conditions.of_one_in(3).max_invocations == 334
    assert conditions.of_one_in(1) == conditions
    assert StoppingConditions().of_one_in(3).max_invocations is None
