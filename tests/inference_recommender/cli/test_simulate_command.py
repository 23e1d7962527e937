"""`simulate` on the command line: traces and shapes, the recommended policy and others, and each bad input."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.__main__ import main
from inference_recommender.capacity.probe import Capacity, Probe
from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate import policy_search, sized_service
from inference_recommender.simulate.simulation_file import Simulation
from tests.builders import a_candidate, a_measurement, a_recommendation, a_run_folder
from workloads import Autoscaling, ColdStart, Recommendation, SageMakerEndpointHosting, load_workload

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


def searched_run(folder: Path, workload: str = "spellcheck", **changes: Any) -> Path:
    """Writes a run whose open-loop search found 30,000 a minute."""
    members = {
        "invocations_per_minute": 30_000.0,
        "interval": (28_000.0, 32_000.0),
        "latency_ms": 49.0,
        "percentile": OBJECTIVE.percentile,
        "limit_ms": OBJECTIVE.model_latency_ms,
        "reason": "found",
        "probes": (
            Probe(invocations_per_minute=6_000.0, duration_s=20.0, latency_ms=12.0, late_share=0.0001),
            Probe(invocations_per_minute=30_000.0, duration_s=60.0, latency_ms=49.0, late_share=0.0095),
            Probe(invocations_per_minute=36_000.0, duration_s=20.0, latency_ms=450.0, late_share=0.6),
        ),
        **changes,
    }
    measured = a_measurement(None, instance_type="ml.g5.xlarge", open_loop=Capacity(**members))
    return a_run_folder(folder / "search", measured, workload=workload).path


@pytest.fixture
def recommendation(tmp_path: Path) -> Path:
    file = tmp_path / "recommendation.json"
    a_recommendation(CHOSEN, target="tensorrt", objective=OBJECTIVE).write_json(file)
    return file


def simulated(file: Path, *more: str, trace: str = "diurnal") -> int:
    runs = str(file.parent / "runs")
    return main(
        ["simulate", "spellcheck", "--trace", trace, "--from", str(file), "--runs", runs, "--seeds", "3", *more]
    )


def document(capsys: pytest.CaptureFixture[str]) -> Simulation:
    return Simulation.model_validate_json(capsys.readouterr().out)


def waves(folder: Path) -> str:
    """Writes a trace of a gentle hour, in which the search is quick."""
    file = folder / "waves.csv"
    file.write_text("".join(f"{60 * minute},{3000 + 10 * minute}\n" for minute in range(60)), "utf-8")
    return str(file)


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


def test_the_document_has_each_policy_with_its_figures(
    recommendation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(recommendation, "--json") == 0
    first = document(capsys)
    recommended, fixed = first.policies
    assert (recommended.name, fixed.name) == ("recommended", "fixed fleet")
    assert recommended.policy.target_invocations_per_instance == 15_000
    assert (recommended.policy.scale_out_cooldown_s, recommended.policy.scale_in_cooldown_s) == (300, 600)
    assert (first.trace.name, len(first.trace.sha256)) == ("diurnal", 64)
    assert recommended.requests == pytest.approx(1.9e8, rel=0.05)
    assert recommended.cost_usd == pytest.approx(recommended.instance_hours * 1.408)
    assert recommended.lower_bound_instance_hours < recommended.instance_hours < fixed.instance_hours == 240
    simulated(recommendation, "--json")
    assert document(capsys).policies == first.policies, "the same seeds give the same result"


def test_the_table_compares_the_recommended_policy_with_a_fixed_and_an_ideal_fleet(
    recommendation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(recommendation) == 0
    shown = capsys.readouterr().out
    lines = " ".join(shown.split())
    assert lines.startswith("spellcheck: P99 ≤ 50 ms on diurnal (1 day, 3 seeds), at most 5 minutes over it in 3 seeds")
    for cells in (
        "recommended 2 to 20, 15,000/min each 0.0",
        "fixed fleet 10 instances 0.0",
        "ideal – 0.0",
    ):
        assert cells in lines
    assert "Caution: 3 seeds: no share of seeds can be given; use --seeds 100." in lines
    assert f"Caution: {NO_RUN}" in lines
    assert re.search(r"Traffic: mean 13\d,\d{3} and peak 2\d\d,\d{3} invocations/min.", lines)
    assert "Model of an instance: an M/M/1 queue with the recommended capacity." in lines
    assert (
        "A new instance serves after 360 s (300 s provisioning, assumed; 60 s model load, assumed). An alarm sees a "
        "minute 120 s late. [simulation] in workload.toml changes this."
    ) in lines
    assert lines.endswith(
        "Keep the recommended policy, 2 to 20, 15,000/min each, cooldowns of 300 s out and 600 s in: 0 of 3 seeds have "
        "more than 5 minutes over the objective; 0 may."
    )
    assert not re.search(r" $", shown, re.MULTILINE), "no blanks pad the table's lines"


def test_a_share_of_seeds_needs_100_seeds(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated(recommendation, "--seeds", "100", trace=waves(tmp_path))
    shown = capsys.readouterr().out
    assert "in 99% of seeds" in shown
    assert shown.endswith("0 of 100 seeds have more than 5 minutes over the objective; 1 may.\n")
    simulated(recommendation, "--seeds", "1", trace=waves(tmp_path))
    shown = capsys.readouterr().out
    assert "99%" not in shown
    assert shown.endswith("0 of 1 seed has more than 5 minutes over the objective; 0 may.\n")


def test_a_measured_cold_start_replaces_the_assumption_and_a_setting_replaces_both(
    recommendation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start on this machine does not measure provisioning, which stays assumed."""
    here = ColdStart(
        total_s=3.321,
        starts=3,
        measured_on="local",
        machine="two cores",
        instance_type="ml.g5.xlarge",
        archive_sha256="a" * 64,
        measured_at="2026-11-23T09:30:00+00:00",
    )
    there = here.model_copy(update={"provisioning_s": 210.0, "measured_on": "sagemaker"})
    words = "measured in 3 starts on two cores, 2026-11-23"
    plain = Recommendation.from_json(recommendation)
    for cold_start, setting, times, sources in (
        (here, (), (300.0, 3.321), {"model_load_s": words}),
        (
            here,
            ("--set", "simulation.model_load_s=45.0"),
            (300.0, 45.0),
            {"model_load_s": "[simulation] model_load_s"},
        ),
        (there, (), (210.0, 3.321), {"provisioning_s": words, "model_load_s": words}),
    ):
        plain.model_copy(update={"cold_start": cold_start}).write_json(recommendation)
        simulated(recommendation, "--json", *setting)
        timing = document(capsys).timing
        assert ((timing.provisioning_s, timing.model_load_s), timing.known_by) == (times, sources)


