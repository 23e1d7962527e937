"""`simulate` on the command line: traces and shapes, today's policy and others, and a sentence for each bad input."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.__main__ import main
from inference_recommender.capacity.probe import Probe
from inference_recommender.capacity.rate import Capacity
from inference_recommender.cli import simulate
from inference_recommender.measurement import Measurement
from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate import evidence, optimise, seeds, terminal
from inference_recommender.simulate.policy import Policy
from inference_recommender.simulate.terminal import rows_in_words
from tests.builders import a_candidate, a_recommendation
from workloads import Autoscaling, ColdStart, Recommendation, ScheduledMinimum, load_workload

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
    "Warning: The recommendation's run, runs/job-1, was not found, so the instance is modelled as an M/M/1 queue with "
    "the recommended capacity. If the run is in another folder, name its recommendation.json with --from."
)
QUICK = ("--seeds", "3")
OPTIMISE = ("--optimise", "--confidence", "0.9")
"""Which needs 89 seeds held out, and not 898."""


def capacity_json(folder: Path, **changes: Any) -> Path:
    found = {
        "max_invocations_per_minute": 30_000.0,
        "max_invocations_interval": [28_000.0, 32_000.0],
        "latency_ms": 49.0,
        "percentile": OBJECTIVE.percentile,
        "latency_limit_ms": OBJECTIVE.model_latency_ms,
        "warm_up_s": 5.0,
        "reason": "found",
        "probes": [
            {"invocations_per_minute": 6_000.0, "duration_s": 20.0, "latency_ms": 12.0, "late_share": 0.0001},
            {"invocations_per_minute": 30_000.0, "duration_s": 60.0, "latency_ms": 49.0, "late_share": 0.0095},
            {"invocations_per_minute": 36_000.0, "duration_s": 20.0, "latency_ms": 450.0, "late_share": 0.6},
        ],
        "instance_type": "ml.g5.xlarge",
        **changes,
    }
    file = folder / "capacity.json"
    file.write_text(json.dumps(found), "utf-8")
    return file


@pytest.fixture
def recommendation(tmp_path: Path) -> Path:
    file = tmp_path / "recommendation.json"
    a_recommendation(CHOSEN, target="tensorrt", objective=OBJECTIVE).write_json(file)
    return file


def simulated(file: Path, *more: str, trace: str = "diurnal") -> int:
    runs = str(file.parent / "runs")
    return main(["simulate", "spellcheck", "--trace", trace, "--from", str(file), "--runs", runs, *QUICK, *more])


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refusal(file: Path, capsys: pytest.CaptureFixture[str], *more: str, trace: str = "diurnal") -> str:
    assert simulated(file, *more, trace=trace) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert not (file.parent / "runs").exists()
    return shown.err.strip()


def test_the_document_has_the_keys_that_are_promised(recommendation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(recommendation, "--json") == 0
    found = document(capsys)
    promised = ("minutes_over_objective", "requests", "late_share", "dropped", "instance_hours", "cost_usd")
    assert {*promised, "lower_bound_cost_usd", "policy", "timeline"} <= found.keys()
    assert found["policy"]["target_invocations_per_instance"] == 15_000
    assert (found["policy"]["scale_out_cooldown_s"], found["policy"]["scale_in_cooldown_s"]) == (300, 600)
    assert found["trace"]["name"] == "diurnal"
    assert len(found["trace"]["sha256"]) == 64
    assert found["requests"] == pytest.approx(1.9e8, rel=0.05)
    assert found["cost_usd"] == pytest.approx(found["instance_hours"] * 1.408)
    assert found["lower_bound_cost_usd"] < found["cost_usd"] < found["fixed_fleet"]["cost_usd"]
    assert found["fixed_fleet"]["instance_hours"] == 240
    assert found["today"] is None
    assert len(found["timeline"]["late_share"]) == 1440
    assert found["timeline"]["minutes_per_entry"] == 1


def test_the_same_seeds_have_the_same_result(recommendation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated(recommendation, "--json")
    first = document(capsys)
    simulated(recommendation, "--json")
    assert document(capsys) == first
    simulated(recommendation, "--json", "--first-seed", "7")
    assert document(capsys)["requests"] != first["requests"]


def test_the_table_compares_the_recommended_policy_with_a_fixed_and_an_ideal_fleet(
    recommendation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(recommendation) == 0
    shown = capsys.readouterr().out
    assert "spellcheck on diurnal, 1 day, 3 seeds: P99 ≤ 50 ms" in shown
    assert "as recommended now: 2 to 20, 15,000/min each" in shown
    assert "fixed fleet: 10 instances" in shown
    assert "ideal (knows the future)" in shown
    assert (
        "Within the tolerance: 0 of 3 seeds have more than 5 minutes over the objective; 0 may. 3 seeds: no share of "
        "seeds can be given; use --seeds 100.\n"
    ) in shown
    assert "99%" not in shown
    assert "The worst seed" not in shown, "it has no minute over the objective"
    assert re.search(
        r"Traffic: mean 13\d,\d{3} and peak 2\d\d,\d{3} invocations/min. The objective's peak: 240,000.", shown
    )
    assert "Model of an instance: an M/M/1 queue with the recommended capacity.\n" in shown
    assert (
        "Assumed: a new instance serves after 360 s (300 s to provision it; 60 s to load the model). An alarm sees a "
        "minute 120 s late. Change this with --provisioning-s, --model-load-s and --metric-delay-s."
    ) in shown
    assert not re.search(r" $", shown, re.MULTILINE), "no blanks pad the table's lines"


def test_a_share_of_seeds_is_given_from_100_seeds_on(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated(recommendation, "--seeds", "100", trace=waves(tmp_path))
    shown = capsys.readouterr().out
    assert re.search(r" over, 99% ", shown)
    assert "have more than 5 minutes over the objective; 1 may.\n" in shown
    simulated(recommendation, "--seeds", "1", trace=waves(tmp_path))
    assert "has more than 5 minutes over the objective; 0 may. 1 seed: no share" in capsys.readouterr().out
    for folder in (tmp_path / "runs").iterdir():
        main(["report", str(folder), "--format", "markdown"])
        one_seed = json.loads((folder / "simulation.json").read_text("utf-8"))["seeds"] == 1
        assert ("1 seed: no share of seeds can be given" in capsys.readouterr().out) == one_seed


def test_a_measured_cold_start_takes_the_place_of_the_assumption_and_an_option_that_of_both(
    recommendation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start on this machine tells of no provisioning, which stays assumed."""
    here = ColdStart(
        total_s=3.321,
        starts=3,
        measured_on="local",
        machine="two cores",
        instance_type="ml.g5.xlarge",
        archive_sha256="a" * 64,
        measured_at="2026-11-23T09:30:00+00:00",
    )
    plain = Recommendation.from_json(recommendation)
    plain.model_copy(update={"cold_start": here}).write_json(recommendation)
    simulated(recommendation, "--json")
    timing = document(capsys)["timing"]
    words = "measured in 3 starts on two cores, 2026-11-23"
    assert (timing["provisioning_s"], timing["model_load_s"]) == (300.0, 3.321)
    assert timing["known_by"] == {"model_load_s": words}
    (run,) = (recommendation.parent / "runs").iterdir()
    assert json.loads((run / "simulation.json").read_text("utf-8"))["assumed"] == {"model_load_s": words}
    simulated(recommendation)
    assert (
        f"Assumed: a new instance serves after 303 s (300 s to provision it; 3.32 s to load the model, {words})."
        in capsys.readouterr().out
    )
    simulated(recommendation, "--model-load-s", "45", "--json")
    timing = document(capsys)["timing"]
    assert (timing["model_load_s"], timing["known_by"]) == (45.0, {})
    there = here.model_copy(update={"provisioning_s": 210.0, "measured_on": "sagemaker"})
    plain.model_copy(update={"cold_start": there}).write_json(recommendation)
    simulated(recommendation, "--json")
    timing = document(capsys)["timing"]
    assert (timing["provisioning_s"], timing["model_load_s"]) == (210.0, 3.321)
    assert set(timing["known_by"]) == {"provisioning_s", "model_load_s"}


