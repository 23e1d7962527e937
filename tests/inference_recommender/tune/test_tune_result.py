"""The result of a search, its patch, and its folder, which continues an interrupted search."""

from pathlib import Path

import pytest
import tomllib

from inference_recommender.tune.folder import TuneFolder, resumed
from inference_recommender.tune.probe_counts import ProbeCounts
from inference_recommender.tune.race import ConfigurationRefused, EndReason, Entrant, Race
from inference_recommender.tune.result import TuneResult, decision, patch, result
from inference_recommender.tune.space import LeftOut, ServingConfiguration
from tests.inference_recommender.tune.builders import P99, Analytic, a_capacity, a_plan, configuration
from workloads import ROOT, Serving, UsageError, Workload, load_workload
from workloads.errors import InvalidDocument

SPELLCHECK = load_workload("spellcheck").workload
BEST = ServingConfiguration(
    target="cpu",
    threads=2,
    serving=Serving(max_batch_size=8, preferred_batch_sizes=(4, 8), max_queue_delay_ms=1.5, model_instances=2),
)
OTHER, SLOW, UNTRIED = configuration(4), configuration(2), configuration(2, 1.0)
SPACE = [configuration(batch) for batch in (2, 4, 8)]


def _seen(requests: int) -> ProbeCounts:
    return ProbeCounts(
        invocations_per_minute=600.0,
        duration_s=10.0,
        sent=requests,
        requests=(requests,),
        late=(0,),
        latency_ms=1.0,
        ceiling_per_minute=None,
    )


def _found() -> TuneResult:
    race = Race(configurations=[BEST, OTHER, SLOW, UNTRIED], send=Analytic(lambda each: 1.0), limit=P99)
    best, other, slow, untried = race.entrants
    best.estimate, best.probes = a_capacity(12_000.0, 11_700.0, 12_300.0), [_seen(5000)]
    other.estimate, other.probes = a_capacity(11_800.0, 11_500.0, 12_100.0), [_seen(4000)]
    other.out = "lower: in the lower half of round 3, with 11,800 a minute"
    slow.probes, slow.out = [_seen(300)], "overloaded: at 11,000 a minute it answered 4,000"
    untried.out = "bounded: its family answered at most 4,000 a minute when overloaded"
    race.leader, race.requests, race.spent_s, race.visits, race.reason = best, 9300, 30.0, 5, EndReason.RESOLVED
    return result(
        race,
        SPELLCHECK,
        [LeftOut(configurations=(SLOW,), reason="it is too much")],
        instance_type="ml.c5.xlarge",
        price_per_hour_usd=0.18,
        machine="a CPU with 2 cores",
        measured_at="2026-11-23T03:00:00+00:00",
    )


def test_the_result_ranks_the_configurations_with_their_outcome() -> None:
    found = _found()
    assert decision(found) == (
        "Serve with cpu, 2 × 2 threads, batch 8 (4, 8), delay 1.5 ms: 12,000 invocations/min within P99 ≤ 50 ms. It "
        "beats the runner-up with 82% confidence."
    )
    assert found.best is not None
    assert found.best.cost_per_million_usd == pytest.approx(0.25)
    assert found.runner_up is not None
    assert [(each.label, each.outcome) for each in found.ranked[1:]] == [
        ("cpu, 1 × 1 thread, batch 4, delay 0 ms", "lower: in the lower half of round 3, with 11,800 a minute"),
        ("cpu, 1 × 1 thread, batch 2, delay 0 ms", "overloaded: at 11,000 a minute it answered 4,000"),
        (
            "cpu, 1 × 1 thread, batch 2, delay 1 ms",
            "bounded: its family answered at most 4,000 a minute when overloaded",
        ),
    ]


def test_the_patch_appended_to_a_workload_serves_the_best() -> None:
    text = (ROOT / "workloads" / "spellcheck" / "workload.toml").read_text("utf-8")
    patched = Workload.from_table(Path("workload.toml"), tomllib.loads(text + "\n" + patch(SPELLCHECK, _found())))
    variant = patched.variant("tuned")
    assert variant.target == "cpu-2threads"
    target = patched.targets["cpu-2threads"]
    assert target == SPELLCHECK.targets["cpu"].model_copy(update={"threads": 2})
    assert variant.serving == BEST.serving


def test_a_second_patch_has_another_name() -> None:
    text = (ROOT / "workloads" / "spellcheck" / "workload.toml").read_text("utf-8") + "\n" + patch(SPELLCHECK, _found())
    once = Workload.from_table(Path("workload.toml"), tomllib.loads(text))
    twice = tomllib.loads(text + "\n" + patch(once, _found()))
    assert set(Workload.from_table(Path("workload.toml"), twice).variants) == {"tuned", "tuned-2"}


def test_a_winner_with_a_wide_interval_is_not_known() -> None:
    found = _found()
    assert found.best is not None
    assert found.is_known
    wide = found.best.model_copy(update={"interval": (8_000.0, 14_000.0)})
    assert not found.model_copy(update={"ranked": (wide, *found.ranked[1:])}).is_known


@pytest.fixture
def folder(tmp_path: Path) -> TuneFolder:
    folder = TuneFolder(tmp_path / "run")
    folder.begin(a_plan(SPACE), SPELLCHECK, b"payloads")
    return folder


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


def test_probes_of_another_version_are_refused(folder: TuneFolder) -> None:
    resumed(folder, Analytic(lambda each: 1.0), lambda line, number: None)(SPACE[0], 600.0, 1.0)
    with pytest.raises(InvalidDocument) as refused:
        resumed(folder, Analytic(lambda each: 1.0), lambda line, number: None)(SPACE[0], 700.0, 1.0)
    assert str(refused.value) == (
        f"{folder.path / 'probes.jsonl'}: probe 1 is not the one that this version of tune makes there; start a new "
        "search."
    )


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        TuneFolder(tmp_path).plan()
    assert str(refused.value) == f"--resume: {tmp_path} is not a folder of tune: it has no tune.json."


def test_an_entrant_that_was_never_probed_has_no_capacity() -> None:
    assert Entrant(configuration=OTHER).rate == 0.0
    assert not Entrant(configuration=OTHER).is_known_within(1.0)