def test_another_policy_is_compared_with_the_recommended_one(
    recommendation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(recommendation, "--set", "policy.target_invocations_per_instance=28000.0", "--json") == 1
    found = document(capsys)
    requested, recommended, _ = found.policies
    assert (requested.name, requested.policy.target_invocations_per_instance) == ("requested", 28_000)
    assert recommended.policy.target_invocations_per_instance == 15_000
    assert requested.instance_hours < recommended.instance_hours
    assert (found.safe, requested.is_within_tolerance, recommended.is_within_tolerance) == (False, False, True)


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
    chosen, recommended = found.policies[:2]
    assert (chosen.name, chosen.is_within_tolerance) == ("chosen", True)
    assert chosen.instance_hours < recommended.instance_hours
    hours = [each.instance_hours for each in found.policies if each.on_frontier]
    assert hours == sorted(hours)
    written = Recommendation.from_json(recommendation).recommended
    assert written is not None
    assert written.autoscaling is not None
    assert written.autoscaling.simulated is not None
    assert found.search is not None
    assert found.search.confirmed_on_seeds == written.autoscaling.simulated.confirmed_on_seeds == 89
    assert written.autoscaling.simulated.trace_sha256 == found.trace.sha256
    simulated(recommendation, "--json", trace=waves(tmp_path))
    assert document(capsys).judged.policy == chosen.policy, "it is the recommended policy now"
    other = tmp_path / "other.csv"
    sale = [1500 + 10 * minute + (2000 if 20 < minute < 25 else 0) for minute in range(60)]
    other.write_text("".join(f"{60 * minute},{rate}\n" for minute, rate in enumerate(sale)), "utf-8")
    assert simulated(recommendation, *OPTIMISE, trace=str(other)) == 0
    assert "It replaces the policy that was chosen on waves.csv.\n" in capsys.readouterr().err


@pytest.mark.usefixtures("few_seeds")
def test_a_search_over_a_measurement_prints_its_frontier_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(searched_run(tmp_path), *OPTIMISE, trace=waves(tmp_path)) == 0
    shown = capsys.readouterr()
    assert re.match(r"Searching policies on \d+ seeds each. 89 held-out seeds confirm the choice.\n", shown.err)
    assert shown.err.endswith("Nothing was written: --from names a measurement, not a recommendation.\n")
    assert "cheaper than the recommended policy, which is within the tolerance too." in shown.out
    assert re.search(
        r"Chosen from \d+ policies. Confirmed on 89 held-out seeds: 0 had more than half of the tolerated", shown.out
    )


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


def test_the_result_is_in_a_folder_of_its_own(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        simulated(
            recommendation, "--json", "--set", "policy.target_invocations_per_instance=20000.0", trace=waves(tmp_path)
        )
        == 0
    )
    shown = capsys.readouterr()
    (folder,) = (tmp_path / "runs").iterdir()
    assert shown.err.endswith(f"Kept in {folder}. `python -m inference_recommender report {folder}` draws it.\n")
    stored = Simulation.from_json(folder / "simulation.json")
    assert stored == Simulation.model_validate_json(shown.out)
    assert [each.name for each in stored.policies] == ["requested", "recommended", "fixed fleet"]
    assert len(stored.day.serving) == len(stored.day.desired) == 60
    simulated(recommendation, trace=waves(tmp_path))
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_the_worst_day_of_a_longer_trace_is_stored(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The third of three days has a sale that comes too fast."""
    file = tmp_path / "days.csv"
    rates = [500 + (4500 if minute > 2 * 1440 + 600 else 0) for minute in range(3 * 1440)]
    file.write_text("".join(f"{60 * minute},{rate}\n" for minute, rate in enumerate(rates)), "utf-8")
    assert simulated(recommendation, "--seeds", "1", "--json", trace=str(file)) == 1
    found = document(capsys)
    assert (found.trace.name, found.trace.minutes) == ("days.csv", 3 * 1440)
    assert (found.day.start, len(found.day.serving)) == ("1970-01-03T00:00:00+00:00", 1440)
    assert found.judged.minutes_over_objective > 0
    assert found.day.fewest[599] < found.day.fewest[601]


def test_a_measurement_is_sized_and_simulated_with_its_probes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(searched_run(tmp_path), "--set", "simulation.region=us-east-1", "--json", "--days", "2") == 0
    found = document(capsys)
    assert found.curve.basis == "3 probes with open-loop arrivals"
    assert found.curve.measured_up_to * 60 == 36_000
    assert found.price_per_hour_usd == pytest.approx(1.408)
    assert found.trace.minutes == 2 * 1440


def test_a_load_above_all_measured_rates_is_marked_as_extrapolated(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "storm.csv"
    trace.write_text("".join(f"{60 * minute},{8_000 if minute else 800}\n" for minute in range(30)), "utf-8")
    assert simulated(recommendation, "--set", "policy.max_capacity=10", trace=str(trace)) == 1
    lines = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"Caution: Extrapolated: for \d+\.\d minutes an instance gets up to 1[12]\d,\d{3} invocations/min. "
        r"Nothing above 30,000 was measured. The model answers at most 30,000/min there.",
        lines,
    )


def test_a_missing_price_is_a_caution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated(searched_run(tmp_path))
    assert "Caution: The price of an instance is unknown: The job reported no price" in capsys.readouterr().out


def test_a_policy_on_concurrent_requests_is_not_simulated(recommendation: Path) -> None:
    folder = load_workload("spellcheck")
    hosting = folder.workload.hosting
    assert isinstance(hosting, SageMakerEndpointHosting)
    scaling = hosting.scaling.model_copy(update={"concurrent_requests_per_instance": 8.0})
    hosting = hosting.model_copy(update={"scaling": scaling})
    folder.workload = folder.workload.model_copy(update={"hosting": hosting})
    assert sized_service.sized_service(folder, recommendation).cautions == (NO_RUN, sized_service.CONCURRENCY)


SHAPES = "diurnal, weekly, flash-sale, steady-growth, zone-lost"
OTHER_TIMES = (
    "lines are 60 s apart, but 6 come at another time: line 6 after 120 s, line 15 after 120 s, line 24 after 120 s, "
    "line 33 after 120 s, line 42 after 120 s and 1 more."
)
REFUSALS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("black-friday", (), f"--trace: 'black-friday' is neither a file nor a shape. Shapes: {SHAPES}."),
    ("waves.csv", ("--days", "2"), "--days: sets the length of a shape. A file has its own length."),
    (
        "diurnal",
        ("--set", "policy.min_capacity=30"),
        "--set policy: (document): min_capacity 30 exceeds max_capacity 20.",
    ),
    (
        "diurnal",
        ("--set", "policy.target_invocations_per_instance=0.0"),
        "--set policy: target_invocations_per_instance: got 0.0. Input should be greater than 0.",
    ),
    (
        "diurnal",
        ("--optimise", "--set", "policy.max_capacity=4"),
        "--optimise chooses the policy itself. Leave out --set policy.",
    ),
    (
        "diurnal",
        ("--set", "objective.peak_invocations_per_minute=9000"),
        "--set objective.KEY=VALUE sizes the fleet again. Name the measurement with --from, such as the "
        "recommendation's run: --from runs/NAME.",
    ),
    ("diurnal", ("--set", "sizing.headroom=1"), "--set: got 'sizing.headroom=1'. Allowed: simulation.KEY=VALUE."),
    (
        "gaps.csv",
        (),
        f"gaps.csv: {OTHER_TIMES} Fill the gaps with --set simulation.fill_gaps=zero if there was no traffic, or =last "
        "if the monitoring failed.",
    ),
)


@pytest.mark.parametrize(("trace", "options", "message"), REFUSALS, ids=[each[2][:40] for each in REFUSALS])
def test_refusals(
    trace: str,
    options: tuple[str, ...],
    message: str,
    recommendation: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    waves(tmp_path)
    gaps(tmp_path)
    assert refusal(recommendation, capsys, *options, trace=trace) == message


def test_a_target_without_any_capacity_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = (Probe(invocations_per_minute=60.0, duration_s=20.0, latency_ms=61.5, late_share=0.9),)
    nothing = searched_run(tmp_path, invocations_per_minute=0.0, interval=None, probes=slow)
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
    measured = searched_run(tmp_path)
    size = f"--from {measured} --peak-invocations-per-minute {60 * rate}"
    setting = f"--set objective.peak_invocations_per_minute={60 * rate}"
    assert refusal(measured, capsys, trace=str(trace)) == (
        f"busy.csv has a peak of {60 * rate:,} invocations/min (mean {60 * rate - 1770:,}), and the objective's "
        "peak is 240,000. They differ by more than a factor of 2, so the fleet has the wrong size for this trace. Size "
        f"a fleet for it: `python -m inference_recommender size {size}`. Then simulate with --from {measured} "
        f"{setting}."
    )
    assert main(["size", *size.split(), "--workload", "spellcheck", "--json"]) == 0
    needed = json.loads(capsys.readouterr().out)["candidates"][0]["instance_count"]
    assert simulated(measured, "--json", *setting.split(), trace=str(trace)) in (0, 1)
    fixed = document(capsys).policies[-1]
    assert fixed.instance_hours == max(needed, 2), "of an hour, with the minimum in production"


def test_gaps_are_filled_as_the_setting_requires(
    recommendation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = gaps(tmp_path)
    for fill, mean in (("zero", 0.9 * 180_000), ("last", 180_000)):
        assert simulated(recommendation, "--json", "--set", f"simulation.fill_gaps={fill}", trace=file) == 0
        trace = document(capsys).trace
        assert trace.minutes == 60
        assert trace.mean_invocations_per_minute == pytest.approx(mean)


def test_the_probes_are_those_of_the_recommendations_own_run(
    recommendation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sized_service, "ROOT", tmp_path)
    probe = Probe(invocations_per_minute=33_000.0, duration_s=30.0, latency_ms=80.0, late_share=0.03)
    found = Capacity(invocations_per_minute=30_000.0, percentile="P99", limit_ms=50.0, reason="found", probes=(probe,))
    run = RunFolder(recommendation.parent / "runs" / "job-1")
    run.keep_recommendation(a_recommendation(CHOSEN, target="tensorrt", objective=OBJECTIVE))
    run.keep_measurements((a_measurement(None, instance_type="ml.g5.xlarge", open_loop=found),))
    beside = run.path / "recommendation.json"
    for file, runs in ((recommendation, "runs"), (recommendation, "elsewhere"), (beside, "elsewhere")):
        simulated(file, "--json", "--runs", str(tmp_path / runs))
        assert document(capsys).curve.basis == "1 probe with open-loop arrivals"


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


def test_an_ecs_service_is_simulated_with_its_capacity_provider(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    intent = load_workload("query_intent").workload.latency_objective
    file = searched_run(tmp_path, "query_intent", limit_ms=intent.model_latency_ms, percentile=intent.percentile)
    runs = ("--runs", str(tmp_path / "runs"))
    main(["simulate", "query_intent", "--trace", "diurnal", "--from", str(file), "--seeds", "2", *runs, "--json"])
    assert document(capsys).timing.hosts == "ecs"
