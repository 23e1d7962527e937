"""The report of a search, its patch, and its folder, which continues an interrupted search."""

from pathlib import Path
from typing import Any

import pytest
import tomllib

from inference_recommender.report.document import Report
from inference_recommender.tune.folder import TuneFolder, resumed
from inference_recommender.tune.probe_counts import ProbeCounts
from inference_recommender.tune.race import ConfigurationRefused, EndReason, Entrant, Race
from inference_recommender.tune.space import ServingConfiguration
from inference_recommender.tune.tune_report import patch, tune_report
from tests.inference_recommender.tune.builders import P99, Analytic, a_capacity, a_plan, configuration
from workloads import ROOT, ProjectError, Serving, Workload, load_workload

SPELLCHECK = load_workload("spellcheck").workload
FILE = ROOT / "workloads/spellcheck/workload.toml"
BEST = ServingConfiguration(
    target="cpu",
    threads=2,
    serving=Serving(max_batch_size=8, preferred_batch_sizes=(4, 8), max_queue_delay_ms=1.5, model_instances=2),
)
OTHER, SLOW, UNTRIED = configuration(4), configuration(2), configuration(2, 1.0)
SPACE = [configuration(batch) for batch in (2, 4, 8)]
SEEN = Analytic(lambda each: 12_000.0)(BEST, 600.0, 10.0)


@pytest.fixture
def folder(tmp_path: Path) -> TuneFolder:
    folder = TuneFolder(tmp_path / "run")
    folder.begin(a_plan(SPACE), SPELLCHECK, b"payloads")
    return folder


def _reported(folder: TuneFolder, low: float = 11_700.0, high: float = 12_300.0, **members: Any) -> Report:
    """Returns the report of a race with two contenders, an overloaded configuration and an untried one."""
    race = Race(configurations=[BEST, OTHER, SLOW, UNTRIED], send=Analytic(lambda each: 1.0), limit=P99)
    best, other, slow, untried = race.entrants
    best.estimate, best.probes = a_capacity(12_000.0, low, high), [SEEN]
    other.estimate, other.probes = a_capacity(11_800.0, 11_500.0, 12_100.0), [SEEN]
    other.out = "lower: in the lower half of round 3, with 11,800 a minute"
    slow.probes, slow.out = [SEEN], "overloaded: at 11,000 a minute it answered 4,000"
    untried.out = "bounded: its family answered at most 4,000 a minute when overloaded"
    race.leader, race.reason = best, EndReason.RESOLVED
    for name, value in members.items():
        setattr(race, name, value)
    return tune_report(
        folder, race, price_per_hour_usd=0.18, machine="a CPU with 2 cores", measured_at="2026-11-23T03:00:00+00:00"
    )


def test_the_report_ranks_the_configurations_with_their_outcome(folder: TuneFolder) -> None:
    report = _reported(folder)
    assert (report.verdict, report.decision) == (
        "met",
        "Serve with cpu, 2 × 2 threads, batch 8 (4, 8), delay 1.5 ms: 12,000 invocations/min within P99 ≤ 50 ms. It "
        "beats the runner-up with 82% confidence.",
    )
    rows = report.tables[0].rows
    assert rows[0]["cost_per_million_usd"] == pytest.approx(0.25)
    assert [(row["configuration"], row["outcome"]) for row in rows[1:]] == [
        ("cpu, 1 × 1 thread, batch 4, delay 0 ms", "lower: in the lower half of round 3, with 11,800 a minute"),
        ("cpu, 1 × 1 thread, batch 2, delay 0 ms", "overloaded: at 11,000 a minute it answered 4,000"),
        (
            "cpu, 1 × 1 thread, batch 2, delay 1 ms",
            "bounded: its family answered at most 4,000 a minute when overloaded",
        ),
    ]
    folder.keep_result(report)
    assert folder.result() == report
    assert (folder.path / "patch.toml").read_text("utf-8") == report.patch


