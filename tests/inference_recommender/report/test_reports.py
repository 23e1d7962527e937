"""The report of each kind of folder as JSON, beside a golden file, and what changes its decision."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.cli.report import read_report, write_page
from inference_recommender.report.document import Report
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.decision import decide
from tests.builders import a_cold_start, a_probe, a_search
from tests.inference_recommender.conftest import Cli
from tests.inference_recommender.report.builders import SUMMARY, a_proof, a_search_on_triton

GOLDENS = Path(__file__).parent / "goldens"
REWRITE = "REWRITE_GOLDENS" in os.environ
OPEN_LOOP = a_search(
    9_600.0,
    a_probe(9_000.0, 40.0, 0.004),
    a_probe(10_400.0, None, 0.03),
    interval=(9_000.0, 10_500.0),
    latency_ms=48.0,
    reason="the capacity is known to its resolution",
)


def matches(report: Report, golden: str) -> None:
    """Compares a report with its golden; REWRITE_GOLDENS=1 writes it again."""
    text = report.model_dump_json(indent=2) + "\n"
    for pattern, stands_for in (
        (
            r'"(simulated at|fingerprint|measured on|sha256 of the workload|sha256 of the traffic|run)": "[^"]*"',
            r'"\1": "…"',
        ),
        (r'"name": "spellcheck-simulation-[^"]*"', '"name": "spellcheck-simulation"'),
    ):
        text = re.sub(pattern, stands_for, text)
    file = GOLDENS / golden
    if REWRITE:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
    # The last digits of a float depend on the processor.
    rounded: dict[str, Any] = {"object_pairs_hook": list, "parse_float": lambda digits: float(f"{float(digits):.12g}")}
    assert json.loads(text, **rounded) == json.loads(file.read_text("utf-8"), **rounded), "REWRITE_GOLDENS=1 accepts it"


def with_search(run: RunFolder) -> RunFolder:
    """Adds an open-loop search, a proof, a cold start and a generator's summary to a run."""
    informed = {
        "open_loop": OPEN_LOOP,
        "warm_up_s": 6.0,
        "cpu_utilization_percent": 184.2,
        "client_latency_ms": {"p99": 14.0, "p50": 5.0, "p90": 9.0},
        "client_latency_from_intended_ms": {"p50": 5.25, "p99": 18.5},
    }
    measured = tuple(each.model_copy(update=informed) for each in run.measurements())
    old = run.recommendation()
    recommendation = decide(run.workload(), old.archive_sha256, measured, old.provenance)
    run.keep_measurements(measured)
    more = {"proof": a_proof("kept"), "cold_start": a_cold_start()}
    run.keep_recommendation(recommendation.model_copy(update=more))
    run.keep("open-arrivals/probe-001/summary.json", SUMMARY)
    return run


def page_of(run: RunFolder) -> str:
    write_page(run.path)
    return run.report.read_text("utf-8")


def test_a_run_by_estimate(run_copy: RunFolder) -> None:
    matches(read_report(run_copy.path), "run-estimate.json")


def test_a_run_with_search_proof_and_cold_start(run_copy: RunFolder) -> None:
    matches(read_report(with_search(run_copy).path), "run-proven.json")


def test_a_proof(tmp_path: Path) -> None:
    RunFolder(tmp_path / "proof").keep("proof.json", a_proof("kept", archive=None).model_dump(mode="json"))
    matches(read_report(tmp_path / "proof"), "proof.json")


def test_a_simulation(simulated: Path) -> None:
    matches(read_report(simulated), "simulation.json")


def test_a_search_for_a_configuration(searched: Path) -> None:
    matches(read_report(searched), "tune.json")


@pytest.mark.parametrize(
    ("verdict", "outcome", "decision"),
    [
        (
            None,
            "met",
            "Recommended: 47 × ml.c5.xlarge THREADS=2, $23.50/h. Not proven yet: run `python -m inference_recommender "
            "prove spellcheck`.",
        ),
        ("kept", "met", "Recommended: 47 × ml.c5.xlarge THREADS=2, $23.50/h. Proven with open-loop arrivals."),
        (
            "missed",
            "missed",
            "Do not deploy 47 × ml.c5.xlarge THREADS=2, $23.50/h: P99 keeps 50 ms at 5,106 invocations/min.",
        ),
        (
            "unclear",
            "unknown",
            "Not decided: 47 × ml.c5.xlarge THREADS=2, $23.50/h. The proof is inconclusive: P99 keeps 50 ms at 5,106 "
            "invocations/min.",
        ),
        ("none", "missed", "No candidate meets the objective: no recommendation was written."),
    ],
)
def test_the_decision_of_a_run_follows_from_its_proof(
    run_copy: RunFolder, verdict: str | None, outcome: str, decision: str
) -> None:
    changes: dict[str, Any] = {"recommended": None} if verdict == "none" else {}
    if verdict in ("kept", "missed", "unclear"):
        changes = {"proof": a_proof(verdict)}
    run_copy.keep_recommendation(run_copy.recommendation().model_copy(update=changes))
    report = read_report(run_copy.path)
    assert (report.verdict, report.decision) == (outcome, decision)


