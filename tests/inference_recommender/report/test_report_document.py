"""The report says in Markdown and as a document what the page says: the decision first, and what was not tested."""

import json
from pathlib import Path

import pytest

from inference_recommender.__main__ import main
from inference_recommender.report.document import Report, table
from inference_recommender.report.found import Found
from inference_recommender.report.markdown import markdown
from inference_recommender.report.of_run import run_report
from inference_recommender.run_folder import RunFolder
from workloads import Proof, ProofScenario

SUMMARY = {
    "generator": {
        "cpu_share": 0.25,
        "lag_ms": 1.5,
        "peak_per_second": 400,
        "calibration": {"highest_per_second": 1000},
    },
    "duration_s": 10.0,
    "invocations": 4000,
    "errors": 2,
}


def a_proof(verdict: str, archive: str | None = "a" * 64) -> Proof:
    peak = ProofScenario.model_validate(
        {
            "name": "peak",
            "instances_left": 47,
            "asked": True,
            "invocations_per_minute": 5_106.0,
            "verdict": verdict,
            "latency_ms": 31.2,
            "latency_interval_ms": (28.9, None),
            "requests": 4_000,
            "errors": 2,
            "duration_s": 47.0,
        }
    )
    return Proof.model_validate(
        {
            "verdict": verdict,
            "scenario": "peak",
            "invocations_per_minute": 5_106.0,
            "percentile": "P99",
            "latency_ms": 31.2,
            "latency_interval_ms": (28.9, None),
            "limit_ms": 50.0,
            "reason": "P99 keeps 50 ms at 5,106 invocations/min.",
            "scenarios": (peak,),
            "instances": 1,
            "instance_type": "ml.c5.xlarge",
            "archive_sha256": archive,
            "target": "SpellcheckStack",
            "measured_on": "local",
            "machine": "AMD EPYC with 2 cores",
            "measured_at": "2026-11-23T05:18:30+00:00",
            "run": "runs/proof",
        }
    )


def _prove(kept: RunFolder, verdict: str) -> None:
    kept.keep_recommendation(kept.recommendation().model_copy(update={"proof": a_proof(verdict)}))


