"""`capacity` on the command line, against real servers on loopback; its words by themselves."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from inference_recommender.cli.capacity import document, recommend, sentence, told, why_none

from inference_recommender.__main__ import main
from inference_recommender.capacity.limit import Limit
from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.capacity.rate import Capacity
from inference_recommender.capacity.search import Reason, Search
from inference_recommender.cli import capacity as command_line
from inference_recommender.load_generator.requests import read_payloads
from inference_recommender.measure.probe import seen
from inference_recommender.payloads import request_bodies
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.open_loop import CapacityFound
from tests.artifacts import an_artifact
from tests.conftest import EditToml
from tests.inference_recommender.server import INFERENCE, serving
from workloads import load_workload

P99 = Limit(percentile=99, latency_ms=50)
FOUND = Capacity(
    invocations_per_minute=11_900.0,
    interval=(11_500.0, 12_400.0),
    percentile="P99",
    limit_ms=50.0,
    latency_ms=48.0,
    reason=Reason.RESOLVED.value,
)


def _nothing(rate_per_minute: float, duration_s: float) -> ProbeRecords:
    return ProbeRecords(duration_s=duration_s, intended_s=np.array([]), latencies_ms=np.array([]))


def test_the_sentence_tells_capacity_interval_and_warm_up() -> None:
    assert sentence(FOUND, 2.5) == (
        "P99 ≤ 50 ms: 11,900 invocations/min (95 % interval 11,500 to 12,400; the capacity is known to its "
        "resolution). It warmed up for 2.5 s, which do not count."
    )
    changes = {"invocations_per_minute": 0.0, "interval": None, "reason": Reason.NOTHING_KEEPS.value}
    assert (
        sentence(FOUND.model_copy(update=changes), 2.5) == "P99 ≤ 50 ms: no rate from 60 a minute on keeps the limit."
    )


def test_why_there_is_no_verdict_says_what_to_do() -> None:
    search = Search(send=_nothing, limit=P99, spent_s=1790.0, complaint="generator lagged: it used 99% of its core")
    assert why_none(search.result(Reason.BOTTLENECK), search) == (
        "generator lagged: it used 99% of its core. Run it from a machine that is not the server's, or with more "
        "cores; or spread the load with `run --with load-test --generators N`."
    )
    assert why_none(search.result(Reason.NEVER_SETTLED), search) == (
        "after 1790 s at 600 invocations/min its latency had not settled."
    )


@pytest.mark.parametrize(
    ("interval", "at_least", "so_far"),
    [
        ((11_500.0, 13_400.0), 1.0, "known only to be above 11,500 and below 13,400 invocations/min (95 % interval)"),
        (None, 11_500.0, "known only to be above 11,500 invocations/min (95 % interval)"),
        ((0.0, 13_400.0), 1.0, "known only to be below 13,400 invocations/min (95 % interval)"),
        (None, None, "not known"),
    ],
)
def test_a_search_whose_time_was_over_tells_what_it_knows(
    interval: tuple[float, float] | None, at_least: float | None, so_far: str
) -> None:
    search = Search(send=_nothing, limit=P99, spent_s=1790.0)
    search.result(Reason.TIME)
    found = FOUND.model_copy(update={"invocations_per_minute": None, "interval": interval, "at_least": at_least})
    assert why_none(found, search) == (
        f"too few samples: after 1790 s of probes the capacity is {so_far}. Give it longer with --max-duration-s."
    )


def test_every_probe_tells_what_it_saw() -> None:
    latencies = np.array([10.0] * 96 + [60.0] * 4)

    def probe(rate_per_minute: float, duration_s: float) -> ProbeRecords:
        lost = latencies if rate_per_minute < 1000 else np.full(100, np.inf)
        return ProbeRecords(duration_s=duration_s, intended_s=np.linspace(1, 10, 100), latencies_ms=lost)

    heard: list[str] = []
    telling = told(probe, P99, "P99", heard.append)
    assert telling(600, 10).duration_s == 10
    telling(1200, 10)
    assert heard == ["    P99 60.0 ms, 4.00% late", "    P99 no answer, 100.00% late"]


def test_requests_that_failed_or_were_never_answered_are_infinitely_late(tmp_path: Path) -> None:
    file = tmp_path / "records.npz"
    np.savez_compressed(
        file,
        intended_s=np.array([0.0, 1.0, 0.5]),
        sent_s=np.array([0.0, 1.0, 0.5]),
        finished_s=np.array([0.1, 1.2, 2.5]),
        status=np.array([200, 500, 200]),
        user=np.array([0, 0, 0]),
        unfinished_intended_s=np.array([0.75]),
        stalls_s=np.zeros((0, 2)),
    )
    stalled, found = seen(file, 3.0)
    assert stalled == 0
    assert found.intended_s.tolist() == [0.0, 0.5, 0.75, 1.0]
    assert found.latencies_ms.tolist() == [100.0, 2000.0, np.inf, np.inf]


def _arguments(url: str, runs: Path, *more: str) -> list[str]:
    return ["capacity", "spellcheck", "--url", url, "--runs", str(runs), *more]


@pytest.mark.slow
@pytest.mark.integration
def test_a_limit_that_no_rate_keeps_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that fails every other request: late, however slowly they come."""
    count = [0]

    def every_other(body: bytes) -> tuple[int, bytes]:
        count[0] += 1
        return (200, INFERENCE) if count[0] % 2 else (500, b"no")

    with serving(every_other) as server:
        code = main(_arguments(server.url, tmp_path, "--max-duration-s", "500", "--json"))
    result = json.loads(capsys.readouterr().out)
    assert (code, result["max_invocations_per_minute"]) == (1, None)
    assert result["probes"]


