"""A survey asks every request as often as told, warms up first, and counts what comes back."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from inference_recommender.capacity.flow_equivalent import Records
from inference_recommender.lengths import survey as module
from inference_recommender.lengths.served import Server, takes_a_length
from inference_recommender.lengths.shifts import Bounds, Shift
from inference_recommender.lengths.survey import Asked, Survey, input_levels, measure, output_levels
from inference_recommender.lengths.tokens import token_counts
from tests.inference_recommender.lengths.test_shifts import LIMIT, USERS, records
from tests.inference_recommender.lengths.test_tokens import tokenizer_of
from workloads import load_workload

COUNTS = [4, *[11] * 8, 15, 20]


class Clock:
    """Goes on by a millisecond for each of a request's words."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[str] = []

    def post(self, body: bytes) -> bytes:
        (text,) = json.loads(body)["inputs"][0]["data"]
        self.asked.append(text)
        self.now += 0.001 * len(text.split())
        output = {"name": "CORRECTED", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
        return json.dumps({"outputs": [output]}).encode()


def survey(clock: Clock) -> Survey:
    return Survey(post=clock.post, tokenizer=tokenizer_of("spellcheck"), answer="CORRECTED", clock_s=lambda: clock.now)


def test_lengths_go_from_the_shortest_payload_to_the_limits() -> None:
    assert input_levels(COUNTS, 64) == (4, 11, 15, 20, 32, 51, 64)
    assert input_levels(COUNTS, 20) == (4, 11, 15, 20)
    assert output_levels(COUNTS, 32) == (4, 11, 20, 26, 32)


def test_the_first_round_does_not_count() -> None:
    clock = Clock()
    found = survey(clock).ask([{"text": "running shoes"}, {"text": "jacket"}], rounds=3)
    assert sorted(clock.asked) == ["jacket"] * 4 + ["running shoes"] * 4
    assert len(found) == 6
    two = [each for each in found if each.latency_ms == pytest.approx(2)]
    assert len(two) == 3
    assert {(each.input_tokens, each.output_tokens) for each in two} == {(two[0].input_tokens,) * 2}  # an echo


def test_answers_are_forced_where_the_server_takes_a_length(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loads: list[float] = []

    @contextlib.contextmanager
    def load(archive: object, folder: object, rate: float, **_: object) -> Iterator[None]:
        loads.append(rate)
        yield

    def driven(server: Server, archive: Path, folder: Path, users: Sequence[int], step_s: int) -> Records:
        assert archive.exists()
        turns.append((folder.name, forced[-1] if forced else None))
        return records(USERS)

    monkeypatch.setattr(module, "beside_load", load)
    monkeypatch.setattr(module, "driven", driven)
    turns: list[tuple[str, int | None]] = []
    clock, forced, said = Clock(), list[int | None](), list[str]()
    server = Server(
        name="a server",
        post=clock.post,
        url="http://localhost/infer",
        endpoint=None,
        archive_sha256=None,
        measured_on="local",
        force=forced.append,
    )
    rows = load_workload("spellcheck").payloads()
    asked = Asked(
        payloads=rows,
        others=Shift(name="longer.jsonl", rows=rows[:3]),
        requests=7,
        load_invocations_per_minute=None,
        archive=tmp_path / "payloads.tar.gz",
        at_once=16,
        limit=LIMIT,
    )
    bounds = Bounds(inputs=64, outputs=32)
    found = measure(survey(clock), server, asked, bounds, said.append)
    assert len(found.payloads) == 256
    assert [each.name for each in found.kinds][-2:] == ["all at the limits", "longer.jsonl"]
    assert found.kinds[-2].mean_output_tokens == 32
    levels = output_levels([each.output_tokens for each in found.payloads], 32)
    p90 = token_counts([each.output_tokens for each in found.payloads]).p90
    to_and_fro = [p90, 32, None, 32, p90, None, p90, 32, None]
    assert forced == [*to_and_fro, *levels, *reversed(levels)]
    order = [f"{place}-{turn}" for turn in range(3) for place in (range(6), reversed(range(6)))[turn % 2]]
    assert [name for name, _ in turns] == order
    assert (dict(turns)["4-1"], dict(turns)["1-2"]) == (32, None)
    assert {each.output_tokens for each in found.forced} == set(levels)
    assert len(found.grid) == len(found.under_load) == 7 * 5 * 2  # lengths, rows of each, rounds
    assert len(found.forced) == 5 * len(found.grid)
    mean_ms = sum(each.latency_ms for each in found.payloads) / 256
    assert loads == [pytest.approx(30_000 / mean_ms)] == [found.load_invocations_per_minute]
    assert said[1] == "Input lengths: 4, 11, 15, 20, 32, 51, 64"


@pytest.mark.parametrize(
    ("parameters", "takes"),
    [
        ({"max_output_tokens": "32", "eos_token_ids": "1"}, True),
        ({"max_output_tokens": "32", "eos_token_ids": "1", "generation": '{"settable": ["seed"]}'}, True),
        ({"max_output_tokens": "32", "eos_token_ids": "1", "generation": '{"num_beams": 4}'}, False),
        ({"max_input_tokens": "64"}, False),
    ],
)
def test_only_a_decoder_that_chooses_freely_takes_a_length(parameters: dict[str, str], takes: bool) -> None:
    config = {"parameters": {name: {"string_value": value} for name, value in parameters.items()}}
    assert takes_a_length(config) is takes