def _as_json(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["report", str(path), "--format", "json"]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize(
    ("verdict", "of_report", "said"),
    [
        (
            None,
            "met",
            "Deploy 47 × ml.c5.xlarge THREADS=2, for 23.50 USD an hour, once it is proven: it was measured and sized, "
            "and not proven yet.",
        ),
        (
            "kept",
            "met",
            "Deploy 47 × ml.c5.xlarge THREADS=2, for 23.50 USD an hour: proven with open arrivals at the rates that "
            "the fleet would get.",
        ),
        ("missed", "missed", "Do not deploy 47 × ml.c5.xlarge THREADS=2: P99 keeps 50 ms at 5,106 invocations/min."),
        (
            "unclear",
            "unknown",
            "Prove 47 × ml.c5.xlarge THREADS=2 for longer before you deploy it, for 23.50 USD an hour. Inconclusive: "
            "P99 keeps 50 ms at 5,106 invocations/min.",
        ),
    ],
)
def test_the_decision_is_the_first_thing_that_markdown_says(
    kept: RunFolder, capsys: pytest.CaptureFixture[str], verdict: str | None, of_report: str, said: str
) -> None:
    if verdict:
        _prove(kept, verdict)
    assert main(["report", str(kept.path), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"**{said}**"
    document = _as_json(kept.path, capsys)
    assert (document["verdict"], document["decision"]) == (of_report, said)


def test_nothing_that_meets_the_objective_is_said_first_as_well(
    kept: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.keep_recommendation(kept.recommendation().model_copy(update={"recommended": None}))
    document = _as_json(kept.path, capsys)
    assert document["decision"] == "Deploy none of them: no candidate meets the objective."
    assert document["verdict"] == "missed"


def test_the_document_has_figures_as_numbers_and_says_what_was_not_tested(
    kept: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    _prove(kept, "kept")
    summary = kept.path / "open-arrivals" / "probe-001" / "summary.json"
    summary.parent.mkdir(parents=True)
    summary.write_text(json.dumps(SUMMARY), "utf-8")
    report = Report.model_validate_json(json.dumps(_as_json(kept.path, capsys)))
    candidates, proof, generator = (report.table(name) for name in ("candidates", "proof", "generator"))
    assert candidates is not None
    assert proof is not None
    assert generator is not None
    assert candidates.rows[0]["instance_count"] == 47
    assert candidates.rows[0]["warm_up_s"] is None
    assert proof.rows[0]["interval_low_ms"] == 28.9
    assert proof.rows[0]["interval_high_ms"] is None
    assert [row["worst"] for row in generator.rows] == [0.25, 1.5, 0.4]
    assert generator.note == "1 probes, 4,000 requests, 2 of them failed."
    assert report.proof is not None
    assert report.proof.verdict == "kept"
    assert report.not_tested == (
        "The proof asked 1 of the 47 instances, at the rate that each would get: how a fleet shares its load was not "
        "tested.",
        "The loss of an availability zone was not tested.",
        "The longest load lasted 47 s: an hour in which the service is slower is not foreseen by it.",
        "Only the requests of payloads.jsonl were sent: longer or other ones were not.",
        "How long a new instance takes until it answers within the objective was not measured.",
        "Scaling out and in under traffic that changes was not tested; the command simulate estimates it.",
        "How long requests waited in the server, beside computing, was not measured: SageMaker leads to none of "
        "Triton's counters.",
    )
    assert set(report.environment) >= {"fingerprint", "model archive", "sha256 of the payloads", "measured on"}


def test_the_configuration_is_shown_as_what_differs_from_its_base(
    kept: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    document = Report.model_validate_json(json.dumps(_as_json(kept.path, capsys)))
    configuration = document.table("configuration")
    assert configuration
    differing = {row["key"]: (row["base_value"], row["value"]) for row in configuration.rows}
    assert differing["max_batch_size"] == ("32", "16")
    assert "dynamic_batching" not in differing
    assert {row["base"] for row in configuration.rows} == {"the defaults", "cpu"}


def test_a_damaged_summary_of_a_generator_is_named(kept: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    file = kept.path / "probe-001" / "summary.json"
    file.parent.mkdir()
    file.write_text("{}", "utf-8")
    assert main(["report", str(kept.path), "--format", "json"]) == 2
    assert f"{file}: cannot be read" in " ".join(capsys.readouterr().err.split())


def test_a_proofs_own_folder_has_a_report_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "spellcheck-proof"
    RunFolder(folder).keep("proof.json", a_proof("kept", archive=None).model_dump(mode="json"))
    document = _as_json(folder, capsys)
    assert (document["kind"], document["verdict"]) == ("proof", "met")
    assert "The archive that served the proof is unknown." in document["not_tested"]  # type: ignore[operator]
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert "Kept: P99 keeps 50 ms" in (folder / "report.html").read_text("utf-8")


def test_a_search_that_sized_nothing_is_told_by_its_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe = {"invocations_per_minute": 60_000.0, "duration_s": 20.0, "latency_ms": 49.0, "late_share": 0.01}
    found = {
        "max_invocations_per_minute": 60_000.0,
        "max_invocations_interval": [56_000.0, 64_000.0],
        "latency_ms": 49.0,
        "percentile": "P99",
        "latency_limit_ms": 50.0,
        "warm_up_s": None,
        "reason": "the capacity is known to its resolution",
        "probes": [probe],
        "instances": 2,
    }
    RunFolder(tmp_path / "search").keep("capacity.json", found)
    document = _as_json(tmp_path / "search", capsys)
    assert document["decision"] == (
        "An instance sustains 30,000 invocations/min within P99 ≤ 50 ms (95 % interval 28,000 to 32,000)."
    )


def test_markdown_reads_nothing_of_a_figure_as_markup() -> None:
    report = Report(
        kind="run",
        name="n",
        workload="w",
        asked="P99 ≤ 50 ms",
        verdict="met",
        decision="Deploy <b>it</b> | *now*",
        tables=(table("t", "T", [("max_batch_size", "max_batch_size", "")], [("a|b\n</details>",), (None,)]),),
        not_tested=(),
        environment={"run": "a`b"},
    )
    text = markdown(report)
    assert text.startswith("**Deploy \\<b\\>it\\</b\\> \\| \\*now\\***\n")
    assert "| max_batch_size |\n| :-- |\n| a\\|b \\</details\\> |\n| – |\n" in text
    assert "- run: `` a`b ``" in text


def test_the_table_of_candidates_names_the_capacity_and_its_method(kept: RunFolder) -> None:
    report = run_report("job-1", kept.workload(), kept.recommendation(), Found())
    titles = {column.name: column.title for column in report.tables[0].columns}
    assert titles["max_invocations_per_minute"] == "capacity, invocations/min"
    assert (titles["capacity_basis"], titles["objective_latency_ms"]) == ("method", "latency at capacity, ms")
