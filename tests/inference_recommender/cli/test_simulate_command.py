"""`simulate` on the command line: traces and shapes, the recommended policy and others, and each bad input."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomllib

from inference_recommender.__main__ import main
from inference_recommender.capacity.arrivals import arrival_times
from inference_recommender.report.document import Value
from inference_recommender.report.simulation_report import Simulation
from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate import policy_search, sized_service
from inference_recommender.simulate.tracking import DAY_MINUTES
from tests.builders import (
    a_candidate,
    a_cold_start,
    a_measurement,
    a_probe,
    a_recommendation,
    a_run_folder,
    a_search,
    known,
)
from workloads import ArrivalProcess, Autoscaling, Recommendation, SageMakerEndpointHosting, load_workload

FOLDER = load_workload("spellcheck")
OBJECTIVE = FOLDER.workload.latency_objective
CHOSEN = a_candidate(
    10,
    30_000.0,
    instance_type="ml.g5.xlarge",
    autoscaling=Autoscaling(min_capacity=2, max_capacity=20, target_invocations_per_instance=15_000.0),
    cost_per_hour_usd=14.08,
)
NO_RUN = (
    "The recommendation's run, runs/job-1, was not found, so the instance is modelled as an M/M/1 queue with the "
    "recommended capacity. If the run is in another folder, name its recommendation.json with --from."
)
OPTIMISE = ("--optimise", "--set", "simulation.confidence=0.9")
"""Which needs 89 held-out seeds, and not 898."""
BY_PROBES = "Model of an instance: 3 probes with open-loop arrivals."
PROBES = a_probe(6_000.0, 12.0, 0.0001), a_probe(30_000.0, 49.0, 0.0095, 60.0), a_probe(36_000.0, 450.0, 0.6)


def searched_run(folder: Path, workload: str = "spellcheck", **changes: Any) -> Path:
    """Writes a run whose open-loop search found 30,000 a minute."""
    objective = load_workload(workload).workload.latency_objective
    members = {"percentile": objective.percentile, "limit_ms": objective.model_latency_ms, **changes}
    search = a_search(30_000.0, *PROBES, **{"interval": (28_000.0, 32_000.0), **members})
    measured = a_measurement(None, instance_type="ml.g5.xlarge", open_loop=search)
    return a_run_folder(folder / "search", measured, workload=workload).path


@pytest.fixture
def recommendation(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path, **changes: Any) -> Path:
    """Writes a recommendation of `CHOSEN`."""
    file = folder / "recommendation.json"
    members = {"target": "tensorrt", "objective": OBJECTIVE, **changes}
    a_recommendation(CHOSEN, **members).write_json(file)
    return file


def simulated(file: Path, *more: str, trace: str = "diurnal", workload: str = "spellcheck") -> int:
    runs = ("--runs", str(file.parent / "runs"))
    return main(["simulate", workload, "--trace", trace, "--from", str(file), *runs, "--seeds", "3", *more])


def document(capsys: pytest.CaptureFixture[str]) -> Simulation:
    return Simulation.model_validate_json(capsys.readouterr().out)


def rows(found: Simulation, name: str = "policies") -> dict[Value, dict[str, Value]]:
    """Returns the rows of a table by the policy's name."""
    (table,) = (each for each in found.report.tables if each.name == name)
    return {row["policy"]: row for row in table.rows}


def a_trace(folder: Path, name: str, rates: Sequence[float]) -> str:
    """Writes requests per second for each minute."""
    (folder / name).write_text("".join(f"{60 * minute},{rate}\n" for minute, rate in enumerate(rates)), "utf-8")
    return str(folder / name)


def waves(folder: Path) -> str:
    """Writes a trace of a gentle hour, in which the search is quick."""
    return a_trace(folder, "waves.csv", [3000 + 10 * minute for minute in range(60)])


def gaps(folder: Path) -> str:
    """Writes a trace of an hour, of which six minutes are missing."""
    file = folder / "gaps.csv"
    file.write_text("".join(f"{60 * minute},3000\n" for minute in range(60) if minute % 10 != 5), "utf-8")
    return str(file)