@pytest.mark.parametrize(
    ("low", "members", "verdict", "decision"),
    [
        (
            8_000.0,
            {},
            "unknown",
            "Inconclusive: the best is not known to 15 %, and the search ended because the best is known.",
        ),
        (
            8_000.0,
            {"complaint": "generator lagged."},
            "unknown",
            "Inconclusive: the best is not known to 15 %, and the search ended because generator lagged.",
        ),
        (
            11_700.0,
            {"leader": None, "reason": EndReason.NOTHING_KEEPS},
            "missed",
            "Serve none of them: no configuration keeps the limit, at 60 a minute or more.",
        ),
    ],
    ids=["wide interval", "bottleneck", "nothing keeps"],
)
def test_without_a_known_best_there_is_no_patch(
    folder: TuneFolder, low: float, members: dict[str, Any], verdict: str, decision: str
) -> None:
    report = _reported(folder, low, **members)
    assert (report.verdict, report.decision, report.patch) == (verdict, decision, None)


def test_the_patch_appended_to_a_workload_serves_the_best_and_a_second_one_has_another_name(folder: TuneFolder) -> None:
    text = f"{FILE.read_text('utf-8')}\n{_reported(folder).patch}"
    patched = Workload.from_table(FILE, tomllib.loads(text))
    variant = patched.variant("tuned")
    assert variant.target == "cpu-2threads"
    assert patched.targets["cpu-2threads"] == SPELLCHECK.targets["cpu"].model_copy(update={"threads": 2})
    assert variant.serving == BEST.serving
    twice = tomllib.loads(f"{text}\n{patch(patched, Entrant(configuration=BEST))}")
    assert set(Workload.from_table(FILE, twice).variants) == {"tuned", "tuned-2"}


class Interrupting(Analytic):
    """Is interrupted by the user at its `last` probe."""

    def __init__(self, last: int) -> None:
        super().__init__(lambda each: 1000.0 * each.batch)
        self._last = last

    def __call__(self, asked: ServingConfiguration, rate: float, duration_s: float) -> ProbeCounts:
        if len(self.asked) + 1 == self._last:
            raise KeyboardInterrupt
        return super().__call__(asked, rate, duration_s)


def test_an_interrupted_search_continues_without_repeating_probes(folder: TuneFolder) -> None:
    whole = Interrupting(last=0)
    expected = Race(configurations=SPACE, send=whole, limit=P99)
    expected.run()
    first = Race(configurations=SPACE, send=resumed(folder, Interrupting(last=9), lambda line, number: None), limit=P99)
    with pytest.raises(KeyboardInterrupt):
        first.run()
    assert len(folder.lines()) == 8
    with (folder.path / "probes.jsonl").open("a") as file:
        file.write('{"label": "cut off')
    rest = Interrupting(last=0)
    again = Race(configurations=SPACE, send=resumed(folder, rest, lambda line, number: None), limit=P99)
    again.run()
    assert rest.asked == whole.asked[8:]
    assert [each.estimate for each in again.entrants] == [each.estimate for each in expected.entrants]
    assert len(folder.lines()) == len(whole.asked)


def test_a_refusal_is_resumed(folder: TuneFolder) -> None:
    def refusing(asked: ServingConfiguration, rate: float, duration_s: float) -> ProbeCounts:
        raise ConfigurationRefused("the engine is too small")

    for ask in (refusing, Analytic(lambda each: 1.0)):
        with pytest.raises(ConfigurationRefused, match="the engine is too small"):
            resumed(folder, ask, lambda line, number: None)(SPACE[0], 600.0, 1.0)


def test_probes_of_another_version_and_other_folders_are_refused(folder: TuneFolder, tmp_path: Path) -> None:
    resumed(folder, Analytic(lambda each: 1.0), lambda line, number: None)(SPACE[0], 600.0, 1.0)
    with pytest.raises(ProjectError) as refused:
        resumed(folder, Analytic(lambda each: 1.0), lambda line, number: None)(SPACE[0], 700.0, 1.0)
    assert str(refused.value) == (
        f"{folder.path / 'probes.jsonl'}: probe 1 is not the one that this version of tune makes there; start a new "
        "search."
    )
    with pytest.raises(ProjectError) as refused:
        TuneFolder(tmp_path).plan()
    assert str(refused.value) == f"--resume: {tmp_path} is not a folder of tune: it has no tune.json."
