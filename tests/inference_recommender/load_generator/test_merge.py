"""Several generators of one plan: together they do what one would, and their merged result is that of all records.

The generators run in virtual time, one after the other, on one common clock.
"""

import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from inference_recommender.load_generator.load_plan import Arrivals, LoadPlan, Share, StoppingConditions, arrival_times
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.summary import NothingToMerge, merge
from tests.inference_recommender.load_generator.builders import sent_requests
from tests.inference_recommender.load_generator.virtual_run import START_S, plan_of, records_of, run_command
from tests.virtual_time import EPOCH, Network, Serve, answering

GENERATORS = 3


def _run_all(plan: LoadPlan, folder: Path, serve: Serve) -> tuple[list[Outcome], list[Network]]:
    """Runs the shares of `plan`; each generator starts 50 ms after the one before, as on machines of their own."""
    outcomes, networks = [], [Network(serve) for _ in range(GENERATORS)]
    for index, network in enumerate(networks):
        share = plan.model_copy(
            update={"share": Share(index=index, of=GENERATORS), "start_at": EPOCH + START_S + 2.2 + 0.05 * index}
        )
        outcomes.append(run_command(share, serve, folder / f"generator-{index}", network=network))
    return outcomes, networks


def test_the_merged_run_of_several_generators_is_that_of_all_their_records(tmp_path: Path) -> None:
    arrivals = Arrivals(invocations_per_minute=9000, duration_in_seconds=4, seed=3, connections=12)
    random = Random(1)
    plan = plan_of(arrivals)
    outcomes, _ = _run_all(plan, tmp_path, answering(lambda request: random.lognormvariate(-5, 0.5)))
    merged = merge(outcomes, plan, tmp_path / "merged")
    assert merged.summary is not None
    assert merged.summary["ended"] == "traffic ended"

    records = [records_of(outcome) for outcome in outcomes]
    intended = np.sort(np.concatenate([columns["intended_s"] for columns in records]))
    assert intended == pytest.approx(arrival_times(arrivals), abs=1e-6), "each arrival is one generator's"

    started = [outcome.summary["started_at"] for outcome in outcomes if outcome.summary]
    offset = np.concatenate([np.full(len(c["sent_s"]), at) for c, at in zip(records, started, strict=True)])
    every = {name: np.concatenate([columns[name] for columns in records]) for name in records[0]}
    finished_at = every["finished_s"] + offset
    both = records_of(merged)
    first = merged.summary["started_at"]
    assert (first, merged.summary["duration_s"]) == (math.ceil(max(started)), 3)
    for second in range(int(first), int(first + 3)):
        of_all = (finished_at >= second) & (finished_at < second + 1)
        of_merged = np.floor(both["finished_s"] + first) == second
        assert of_merged.sum() == of_all.sum() > 100
        for start in ("sent_s", "intended_s"):
            exact = (every["finished_s"] - every[start])[of_all]
            assert np.sort((both["finished_s"] - both[start])[of_merged]) == pytest.approx(np.sort(exact))


def _outcome(folder: Path, exit_code: int, reason: str, **summary: Any) -> Outcome:
    generator = {"cpu_share": 0.1, "lag_ms": 1.0}
    document = {
        "started_at": 1000.0,
        "duration_s": 10.0,
        "unserved_s": 0.0,
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
def test_one_generator_s_failure_decides_for_all_but_for_too_few_samples(
    tmp_path: Path, of_each: list[tuple[int, str]], of_all: tuple[int, str]
) -> None:
    outcomes = []
    for number, (exit_code, reason) in enumerate(of_each):
        folder = tmp_path / str(number)
        folder.mkdir()
        finished = np.sort(np.random.default_rng(number).uniform(0, 10, 300))
        sent_requests(finished, 5.0, 1.0).write(folder / "records.npz")
        outcomes.append(_outcome(folder, exit_code, reason))
    arrivals = Arrivals(invocations_per_minute=5400, duration_in_seconds=10)
    merged = merge(outcomes, LoadPlan(url="http://h/", payloads=tmp_path, arrivals=arrivals), tmp_path / "merged")
    assert (merged.exit_code, merged.reason) == of_all
    assert merged.summary is not None
    assert (merged.summary["reason"], merged.summary["generators"]) == (of_all[1], 3)
    assert merged.summary["closed_loop_invocations_per_minute"] == pytest.approx(3 * 300 * 6, rel=0.1)


def test_generators_that_never_ran_at_once_are_not_merged(tmp_path: Path) -> None:
    plan = LoadPlan(
        url="http://h/", payloads=tmp_path, arrivals=Arrivals(invocations_per_minute=1, duration_in_seconds=1)
    )
    outcomes = [_outcome(tmp_path, 0, "traffic ended"), _outcome(tmp_path, 0, "traffic ended", started_at=2000.0)]
    with pytest.raises(NothingToMerge) as refused:
        merge(outcomes, plan, tmp_path / "merged")
    assert str(refused.value) == (
        "The 2 generators did not send at the same time for one second: the last started at 2000.0 s and the first "
        "ended at 1010.0 s since the epoch. Give their plans one start_at, and check the clocks."
    )
    crashed = Outcome(folder=tmp_path, exit_code=1, reason="it said nothing", summary=None)
    with pytest.raises(NothingToMerge) as refused:
        merge([crashed], plan, tmp_path / "merged")
    assert str(refused.value) == f"{tmp_path} has no summary: it said nothing"


def test_each_stops_at_its_part_of_the_invocations() -> None:
    conditions = StoppingConditions(max_invocations=1000)
    assert conditions.of_one_in(3).max_invocations == 334
    assert conditions.of_one_in(1) == conditions
    assert StoppingConditions().of_one_in(3).max_invocations is None