@pytest.fixture
def few_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the search fewer seeds."""
    monkeypatch.setattr(policy_search, "SEARCH_SEEDS", 6)


def refusal(file: Path, capsys: pytest.CaptureFixture[str], *more: str, trace: str = "diurnal") -> str:
    assert simulated(file, *more, trace=trace) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert not (file.parent / "runs").exists()
    return shown.err.strip()


def test_the_table_compares_the_recommended_policy_with_a_fixed_and_an_ideal_fleet(
    recommendation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(recommendation) == 0
    shown = capsys.readouterr().out
    lines = " ".join(shown.split())
    assert lines.startswith("spellcheck: P99 ≤ 50 ms on diurnal (1 day, 3 seeds), at most 5 minutes over it in 3 seeds")
    for sentence in (
        "recommended 2 to 20, 15,000/min each 0.0",
        "fixed fleet 10 instances 0.0",
        "ideal – 0.0",
        "Caution: 3 seeds: no share of seeds can be given; use --seeds 100.",
        f"Caution: {NO_RUN}",
        "Model of an instance: an M/M/1 queue with the recommended capacity.",
        "A new instance serves after 360 s (300 s provisioning, assumed; 60 s model load, assumed). An alarm sees a "
        "minute 120 s late. [simulation] in workload.toml changes this.",
    ):
        assert sentence in lines
    assert re.search(r"Traffic: mean 13\d,\d{3} and peak 2\d\d,\d{3} invocations/min.", lines)
    assert lines.endswith(
        "Keep the recommended policy, 2 to 20, 15,000/min each, cooldowns of 300 s out and 600 s in: 0 of 3 seeds have "
        "more than 5 minutes over the objective; 0 may."
    )


def test_the_result_is_in_a_folder_of_its_own_and_the_same_each_time(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(recommendation, "--json") == 0
    shown = capsys.readouterr()
    (folder,) = (tmp_path / "runs").iterdir()
    assert shown.err.endswith(f"Kept in {folder}. `python -m inference_recommender report {folder}` draws it.\n")
    found = Simulation.from_json(folder / "simulation.json")
    assert found == Simulation.model_validate_json(shown.out)
    recommended, fixed, ideal = rows(found).values()
    hours = [float(str(each["instance_hours"])) for each in (ideal, recommended, fixed)]
    assert hours == sorted(hours)
    assert hours[-1] == 240
    assert recommended["cost_usd"] == pytest.approx(hours[1] * 1.408)
    assert len(found.day.serving) == len(found.day.desired) == 1440
    simulated(recommendation, "--json")
    assert rows(document(capsys)) == rows(found), "the same seeds give the same result"
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_share_of_seeds_needs_100_seeds(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seeds, in_words, end in (("100", "in 99% of seeds", "100 seeds have"), ("1", "in 1 seed", "1 seed has")):
        simulated(recommendation, "--seeds", seeds, trace=waves(tmp_path))
        shown = capsys.readouterr().out
        assert in_words in shown
        assert f"0 of {end} more than 5 minutes over the objective; " in shown


@pytest.mark.parametrize(
    ("provisioning_s", "setting", "times"),
    [
        (None, (), "303 s (300 s provisioning, assumed; 3.32 s model load, {words})"),
        (210.0, (), "213 s (210 s provisioning, {words}; 3.32 s model load, {words})"),
        (
            None,
            ("--set", "simulation.model_load_s=45.0"),
            "345 s (300 s provisioning, assumed; 45 s model load, [simulation] model_load_s)",
        ),
    ],
)
def test_a_measured_cold_start_replaces_the_assumption_and_a_setting_replaces_both(
    provisioning_s: float | None,
    setting: tuple[str, ...],
    times: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A start on this machine does not measure provisioning, which stays assumed."""
    cold_start = a_cold_start(provisioning_s=provisioning_s, instance_type="ml.g5.xlarge")
    simulated(written(tmp_path, cold_start=cold_start), *setting, trace=waves(tmp_path))
    words = "measured in 3 starts on two cores, 2026-11-23"
    assert f"A new instance serves after {times.format(words=words)}." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "code", "decision"),
    [(20_000, 0, "Deploy the requested policy, 2 to 20, "), (28_000, 1, "Do not deploy the requested policy, ")],
)
def test_another_policy_is_compared_with_the_recommended_one(
    target: float, code: int, decision: str, recommendation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(recommendation, "--set", f"policy.target_invocations_per_instance={target:.1f}", "--json") == code
    found = document(capsys)
    assert found.report.decision.startswith(decision)
    requested, recommended, *_ = rows(found).values()
    assert requested["settings"] == f"2 to 20, {target:,}/min each"
    assert float(str(requested["instance_hours"])) < float(str(recommended["instance_hours"]))
    within = [each["is_within_tolerance"] for each in rows(found, "details").values()]
    assert within == [code == 0, True, True]


def test_policies_are_judged_on_days_that_follow_the_trace(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every day triples at noon within a minute, which only earlier days tell in advance."""
    day = [1000.0 if minute < 720 else 3000.0 for minute in range(DAY_MINUTES)]
    before, after = a_trace(tmp_path, "before.csv", day * 3), tmp_path / "after.csv"
    lines = (f"{60 * (3 * DAY_MINUTES + minute)},{rate}\n" for minute, rate in enumerate(day * 2))
    after.write_text("".join(lines), "utf-8")
    options = ("--judge-on", str(after), "--policy", "growth", "--policy", "step", "--json")
    assert simulated(recommendation, *options, trace=before) == 0
    found = document(capsys)
    judged = rows(found, "unseen")
    assert [(name, row["days_within"]) for name, row in judged.items()] == [
        ("growth", 2),
        ("step", 0),
        ("recommended", 0),
        ("fixed fleet", 2),
    ]
    assert float(str(judged["growth"]["cost_over_foresight"])) < float(
        str(judged["fixed fleet"]["cost_over_foresight"])
    )
    assert found.report.decision.startswith(
        "Deploy 2 to 20, growth: 2 of 2 unseen days have at most 5 minutes over the objective (95% must), at 1."
    )
    assert simulated(recommendation, "--judge-on", str(after), trace=before) == 1
    assert "Caution: Target tracking cannot hold this traffic on 2 of 2 days: " in capsys.readouterr().err


@pytest.mark.usefixtures("few_seeds")
def test_a_policy_that_fails_on_unseen_days_is_not_written(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after, before = tmp_path / "after.csv", recommendation.read_bytes()
    rates = (100.0 if minute % 120 < 60 else 4900.0 for minute in range(DAY_MINUTES))
    after.write_text("".join(f"{60 * (60 + minute)},{rate}\n" for minute, rate in enumerate(rates)), "utf-8")
    assert simulated(recommendation, *OPTIMISE, "--judge-on", str(after), trace=waves(tmp_path)) == 1
    shown = capsys.readouterr()
    assert shown.err.endswith("the policy exceeds the tolerance on too many of the unseen days.\n")
    assert "on each day of after.csv (after waves.csv), at most 5 minutes over it on 95% of the days" in shown.out
    assert recommendation.read_bytes() == before


@pytest.mark.usefixtures("few_seeds")
def test_the_chosen_policy_is_written_into_the_recommendation(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(recommendation, *OPTIMISE, "--json", trace=waves(tmp_path)) == 0
    shown = capsys.readouterr()
    found = Simulation.model_validate_json(shown.out)
    assert f"Written: {recommendation}. The next `cdk deploy` uses it.\n" in shown.err
    assert "It replaces" not in shown.err
    assert shown.err.endswith("Next: review it, then run `cdk deploy SpellcheckStack`.\n")
    assert list(rows(found)) == ["chosen", "recommended", "fixed fleet", "ideal"]
    assert "Confirmed on 89 held-out seeds" in found.report.notes[-1]
    better = known(Recommendation.from_json(recommendation).recommended)
    assert better.autoscaling is not None
    assert known(better.autoscaling.simulated).trace_sha256 == found.report.environment["sha256 of the trace"]
    simulated(recommendation, "--json", trace=waves(tmp_path))
    assert rows(document(capsys), "details")["recommended"]["settings"] == rows(found, "details")["chosen"]["settings"]
    sale = [1500 + 10 * minute + (2000 if 20 < minute < 25 else 0) for minute in range(60)]
    assert simulated(recommendation, *OPTIMISE, trace=a_trace(tmp_path, "other.csv", sale)) == 0
    assert "It replaces the policy that was chosen on waves.csv.\n" in capsys.readouterr().err
    assert simulated(recommendation, *OPTIMISE, "--json", trace=str(tmp_path / "other.csv")) == 0
    found = document(capsys)
    assert found.report.decision.endswith("No confirmed policy is better.")
    assert rows(found, "frontier").keys() < rows(found, "details").keys()


@pytest.mark.usefixtures("few_seeds")
def test_a_search_over_a_measurement_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(searched_run(tmp_path), *OPTIMISE, trace=waves(tmp_path)) == 0
    shown = capsys.readouterr()
    assert re.match(r"Searching policies on \d+ seeds each. 89 held-out seeds confirm the choice.\n", shown.err)
    assert shown.err.endswith("Nothing was written: --from names a measurement, not a recommendation.\n")
    assert "cheaper than the recommended policy, which is within the tolerance too." in shown.out


@pytest.mark.usefixtures("few_seeds")
def test_a_policy_that_is_not_confirmed_is_not_written(
    recommendation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recommended target is far too high for the trace, so that it cannot stay."""
    monkeypatch.setattr(policy_search.PolicySearch, "_failed", lambda *_: 99)
    autoscaling = Autoscaling(min_capacity=2, max_capacity=20, target_invocations_per_instance=60_000.0)
    candidate = CHOSEN.model_copy(update={"autoscaling": autoscaling})
    a_recommendation(candidate, target="tensorrt", objective=OBJECTIVE).write_json(recommendation)
    before = recommendation.read_bytes()
    assert simulated(recommendation, *OPTIMISE, trace=waves(tmp_path)) == 1
    shown = capsys.readouterr()
    assert shown.err.endswith("Nothing was written: no policy was confirmed on held-out seeds.\n")
    assert "Nothing to deploy: no policy was confirmed within 5 minutes over the objective in 3 seeds." in shown.out
    assert recommendation.read_bytes() == before


def test_the_worst_day_of_a_longer_trace_is_stored(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The third of three days has a sale that comes too fast."""
    rates = [500 + (4500 if minute > 2 * 1440 + 600 else 0) for minute in range(3 * 1440)]
    assert simulated(recommendation, "--seeds", "1", "--json", trace=a_trace(tmp_path, "days.csv", rates)) == 1
    found = document(capsys)
    assert " on days.csv (3 days, 1 seed), " in found.report.objective
    assert (found.day.start, len(found.day.serving)) == ("1970-01-03T00:00:00+00:00", 1440)
    assert found.day.ideal[599] < found.day.ideal[602]


def test_a_measurement_is_sized_and_simulated_with_its_probes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = searched_run(tmp_path)
    assert simulated(run, "--set", "simulation.region=us-east-1", "--json", "--days", "2") == 0
    found = document(capsys)
    assert BY_PROBES in found.report.notes
    assert rows(found)["fixed fleet"]["cost_usd"] == pytest.approx(10 * 48 * 1.408)
    simulated(run, trace=waves(tmp_path))
    assert "Caution: The price of an instance is unknown: The job reported no price" in capsys.readouterr().out


def test_a_policy_on_concurrent_requests_is_not_simulated(recommendation: Path) -> None:
    folder = load_workload("spellcheck")
    hosting = folder.workload.hosting
    assert isinstance(hosting, SageMakerEndpointHosting)
    scaling = hosting.scaling.model_copy(update={"concurrent_requests_per_instance": 8.0})
    hosting = hosting.model_copy(update={"scaling": scaling})
    folder.workload = folder.workload.model_copy(update={"hosting": hosting})
    assert sized_service.sized_service(folder, recommendation).cautions == (NO_RUN, sized_service.CONCURRENCY)


REFUSALS = tomllib.loads(Path(__file__).with_name("simulate_refusals.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case["message"][:40])
def test_refusals(
    case: dict[str, Any],
    recommendation: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    waves(tmp_path)
    gaps(tmp_path)
    assert refusal(recommendation, capsys, *case["options"], trace=case["trace"]) == case["message"]


def test_a_target_without_any_capacity_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = searched_run(tmp_path, invocations_per_minute=0.0, interval=None, probes=(a_probe(60.0, 61.5, 0.9),))
    assert refusal(nothing, capsys) == (
        "No fleet meets P99 ≤ 50 ms: the lowest rate of the open-loop search missed it (P99 61.5 ms). Raise "
        "objective.model_latency_ms in workload.toml, or measure a faster target."
    )


@pytest.mark.parametrize("rate", [900, 9_000])
def test_a_trace_of_another_size_is_refused_with_the_commands_that_size_for_it(
    rate: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = a_trace(tmp_path, "busy.csv", [rate - minute for minute in range(60)])
    measured = searched_run(tmp_path)
    size = f"--from {measured} --peak-invocations-per-minute {60 * rate}"
    setting = f"--set objective.peak_invocations_per_minute={60 * rate}"
    assert refusal(measured, capsys, trace=trace) == (
        f"busy.csv has a peak of {60 * rate:,} invocations/min (mean {60 * rate - 1770:,}), and the objective's "
        "peak is 240,000. They differ by more than a factor of 2, so the fleet has the wrong size for this trace. Size "
        f"a fleet for it: `python -m inference_recommender size {size}`. Then simulate with --from {measured} "
        f"{setting}."
    )
    assert main(["size", *size.split(), "--workload", "spellcheck", "--json"]) == 0
    needed = json.loads(capsys.readouterr().out)["candidates"][0]["instance_count"]
    assert simulated(measured, "--json", *setting.split(), trace=trace) in (0, 1)
    hours = rows(document(capsys))["fixed fleet"]["instance_hours"]
    assert hours == max(needed, 2), "of an hour, with the minimum in production"


@pytest.mark.parametrize(("fill", "mean"), [("zero", "162,000"), ("last", "180,000")])
def test_gaps_are_filled_as_the_setting_requires(
    fill: str, mean: str, recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(recommendation, "--set", f"simulation.fill_gaps={fill}", trace=gaps(tmp_path)) == 0
    assert f"Traffic: mean {mean} " in capsys.readouterr().out


def test_the_probes_are_those_of_the_recommendations_own_run(
    recommendation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sized_service, "ROOT", tmp_path)
    run = RunFolder(tmp_path / "runs" / "job-1")
    run.keep_recommendation(Recommendation.from_json(recommendation))
    run.keep_measurements(RunFolder(searched_run(tmp_path)).measurements())
    for file in (recommendation, run.path / "recommendation.json"):
        simulated(file)
        assert BY_PROBES in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            None,
            "{file} does not exist, so there is no policy to simulate. Measure one with `python -m "
            "inference_recommender run spellcheck`, or name a measurement with --from PATH.",
        ),
        (
            {"objective": OBJECTIVE.model_copy(update={"percentile": "P90"})},
            f"{{file}}: objective: was measured for P90 ≤ 50 ms, and {FOLDER.file} now says P99 ≤ 50 ms. Measure "
            "again.",
        ),
        (
            {"recommended": None},
            f"{{file}} recommends no fleet, so there is nothing to simulate. Measure again.\nml.g5.xlarge: "
            f"{CHOSEN.reason}",
        ),
        ({"workload": "query_intent"}, "{file}: workload: is 'query_intent', and 'spellcheck' is simulated."),
    ],
)
def test_a_recommendation_that_cannot_be_simulated_is_refused(
    changes: dict[str, Any] | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recommendation.json" if changes is None else written(tmp_path, **changes)
    assert refusal(file, capsys) == message.format(file=file)


def test_an_ecs_service_is_simulated_with_its_capacity_provider(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated(searched_run(tmp_path, "query_intent"), "--json", workload="query_intent")
    assert document(capsys).report.environment["hosting"] == "ECS service with a capacity provider"


def test_a_fit_prints_the_process_of_recorded_arrivals_for_workload_toml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recorded.csv"
    process = ArrivalProcess(process="gamma", cv=2.0)
    stamps_s = arrival_times(process, 50.0, 2000.0, np.random.default_rng(1))
    file.write_text("time\n" + "".join(f"{each:.6f}\n" for each in stamps_s))
    assert main(["simulate", "spellcheck", "--trace", str(file), "--fit", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    found = tomllib.loads(report["patch"])["objective"]["arrivals"]
    assert found == {"process": "gamma", "cv": pytest.approx(2.0, rel=0.05)}
    assert [row["recorded"] for row in report["tables"][0]["rows"]][-1] == pytest.approx(4, rel=0.4)
    file.write_text("2\n1\n")
    assert main(["simulate", "spellcheck", "--trace", str(file), "--fit"]) == 2
    assert f"{file}:2: is earlier than the line before it." in " ".join(capsys.readouterr().err.split())
