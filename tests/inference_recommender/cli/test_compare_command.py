"""`compare`: the performance gate's exit codes and messages, and how measurements become its results."""

from pathlib import Path
from typing import Any

import pytest

from inference_recommender.measurement import Measurement
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.verdict import sustained_rate
from tests.builders import a_measurement
from tests.inference_recommender.conftest import Cli
from tests.inference_recommender.sizing.builders import watched
from workloads import load_workload

OBJECTIVE = load_workload("spellcheck").workload.latency_objective


def _plain(rate: float = 10_000.0, spread: float = 0.02, **given: Any) -> Measurement:
    return a_measurement(rate, closed_loop_invocations_interval=(rate * (1 - spread), rate * (1 + spread)), **given)


def test_the_rate_that_is_compared_keeps_the_objective_as_its_interval_does() -> None:
    """A job's own rate is within a P95, and here the objective is a P99: of three minutes the last one breaks it."""
    series = watched((1, 4_000, 10), (2, 8_000, 40), (3, 10_000, 80))
    assert sustained_rate(_plain(series=series), OBJECTIVE) == pytest.approx(8_000)
    assert sustained_rate(_plain(), OBJECTIVE) == 10_000


def _run(folder: Path, measured: Measurement, workload: str = "spellcheck", users: int = 1) -> str:
    run = RunFolder(folder)
    run.keep_workload(load_workload(workload).workload)
    run.keep("request.json", {"InputConfig": {"TrafficPattern": {"Users": users}}})
    run.keep_measurements((measured,))
    return str(folder)


def test_the_command_passes_fails_and_abstains(tmp_path: Path, cli: Cli) -> None:
    old, same = _run(tmp_path / "old", _plain()), _run(tmp_path / "same", _plain(rate=10_100))
    slow, unsure = _run(tmp_path / "slow", _plain(rate=8_000)), _run(tmp_path / "unsure", _plain(spread=0.5))
    met = cli.json("compare", old, same, "--json")
    assert (met["verdict"], met["decision"]) == ("met", "No regression was found.")
    assert met["cautions"] == [
        "ml.c5.xlarge: latency was not compared: a run has no course of P99 by users of at least 10 periods."
    ]
    (difference,) = met["tables"][0]["rows"]
    assert (difference["baseline"], difference["candidate"]) == (pytest.approx(10_000), pytest.approx(10_100))
    out = cli.out("compare", old, slow, code=1)
    assert "-20.0%" in out
    assert out.endswith(
        "Regression beyond the noise: ml.c5.xlarge: max invocations per minute -20.0% (-22.2% to -17.7%). Do not "
        "release the candidate. Find the cause. If the loss is intended, size the fleet again and use this run as the "
        "baseline.\n"
    )
    unknown = cli.json("compare", old, unsure, "--json", code=4)
    assert (unknown["verdict"], unknown["decision"]) == (
        "unknown",
        "Inconclusive: neither accept nor reject the candidate. Measure both again and compare.",
    )


def test_runs_of_different_workloads_or_traffic_are_refused(tmp_path: Path, cli: Cli) -> None:
    old = _run(tmp_path / "old", _plain())
    other = _run(tmp_path / "other", _plain(), workload="text_classification")
    assert cli.err("compare", old, other) == (
        f"{other}: its workload is text_classification, but that of the baseline {old} is spellcheck. Only runs of the "
        "same workload and traffic compare: measure the candidate with the baseline's workload.\n"
    )
    busier = _run(tmp_path / "busier", _plain(), users=2)
    assert cli.err("compare", old, busier) == (
        f'{busier}: its traffic is {{"Users":2}}, but that of the baseline {old} is {{"Users":1}}. Only runs of the '
        "same workload and traffic compare: measure the candidate with the baseline's traffic.\n"
    )
    assert (
        cli.err("compare", old, str(tmp_path / "nowhere"))
        == f"{tmp_path / 'nowhere'} is not a run folder: it has no workload.json.\n"
    )