@pytest.mark.integration
@pytest.mark.slow
def test_too_short_a_search_exits_with_4_and_keeps_what_it_saw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as server:
        code = main(_arguments(server.url, tmp_path, "--max-duration-s", "10"))
    (run,) = tmp_path.iterdir()
    assert code == 4
    assert capsys.readouterr().err.endswith(
        "No verdict: too few samples: after 10 s of probes the capacity is not known. Give it longer with "
        f"--max-duration-s. What was measured is kept in {run}.\n"
    )
    assert (run / "probe-001" / "records.npz").exists()
    assert json.loads((run / "capacity.json").read_text())["reason"] == "its time was over"


@pytest.mark.integration
def test_a_server_that_is_not_there_exits_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert main(_arguments("http://127.0.0.1:9", tmp_path)) == 3
    assert capsys.readouterr().err.splitlines()[-1].startswith("http://127.0.0.1:9/v2/models/spellcheck/infer: ")
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            ("--percentile", "P100"),
            "argument --percentile: got 'P100', but a percentile is P50, P99, P99.9 and the like.",
        ),
        (("--latency-limit-ms", "0"), "argument --latency-limit-ms: got '0', but it must be more than 0."),
    ],
)
def test_usage_errors_say_what_is_allowed(
    more: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(_arguments("http://127.0.0.1:9", tmp_path, *more))
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--recommend",), "--recommend: needs --instance-type TYPE, which the fleet is sized in.\n"),
        (
            ("--recommend", "--instance-type", "ml.g5.xlarge", "--latency-limit-ms", "40"),
            "--recommend: the recommendation is for the objective of workload.toml; leave out --percentile and "
            "--latency-limit-ms.\n",
        ),
        (
            ("--recommend", "--instance-type", "ml.g5.xlarge", "--payloads", "longer.jsonl"),
            "--recommend: the recommendation is for payloads.jsonl; leave out --payloads.\n",
        ),
        (("--instances", "0"), "--instances: got 0. Allowed: 1 or more.\n"),
    ],
)
def test_what_could_not_be_recommended_is_refused_before_any_load(
    more: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(_arguments("http://127.0.0.1:9", tmp_path / "runs", *more))
    assert (code, capsys.readouterr().err, (tmp_path / "runs").exists()) == (2, told, False)


def test_a_capacity_above_the_rates_of_a_job_becomes_a_recommendation_for_review(
    workloads_copy: Path, tmp_path: Path
) -> None:
    """96,000 a minute on two instances; a job stops at 30,000."""
    folder, run_folder = load_workload("spellcheck", workloads_copy), RunFolder(tmp_path / "runs" / "capacity-1")
    rate = {"invocations_per_minute": 96_000.0, "interval": (94_000.0, 98_000.0)}
    found = {
        **document(FOUND.model_copy(update=rate), Search(send=_nothing, limit=P99), "P99"),
        "url": "http://service.internal:8000/v2/models/spellcheck/infer",
        "instance_type": "ml.g5.xlarge",
        "instances": 2,
        "machine": "a laptop",
        "measured_at": "2026-11-22T12:00:00+00:00",
    }
    run_folder.keep_workload(folder.workload)
    written = recommend(folder, an_artifact(), CapacityFound.model_validate_json(json.dumps(found)), run_folder)
    assert written == folder.recommendation() == run_folder.recommendation()
    assert written.recommended is not None
    assert (written.recommended.instance_count, written.recommended.max_invocations_per_minute) == (6, 48_000)
    assert written.recommended.max_invocations_interval == (47_000, 49_000)
    assert written.provenance.traffic == "open-loop"
    assert written.provenance.measured_on == "service"
    assert "6 × ml.g5.xlarge" in run_folder.report.read_text("utf-8")


def test_requests_have_as_many_rows_as_the_objective_says_and_the_result_tells(
    edit_toml: EditToml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = load_workload("spellcheck", edit_toml("[objective]", "[objective]\nrows_per_invocation = 4"))
    monkeypatch.setattr(command_line, "load_workload", lambda name: folder)
    monkeypatch.setattr(Search, "run", lambda search: FOUND)
    assert main(_arguments("http://127.0.0.1:9", tmp_path / "runs")) == 0
    assert "Each invocation had 4 rows: 47,600 rows/min." in capsys.readouterr().out
    (run,) = (tmp_path / "runs").iterdir()
    assert read_payloads(run / "payloads.tar.gz") == request_bodies(folder.payloads(), 4)
    assert CapacityFound.from_json(run / "capacity.json").rows_per_invocation == 4


def test_other_payloads_are_sent_in_the_place_of_the_workloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = tmp_path / "longer.jsonl"
    longer.write_text('{"text": "waterproof winter jacket for dogs with a hood"}\n', "utf-8")
    monkeypatch.setattr(Search, "run", lambda search: FOUND)
    assert main(_arguments("http://127.0.0.1:9", tmp_path / "runs", "--payloads", str(longer))) == 0
    (run,) = (tmp_path / "runs").iterdir()
    rows = [{"text": "waterproof winter jacket for dogs with a hood"}]
    assert read_payloads(run / "payloads.tar.gz") == request_bodies(rows, 1)
    capsys.readouterr()
    assert main(_arguments("http://127.0.0.1:9", tmp_path / "none", "--payloads", str(tmp_path / "none.jsonl"))) == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_a_batch_has_no_latency_objective(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", "duplicates", "--url", "http://127.0.0.1:9", "--runs", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("workloads/duplicates/workload.toml: objective: is a throughput")
