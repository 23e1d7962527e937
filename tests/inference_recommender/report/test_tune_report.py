"""The report of a search for a configuration: which one to serve, how sure that is, and the lines for workload.toml."""

import json
import re
from pathlib import Path

import pytest

from inference_recommender.__main__ import main
from inference_recommender.cli.report import page_text, report
from inference_recommender.report.markdown import markdown
from inference_recommender.tune.folder import ProbeLine, TuneFolder, TunePlan, resumed
from inference_recommender.tune.race import Race, Refused
from inference_recommender.tune.result import TuneResult, patch, result
from inference_recommender.tune.space import Configuration, LeftOut
from tests.inference_recommender.tune.builders import P99, Analytic, configuration
from workloads import load_workload

SPELLCHECK = load_workload("spellcheck").workload
SPACE = [configuration(batch) for batch in (2, 4, 8)]


class OneRefused(Analytic):
    """The engine of the last configuration does not load."""

    def __call__(self, asked: Configuration, rate: float, duration_s: float):  # type: ignore[no-untyped-def]
        if asked == SPACE[0]:
            raise Refused("the engine is too small")
        return super().__call__(asked, rate, duration_s)


def _silent(line: ProbeLine, number: int) -> None:
    """Hears of a probe, and says nothing."""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = TuneFolder(tmp_path_factory.mktemp("runs") / "spellcheck-tune")
    plan = TunePlan(
        workload="spellcheck",
        configurations=tuple(SPACE),
        left_out=(),
        archives={"cpu": "a" * 64},
        instance_type="ml.c5.xlarge",
        longest_s=1800.0,
    )
    folder.begin(plan, SPELLCHECK, b"payloads")
    race = Race(
        configurations=SPACE,
        send=resumed(folder, OneRefused(lambda each: 1000.0 * each.batch), _silent),
        limit=P99,
    )
    race.run()
    found = result(
        race,
        SPELLCHECK,
        [LeftOut(configurations=(configuration(64),), reason="it is too much")],
        instance_type="ml.c5.xlarge",
        price_per_hour_usd=0.18,
        machine="a CPU with 2 cores",
        measured_at="2026-11-23T03:00:00+00:00",
    )
    folder.keep(found, patch(SPELLCHECK, found))
    return folder.path


def _with(searched: Path, folder: Path, **changes: object) -> Path:
    """Returns a copy of the search whose result has other members."""
    for name in ("tune.json", "workload.json", "probes.jsonl"):
        (folder / name).write_bytes((searched / name).read_bytes())
    found = TuneResult.from_json(searched / "result.json")
    found.model_copy(update=changes).write_json(folder / "result.json")
    return folder


def test_the_best_is_the_decision_and_every_configuration_has_a_row(searched: Path) -> None:
    found = report(searched)
    assert (found.kind, found.workload, found.verdict) == ("tune", "spellcheck", "met")
    assert re.fullmatch(
        r"Serve with cpu, 1 × 1 thread, batch 8, delay 0 ms: it bears [78],\d{3} invocations/min within P99 ≤ 50 ms\.",
        found.decision,
    )
    configurations = found.table("configurations")
    assert configurations is not None
    assert [row["outcome"] for row in configurations.rows] == [
        "the best",
        "the runner-up",
        "refused: the engine is too small",
    ]
    best, runner_up, refused = configurations.rows
    assert isinstance(best["interval_low"], float)
    assert isinstance(best["interval_high"], float)
    assert best["interval_low"] < 8000 < best["interval_high"]
    assert isinstance(runner_up["invocations_per_minute"], float)
    assert runner_up["invocations_per_minute"] < best["interval_low"]
    assert (refused["invocations_per_minute"], refused["probes"]) == (None, 0)
    left_out = found.table("left-out")
    assert left_out is not None
    assert left_out.rows == ({"reason": "it is too much", "configurations": 1},)
    assert found.patch is not None
    assert "[variants.tuned]" in found.patch
    assert found.environment["archive of cpu"] == "a" * 64
    assert found.not_tested[0] == "1 of 3 configurations were never probed; the table says why."


def test_the_decision_says_how_sure_the_order_is(searched: Path, tmp_path: Path) -> None:
    decision = report(_with(searched, tmp_path, best_is_better=0.82)).decision
    assert decision.endswith(" within P99 ≤ 50 ms; that it bears more than the runner-up is 82% sure.")


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        (
            {"reason": "no configuration keeps the limit, at 60 a minute or more", "best": None},
            "missed",
            "Serve none of them: no configuration keeps the limit, at 60 a minute or more.",
        ),
        (
            {"reason": "it was interrupted", "best": None},
            "unknown",
            "Conclude nothing yet: the best is not known to 15 %, and the search ended because it was interrupted.",
        ),
    ],
)
def test_a_search_without_a_winner_says_so_first(
    searched: Path, tmp_path: Path, changes: dict[str, object], verdict: str, said: str
) -> None:
    found = report(_with(searched, tmp_path, **changes))
    assert (found.verdict, found.decision) == (verdict, said)


def test_a_search_without_a_result_is_to_go_on(
    searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (_with(searched, tmp_path) / "result.json").unlink()
    assert main(["report", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert (
        said == f"{tmp_path} has no result yet: go on with `python -m inference_recommender tune --resume {tmp_path}`."
    )


def test_the_markdown_has_the_lines_for_workload_toml(searched: Path) -> None:
    text = markdown(report(searched))
    assert text.startswith("**Serve with cpu, 1 × 1 thread, batch 8, delay 0 ms: it bears ")
    assert "```toml\n# P99 ≤ 50 ms: cpu, 1 × 1 thread, batch 8, delay 0 ms has " in text
    assert "[variants.tuned]\n" in text


def test_the_page_draws_what_each_bears_and_the_latency_of_each_probe(searched: Path) -> None:
    text = page_text(searched)
    assert re.findall(r'<a download="([^"]+)"', text) == [
        "what-each-configuration-bears.csv",
        "latency-against-load.csv",
    ]
    assert text.count("<svg") == 2
    assert "cpu, 1 × 1 thread, batch 4, delay 0 ms</text>" in text
    assert "[variants.tuned]" in text
    body = text.partition("</style>")[2]
    assert not re.findall(r"(?:fill|stroke): ?(#[0-9a-f]+)", body)
    assert json.loads((searched / "result.json").read_text("utf-8"))["machine"] in text