def test_a_damaged_summary_of_a_generator_is_named(run_copy: RunFolder, cli: Cli) -> None:
    file = run_copy.path / "probe-001" / "summary.json"
    file.parent.mkdir()
    for damaged in ("{}", "{", '{"invocations": "many"}'):
        file.write_text(damaged)
        assert f"{file}: " in " ".join(cli.err("report", str(run_copy.path), "--format", "json").split())


def test_a_run_is_drawn_again_to_the_same_bytes_with_its_plots(run_copy: RunFolder) -> None:
    before = run_copy.report.read_text("utf-8")
    write_page(run_copy.path)
    assert run_copy.report.read_text("utf-8") == before
    assert re.findall(r'<a download="([^"]+)"', before) == [
        "throughput-over-time-ml.c5.xlarge.csv",
        "latency-against-rate-ml.c5.xlarge.csv",
        "capacity-against-burstiness-ml.c5.xlarge.csv",
    ]
    assert "open arrivals, estimated</text>" in before
    assert "open arrivals, measured" not in before


def test_the_latency_plot_has_users_probes_capacity_and_proof(run_copy: RunFolder) -> None:
    text = page_of(with_search(run_copy))
    for legend in (
        "P99 of closed-loop users",
        "open arrivals, estimated",
        "open arrivals, measured",
        "sizes the fleet, 9,600/min",
        "closed-loop rate 12,000/min",
        "95 % interval",
        "proof, with its 95 % interval",
        "warm-up",
    ):
        assert f"{legend}</text>" in text, legend


def test_queue_times_appear_in_the_report(run_copy: RunFolder) -> None:
    first, *others = run_copy.measurements()
    search = a_search_on_triton((600, 12.0, 8.0), (60, 0.5, 4.0))
    run_copy.keep_measurements((first.model_copy(update={"open_loop": search}), *others))
    report = read_report(run_copy.path)
    (queue,) = (each for each in report.tables if each.name == "queue")
    rows = [(row["invocations_per_minute"], row["queue_ms"], row["infer_ms"]) for row in queue.rows]
    assert rows == [(60.0, 0.5, 4.0), (600.0, 12.0, 8.0)], "the lightest load first"
    assert not [each for each in report.not_tested if each.startswith("Queue time")]


def test_a_search_without_a_result_names_the_command_that_resumes_it(searched: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "tune.json").write_bytes((searched / "tune.json").read_bytes())
    assert f"`python -m inference_recommender tune --resume {tmp_path}`" in " ".join(
        cli.err("report", str(tmp_path)).split()
    )


def test_the_page_of_a_simulation_draws_the_worst_day(simulated: Path) -> None:
    text = page_of(RunFolder(simulated))
    assert re.findall(r'<a download="([^"]+)"', text) == ["worst-day.csv"]
    for legend in ("serving", "desired", "ideal"):
        assert f"{legend}</text>" in text, legend


def test_a_damaged_simulation_is_named(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "simulation.json").write_text("{}", "utf-8")
    assert f"{tmp_path / 'simulation.json'}: " in " ".join(cli.err("report", str(tmp_path)).split())


def test_all_writes_an_index_with_relative_links_and_why_a_folder_has_no_report(run_copy: RunFolder, cli: Cli) -> None:
    runs = run_copy.path.parent
    (runs / "broken").mkdir()
    assert cli.out("report", "--all", str(runs)) == f"{runs / 'index.html'}\n"
    text = (runs / "index.html").read_text("utf-8")
    assert re.findall(r'href="([^"]+)"', text) == ["job-1/report.html"]
    assert "is not a run folder: it has no workload.json." in text


READ: dict[str, Callable[[str], object]] = {"json": Report.model_validate_json, "markdown": str, "text": str}


@pytest.mark.parametrize("form", READ)
def test_report_prints_each_format(run_copy: RunFolder, cli: Cli, form: str) -> None:
    text = cli.out("report", str(run_copy.path), "--format", form)
    assert "Recommended: 47 × ml.c5.xlarge THREADS=2, $23.50/h." in text
    assert READ[form](text)
