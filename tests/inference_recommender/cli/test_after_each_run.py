"""After each way in which a `run` can end, `simulate`, `prove`, `compare` and `report` exit with a documented code and
name the true reason.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.__main__ import main
from inference_recommender.capacity.probe import Capacity
from inference_recommender.capacity.search import Reason
from inference_recommender.measurement import Measurement
from inference_recommender.run_folder import RunFolder
from tests.builders import a_candidate, a_measurement, a_probe, a_recommendation, a_run_folder, a_search
from workloads import Autoscaling, Candidate, load_workload

OBJECTIVE = load_workload("spellcheck").workload.latency_objective
PROBES = a_probe(15_000.0, 13.0493, 0.0001), a_probe(36_000.0, 80.0, 0.03)
SLOW = a_probe(60.0, 61.5, 0.9)
SEARCHED = a_search(30_000.0, *PROBES, reason=Reason.RESOLVED.value, interval=(28_000.0, 32_000.0))
OUT_OF_TIME = a_search(None, *PROBES, reason=Reason.TIME.value, interval=(20_000.0, 40_000.0))
TOO_SHORT = "--max-duration-s: 1 s is too short"
"""`prove` has read the recommendation and computes the duration of its proof."""
NO_FILE = "does not exist"
FAILED = "The test failed without a reason."


def candidate(**changes: Any) -> Candidate:
    scaling = Autoscaling(min_capacity=2, max_capacity=20, target_invocations_per_instance=15_000.0)
    return a_candidate(**{"count": 10, "capacity": 30_000.0, "autoscaling": scaling, **changes})


def measured(search: Capacity | None = None, **changes: Any) -> Measurement:
    members = {"closed_loop_invocations_interval": (39_500.0, 40_500.0), "open_loop": search, **changes}
    return a_measurement(**{"rate": 40_000.0, **members})


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The files of a run, with the expected exit codes and a part of the sentence of each command."""

    measurements: tuple[Measurement, ...] | None
    recommended: Candidate | None = None
    candidates: tuple[Candidate, ...] = ()
    workload: str = "spellcheck"
    simulate: tuple[set[int], str]
    prove: tuple[set[int], str] = ({2}, TOO_SHORT)
    compare: tuple[set[int], str] = ({0}, "No regression was found.")
    report: tuple[set[int], str] = ({0}, "")


SIMULATED = {0, 1}
ENDINGS = {
    "estimate only": Ending(
        measurements=(measured(),),
        recommended=candidate(capacity_basis="estimate"),
        simulate=(SIMULATED, "Model of an instance: an M/M/1 queue with the estimated capacity."),
    ),
    "search resolved": Ending(
        measurements=(measured(SEARCHED),),
        recommended=candidate(capacity_basis="open-loop"),
        simulate=(SIMULATED, "Model of an instance: 2 probes with open-loop arrivals."),
    ),
    "search out of time with an interval": Ending(
        measurements=(measured(OUT_OF_TIME),),
        recommended=candidate(capacity_basis="estimate", max_invocations_interval=(20_000.0, 40_000.0)),
        simulate=(
            SIMULATED,
            "Caution: The open-loop search did not finish (its time was over), so the instance is modelled as an M/M/1 "
            "queue with the estimated capacity.",
        ),
    ),
    "search stopped at the lowest rate": Ending(
        measurements=(measured(a_search(0.0, SLOW, reason=Reason.NOTHING_KEEPS.value)),),
        candidates=(candidate(meets_objective=False, reason="Misses P99 ≤ 50 ms with open-loop arrivals."),),
        simulate=({2}, "recommends no fleet, so there is nothing to simulate. Measure again."),
        prove=({2}, "recommended: is null"),
    ),
    "interrupted before anything was measured": Ending(
        measurements=None,
        simulate=({2}, NO_FILE),
        prove=({2}, NO_FILE),
        compare=({2}, "has no measurements.json: the run ended before it was written."),
        report=({2}, "has no recommendation.json: the run ended without a verdict."),
    ),
    "no candidate meets the objective": Ending(
        measurements=(measured(),),
        candidates=(candidate(meets_objective=False, reason="Misses P99 model latency ≤ 50 ms: 80 ms."),),
        simulate=({2}, "ml.c5.xlarge: Misses P99 model latency ≤ 50 ms: 80 ms."),
        prove=({2}, "recommended: is null"),
    ),
    "batch": Ending(
        measurements=None,
        workload="duplicates",
        simulate=({2}, "objective: is a throughput, because it is a batch."),
        prove=({2}, "objective: is a throughput, because it is a batch."),
        compare=({2}, "objective: is a throughput, because it is a batch."),
        report=({2}, "has no recommendation.json"),
    ),
    "failed job": Ending(
        measurements=(measured(rate=None, closed_loop_invocations_interval=None, failure_reason=FAILED),),
        simulate=({2}, NO_FILE),
        prove=({2}, NO_FILE),
        compare=(
            {4},
            "The candidate's test of ml.c5.xlarge failed: The test failed without a reason. Measure it again.",
        ),
        report=({2}, "has no recommendation.json: the run ended without a verdict."),
    ),
}


def left(ending: Ending, folder: Path) -> RunFolder:
    run = a_run_folder(folder, *(ending.measurements or ()), workload=ending.workload)
    candidates = ending.candidates or ((ending.recommended,) if ending.recommended else ())
    if candidates:
        run.keep_recommendation(
            a_recommendation(
                target="tensorrt",
                objective=OBJECTIVE,
                recommended=ending.recommended,
                candidates=candidates,
                capacity_basis=candidates[0].capacity_basis,
            )
        )
    return run


@pytest.mark.parametrize("name", ENDINGS)
def test_each_command_names_the_true_reason(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ending, run = ENDINGS[name], left(ENDINGS[name], tmp_path / "runs" / "job-1")
    file = str(run.path / "recommendation.json")
    of = [ending.workload, "--from", file, "--runs", str(tmp_path / "out")]
    commands = {
        "simulate": ["simulate", *of, "--trace", "flash-sale", "--seeds", "2"],
        "prove": ["prove", *of, "--url", "http://127.0.0.1:9", "--max-duration-s", "1"],
        "compare": ["compare", str(run.path), str(run.path)],
        "report": ["report", str(run.path), "--format", "json"],
    }
    for command, words in commands.items():
        codes, sentence = getattr(ending, command)
        code = main(words)
        shown = capsys.readouterr()
        assert code in codes, (command, shown.err)
        assert sentence in shown.out + shown.err, command