def test_another_policy_is_compared_with_todays(recommendation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--target-invocations", "28000", "--min-instances", "2", "--scale-out-cooldown-s", "0", "--json")
    assert simulated(recommendation, *asked) == 1
    found = document(capsys)
    assert found["policy"]["target_invocations_per_instance"] == 28_000
    assert found["today"]["policy"]["target_invocations_per_instance"] == 15_000
    assert found["cost_usd"] < found["today"]["cost_usd"]
    assert (found["kept"], found["today"]["kept"]) == (False, True)


def waves(folder: Path) -> str:
    """Writes a trace of a gentle hour, in which the search is quick."""
    file = folder / "waves.csv"
    file.write_text("".join(f"{60 * minute},{3000 + 10 * minute}\n" for minute in range(60)), "utf-8")
    return str(file)


@pytest.fixture
def few_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the search itself have fewer seeds."""
    monkeypatch.setattr(optimise, "SEARCH_SEEDS", 6)


@pytest.mark.usefixtures("few_seeds")
def test_the_policy_that_is_found_is_written_into_the_recommendation(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(recommendation, *OPTIMISE, "--json", trace=waves(tmp_path)) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert f"Written: {recommendation}. The next `cdk deploy` uses it.\n" in shown.err
    assert "It replaces" not in shown.err
    assert shown.err.endswith("Next: review it, then run `cdk deploy SpellcheckStack`.\n")
    assert found["kept"]
    assert found["cost_usd"] < found["today"]["cost_usd"]
    assert [each["cost_usd"] for each in found["frontier"]] == sorted(each["cost_usd"] for each in found["frontier"])
    written = Recommendation.from_json(recommendation).recommended
    assert written is not None
    assert written.autoscaling is not None
    assert written.autoscaling.simulated is not None
    assert found["decided_on"] == {"seeds": 3, "first_seed": 0}
    assert found["confirmed_on"]["seeds"] == written.autoscaling.simulated.confirmed_on_seeds == 89
    assert written.autoscaling.simulated.trace_sha256 == found["trace"]["sha256"]
    assert written.autoscaling.target_invocations_per_instance == found["policy"]["target_invocations_per_instance"]
    simulated(recommendation, "--json", trace=waves(tmp_path))
    assert document(capsys)["policy"] == found["policy"], "it is the recommended policy now"


@pytest.mark.usefixtures("few_seeds")
def test_a_second_search_names_what_it_replaces(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated(recommendation, *OPTIMISE, trace=waves(tmp_path))
    other = tmp_path / "other.csv"
    sale = [1500 + 10 * minute + (2000 if 20 < minute < 25 else 0) for minute in range(60)]
    other.write_text("".join(f"{60 * minute},{rate}\n" for minute, rate in enumerate(sale)), "utf-8")
    capsys.readouterr()
    assert simulated(recommendation, *OPTIMISE, trace=str(other)) == 0
    assert "It replaces the policy that was chosen on waves.csv.\n" in capsys.readouterr().err


def test_rows_of_the_same_bounds_show_the_settings_that_differ() -> None:
    plain = Policy(target_invocations_per_instance=4859, min_capacity=2, max_capacity=4)
    scheduled = replace(plain, scheduled_minimums=(ScheduledMinimum(schedule="cron(0 8 * * ? *)", min_capacity=3),))
    quick = replace(plain, scale_out_cooldown_s=0, scheduled_minimums=scheduled.scheduled_minimums)
    words = "2 to 4, 4,859/min each"
    assert rows_in_words([plain, replace(plain, max_capacity=9)]) == [words, "2 to 9, 4,859/min each"]
    assert rows_in_words([scheduled, plain, plain]) == [
        f"{words}, at least 3 at cron(0 8 * * ? *)",
        f"{words}, no scheduled minimums",
        f"{words}, no scheduled minimums",
    ]
    assert rows_in_words([scheduled, quick]) == [
        f"{words}, cooldowns of 300 s out and 600 s in",
        f"{words}, cooldowns of 0 s out and 600 s in",
    ]


@pytest.mark.usefixtures("few_seeds")
def test_a_search_logs_its_progress_where_there_is_no_terminal(
    recommendation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "LOG_EVERY_S", 0.0)
    simulated(recommendation, *OPTIMISE, trace=waves(tmp_path))
    shown = capsys.readouterr().err
    assert shown.startswith("Searching policies on 24 seeds each. 89 held-out seeds confirm the choice.\n")
    assert re.search(r"^Simulated 5\d\d seeds in \d+ s\.$", shown, re.MULTILINE)


@pytest.mark.usefixtures("few_seeds")
def test_without_a_recommendation_or_a_policy_that_keeps_the_tolerance_nothing_is_written(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recommendation.read_bytes()
    asked = ("--optimise", "--tolerance-minutes", "0", "--max-instances", "4")
    assert refusal(recommendation, capsys, *asked) == (
        "--optimise chooses the policy itself. Leave out the options of a policy."
    )
    assert simulated(capacity_json(tmp_path), *OPTIMISE, trace=waves(tmp_path)) == 0
    shown = capsys.readouterr()
    assert "Nothing was written: --from names a measurement, not a recommendation." in shown.err
    assert "less than the recommended policy, which is within the tolerance, too." in shown.out
    assert "Cost against risk, on the search's seeds" in shown.out
    assert (
        "Decided on 3 seeds and confirmed on 89 held-out seeds: 0 of them exceeded 2.5 minutes over the objective."
    ) in shown.out
    assert recommendation.read_bytes() == before


@pytest.mark.usefixtures("few_seeds")
def test_a_policy_that_is_not_confirmed_is_not_written(
    recommendation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recommended target is far too high for the trace, so that it cannot stay."""
    monkeypatch.setattr(optimise.Search, "_failed", lambda *_: 99)
    autoscaling = Autoscaling(min_capacity=2, max_capacity=20, target_invocations_per_instance=60_000.0)
    candidate = CHOSEN.model_copy(update={"autoscaling": autoscaling})
    a_recommendation(candidate, target="tensorrt", objective=OBJECTIVE).write_json(recommendation)
    before = recommendation.read_bytes()
    assert simulated(recommendation, *OPTIMISE, trace=waves(tmp_path)) == 1
    shown = capsys.readouterr()
    assert shown.err.endswith("Nothing was written: no policy that was tried was confirmed on held-out seeds.\n")
    assert "Decided on 3 seeds. No other policy was confirmed on held-out seeds." in shown.out
    assert recommendation.read_bytes() == before


def test_the_run_is_kept_in_a_folder(recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(recommendation, "--json", "--target-invocations", "20000", trace=waves(tmp_path)) == 0
    shown = capsys.readouterr()
    (folder,) = (tmp_path / "runs").iterdir()
    assert shown.err.endswith(f"Kept in {folder}. `python -m inference_recommender report {folder}` draws it.\n")
    kept = json.loads((folder / "simulation.json").read_text("utf-8"))
    assert {**kept, **json.loads(shown.out)} == kept, "the document of --json is part of it"
    assert [each["name"] for each in kept["policies"]] == ["asked for", "as recommended now", "fixed fleet"]
    assert kept["day"]["seed"] == kept["timeline"]["seed"]
    assert kept["day"]["minutes"] == 60
    courses = [each["day"] for each in kept["policies"]]
    assert {len(each["late_shares"]) for each in courses} == {len(kept["day"]["requests_per_second"])} == {60}
    assert courses[0]["instance_hours"] < courses[1]["instance_hours"]
    assert courses[2]["instances_serving"] == [10.0] * 60
    lines = (folder / "outcomes.csv").read_text("utf-8").splitlines()
    assert len(lines) == 1 + 3 * 3
    simulated(recommendation, trace=waves(tmp_path))
    assert len(list((tmp_path / "runs").iterdir())) == 2


@pytest.mark.parametrize("whole", [3, 1])
def test_ctrl_c_keeps_the_seeds_that_every_policy_was_simulated_with(
    whole: int,
    recommendation: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two seeds of two policies are whole after two calls of the workers."""
    before, asked = seeds.Here.run, 0

    def interrupted(self: seeds.Here, *arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked > whole:
            raise KeyboardInterrupt
        return before(self, *arguments)

    monkeypatch.setattr(seeds.Here, "run", interrupted)
    monkeypatch.setattr(simulate, "SEEDS_IN_TURN", 2)
    assert simulated(recommendation, trace=waves(tmp_path)) == 130
    said = " ".join(capsys.readouterr().err.split())
    if whole < 2:
        assert said == "Interrupted before the first results were complete: there is nothing to keep."
        assert not (tmp_path / "runs").exists()
        return
    (folder,) = (tmp_path / "runs").iterdir()
    assert said.endswith(f"Interrupted: 2 of 3 seeds are complete. They are kept in {folder}.")
    assert main(["report", str(folder), "--format", "json"]) == 0
    report = document(capsys)
    assert (report["verdict"], report["decision"]) == (
        "unknown",
        "No conclusion: the simulation was interrupted.",
    )
    (policies,) = (table["rows"] for table in report["tables"] if table["name"] == "policies")
    assert [(row["policy"], row["seeds"]) for row in policies[:2]] == [
        ("as recommended now", 2),
        ("fixed fleet", 2),
    ]


@pytest.mark.usefixtures("few_seeds")
def test_ctrl_c_keeps_the_frontier_of_a_search(
    recommendation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(optimise.Search, "_decided", interrupted)
    before = recommendation.read_bytes()
    assert simulated(recommendation, *OPTIMISE, trace=waves(tmp_path)) == 130
    (folder,) = (tmp_path / "runs").iterdir()
    kept = json.loads((folder / "simulation.json").read_text("utf-8"))
    assert kept["policies"][0]["name"] == "best so far"
    numbers = range(1, len(kept["policies"]))
    assert [each["name"] for each in kept["policies"][1:]] == [f"frontier {number}" for number in numbers]
    assert (kept["complete"], kept["safe"], kept["today"]) == (False, False, None)
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(rf" Interrupted: \d+ policies of the search are complete\. They are kept in {folder}\.$", said)
    assert recommendation.read_bytes() == before


def test_of_a_week_the_worst_day_is_kept(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The third of three days has a sale that comes too fast."""
    file = tmp_path / "days.csv"
    rates = [500 + (4500 if minute > 2 * 1440 + 600 else 0) for minute in range(3 * 1440)]
    file.write_text("".join(f"{60 * minute},{rate}\n" for minute, rate in enumerate(rates)), "utf-8")
    assert simulated(recommendation, "--seeds", "1", trace=str(file)) == 1
    (folder,) = (tmp_path / "runs").iterdir()
    kept = json.loads((folder / "simulation.json").read_text("utf-8"))
    assert (kept["day"]["start"], kept["day"]["minutes"]) == ("1970-01-03T00:00:00+00:00", 1440)
    assert kept["day"]["minutes_per_entry"] == 3
    assert kept["policies"][0]["day"]["minutes_over_objective"] == kept["policies"][0]["minutes_over_objective"] > 0
    capsys.readouterr()


def test_a_recorded_trace_and_a_longer_shape(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "day.csv"
    trace.write_text("".join(f"{60 * minute},{3000 + minute}\n" for minute in range(120)), "utf-8")
    assert simulated(recommendation, "--json", trace=str(trace)) == 0
    found = document(capsys)
    assert (found["trace"]["name"], found["trace"]["minutes"]) == ("day.csv", 120)
    assert found["trace"]["start"] == "1970-01-01T00:00:00+00:00"
    simulated(recommendation, "--json", "--days", "3")
    assert document(capsys)["timeline"]["minutes_per_entry"] == 3


def test_a_measurement_is_sized_and_simulated_with_its_probes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(capacity_json(tmp_path), "--region", "us-east-1", "--json") == 0
    found = document(capsys)
    assert found["curve"]["basis"] == "3 probes with open-loop arrivals"
    assert found["curve"]["measured_up_to"] == 36_000
    assert found["price_per_hour_usd"] == pytest.approx(1.408)


def test_the_probes_are_those_of_the_recommendations_own_run_wherever_the_output_goes(
    recommendation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    probe = Probe(invocations_per_minute=33_000.0, duration_s=30.0, latency_ms=80.0, late_share=0.03)
    found = Capacity(invocations_per_minute=30_000.0, percentile="P99", limit_ms=50.0, reason="found", probes=(probe,))
    run = RunFolder(recommendation.parent / "runs" / "job-1")
    run.keep_recommendation(a_recommendation(CHOSEN, target="tensorrt", objective=OBJECTIVE))
    run.keep_measurements(
        (
            Measurement(
                instance_type="ml.g5.xlarge",
                endpoint_name="e",
                max_invocations_per_minute=None,
                model_latency_ms=None,
                open_loop=found,
            ),
        )
    )
    beside = run.path / "recommendation.json"
    for file, runs in ((recommendation, "runs"), (recommendation, "elsewhere"), (beside, "elsewhere")):
        simulated(file, "--json", "--runs", str(tmp_path / runs))
        assert document(capsys)["curve"]["basis"] == "1 probe with open-loop arrivals"


def test_a_recommendation_without_its_run_is_simulated_with_a_warning(
    recommendation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated(recommendation, "--json")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["curve"]["basis"] == "an M/M/1 queue with the recommended capacity"
    assert shown.err.startswith(f"{NO_RUN}\n")


def test_a_load_beyond_anything_measured_is_said_to_be_extrapolated(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "storm.csv"
    trace.write_text("".join(f"{60 * minute},{8_000 if minute else 800}\n" for minute in range(30)), "utf-8")
    assert simulated(recommendation, "--json", "--max-instances", "10", trace=str(trace)) == 1
    shown = capsys.readouterr()
    beyond = json.loads(shown.out)["extrapolated"]
    assert beyond["times"] == pytest.approx(4, rel=0.05)
    assert (
        f"For {beyond['minutes']:,.1f} minutes an instance gets up to "
        f"{beyond['highest_invocations_per_minute_and_instance']:,.0f} invocations/min. Nothing above 30,000 was "
        "measured. There an instance is taken to answer 30,000/min."
    ) in shown.err


def test_a_missing_price_is_said_and_missing_in_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated(capacity_json(tmp_path), "--json")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["cost_usd"] is None
    assert "The price of an instance is not known: The job reported no price, and its region is unknown." in shown.err


BAD_TRACES = {
    "": ": has no line with a rate; a trace needs at least 2. A line is a time and requests per second: "
    "2026-11-22T13:00:00Z,41.5.",
    "60,1\n0,2\n": ":2: is not after the line before it; sort the trace by time.",
    "0,1\n60,-2\n": ":2: got -2 requests per second; a rate cannot be negative.",
    "2026-11-22T13:00:00Z,1\n2026-11-22T13:01:00+02:00,1\n": ":2: time zones are mixed: +0200, after +0000 in line 1. "
    "Write all times in UTC.",
}


def test_bad_input_is_refused_in_a_sentence(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines of a trace are tested beside their reader."""
    shapes = "diurnal, weekly, flash-sale, steady-growth, zone-lost, retry-storm"
    assert refusal(recommendation, capsys, trace="black-friday") == (
        f"--trace: 'black-friday' is neither a file nor a shape. Shapes: {shapes}."
    )
    empty = tmp_path / "empty.csv"
    empty.write_text("time,rate\n", "utf-8")
    assert refusal(recommendation, capsys, trace=str(empty)).startswith(f"{empty}: has no line with a rate;")
    assert refusal(recommendation, capsys, "--days", "2", trace=str(empty)) == (
        "--days: sets the length of a shape. A file has its own length."
    )
    assert refusal(recommendation, capsys, "--region", "us-east-1") == (
        "--region: only if --from names a measurement. A recommendation has its own price."
    )
    assert refusal(recommendation, capsys, "--min-instances", "30") == (
        "The policy's minimum of 30 instances is above its maximum of 20. Change --min-instances or --max-instances."
    )
    for lines, said in BAD_TRACES.items():
        file = tmp_path / "bad.csv"
        file.write_text(lines, "utf-8")
        assert refusal(recommendation, capsys, trace=str(file)) == f"{file}{said}"
    slow = [{"invocations_per_minute": 60.0, "duration_s": 20.0, "latency_ms": 61.5, "late_share": 0.9}]
    nothing = capacity_json(tmp_path, max_invocations_per_minute=0.0, max_invocations_interval=None, probes=slow)
    assert refusal(nothing, capsys) == (
        "No fleet meets P99 ≤ 50 ms: the lowest rate of the open-loop search missed it (P99 61.5 ms). Raise "
        "objective.model_latency_ms in workload.toml, or measure a faster target."
    )


@pytest.mark.parametrize("rate", [900, 9_000])
def test_a_trace_of_another_size_is_refused_with_the_commands_that_size_for_it(
    rate: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "busy.csv"
    trace.write_text("".join(f"{60 * minute},{rate - minute}\n" for minute in range(60)), "utf-8")
    measured = capacity_json(tmp_path)
    sized = f"--from {measured} --peak-invocations-per-minute {60 * rate}"
    assert refusal(measured, capsys, trace=str(trace)) == (
        f"busy.csv has a peak of {60 * rate:,} invocations/min (mean {60 * rate - 1770:,}), and the objective's "
        "peak is 240,000. They differ by more than a factor of 2, so the fleet has the wrong size for this trace. Size "
        f"a fleet for it: `python -m inference_recommender size {sized}`. Then simulate with {sized}."
    )
    assert main(["size", *sized.split(), "--workload", "spellcheck", "--json"]) == 0
    needed = document(capsys)["candidates"][0]["instance_count"]
    assert simulated(measured, "--json", *sized.split()[2:], trace=str(trace)) in (0, 1)
    hours = document(capsys)["fixed_fleet"]["instance_hours"]
    assert hours == max(needed, 2), "of an hour, with the minimum in production"


def test_another_peak_goes_with_a_measurement(recommendation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(recommendation, capsys, "--peak-invocations-per-minute", "9000") == (
        "--peak-invocations-per-minute sizes the fleet again. Name the measurement with --from, such as the "
        "recommendation's run: --from runs/NAME."
    )


def test_a_flash_sale_is_never_of_another_size(recommendation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(recommendation, trace="flash-sale") in (0, 1)
    capsys.readouterr()


def test_gaps_are_filled_as_the_option_says(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gaps.csv"
    file.write_text("".join(f"{60 * minute},3000\n" for minute in range(60) if minute % 10 != 5), "utf-8")
    assert refusal(recommendation, capsys, trace=str(file)) == (
        f"{file}: lines are 60 s apart, but 6 come at another time: line 6 after 120 s, line 15 after 120 s, line 24 "
        "after 120 s, line 33 after 120 s, line 42 after 120 s and 1 more. Fill the gaps with --fill-gaps zero if "
        "there was no traffic, or with --fill-gaps last if the monitoring failed."
    )
    for fill, mean in (("zero", 0.9 * 180_000), ("last", 180_000)):
        assert simulated(recommendation, "--json", "--fill-gaps", fill, trace=str(file)) == 0
        trace = document(capsys)["trace"]
        assert (trace["minutes"], trace["mean_invocations_per_minute"]) == (60, pytest.approx(mean))
    odd = tmp_path / "odd.csv"
    odd.write_text("0,1\n60,1\n120,1\n210,1\n", "utf-8")
    assert simulated(recommendation, "--fill-gaps", "zero", trace=str(odd)) == 2
    assert capsys.readouterr().err.endswith(
        "line 4 after 90 s. Correct their times: --fill-gaps adds whole lines only.\n"
    )
    assert simulated(recommendation, "--fill-gaps", "zero") == 2
    assert capsys.readouterr().err == (
        "--fill-gaps: goes with a CSV file. Shapes and CloudWatch's minutes have no gaps.\n"
    )


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_computed(
    recommendation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def computed(*_: object) -> None:
        pytest.fail("it was computed")

    monkeypatch.setattr(simulate, "_simulated", computed)
    file = tmp_path / "a-file"
    file.write_text("", "utf-8")
    assert simulated(recommendation, "--runs", str(file)) == 2
    assert capsys.readouterr().err == (
        f"--runs: {file} cannot be written: Not a directory. Name a folder that can be written.\n"
    )


def test_a_recommendation_that_cannot_be_simulated_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recommendation.json"
    assert refusal(file, capsys) == (
        f"{file} does not exist, so there is no policy to simulate. Measure one with `python -m inference_recommender "
        "run spellcheck`, or name a measurement with --from PATH."
    )
    a_recommendation(CHOSEN, target="tensorrt").write_json(file)
    assert refusal(file, capsys) == (
        f"{file}: objective: was measured for P90 ≤ 50 ms, and {FOLDER.file} now says P99 ≤ 50 ms. Measure again."
    )
    missed = CHOSEN.model_copy(update={"reason": "Misses P99 model latency ≤ 50 ms: 80 ms at 60 invocations/min."})
    a_recommendation(missed, target="tensorrt", objective=OBJECTIVE, recommended=None).write_json(file)
    assert refusal(file, capsys) == (
        f"{file} recommends no fleet, so there is nothing to simulate. Measure again.\n"
        "ml.g5.xlarge: Misses P99 model latency ≤ 50 ms: 80 ms at 60 invocations/min."
    )
    a_recommendation(CHOSEN, target="tensorrt", objective=OBJECTIVE, workload="query_intent").write_json(file)
    assert refusal(file, capsys) == f"{file}: workload: is 'query_intent', and 'spellcheck' is simulated."


def test_a_service_of_ecs_is_simulated_with_its_capacity_provider(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    intent = load_workload("query_intent").workload.latency_objective
    file = capacity_json(tmp_path, latency_limit_ms=intent.model_latency_ms, percentile=intent.percentile)
    runs = ("--runs", str(tmp_path / "runs"))
    main(["simulate", "query_intent", "--trace", "diurnal", "--from", str(file), "--seeds", "2", *runs, "--json"])
    assert document(capsys)["timing"]["hosts"] == "ecs"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seeds", "0"), "argument --seeds: got '0', but it must be a whole number above 0."),
        (("--target-invocations", "0"), "argument --target-invocations: got '0', but it must be more than 0."),
        (("--first-seed", "x"), "argument --first-seed: got x. Allowed: a whole number."),
        (("--provisioning-s", "-1"), "argument --provisioning-s: got -1. Allowed: a number from 0 on."),
        (("--confidence", "1"), "argument --confidence: got 1. Allowed: between 0 and 1."),
    ],
)
def test_numbers_of_options_are_checked(
    arguments: tuple[str, ...], said: str, recommendation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        simulated(recommendation, *arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
