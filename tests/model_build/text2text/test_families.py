"""Every family's arithmetic is transformers' own: the same answers as `generate`, greedily and with beams."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from containers.text2text.beams import beam_search
from containers.text2text.decoding import Tokens, greedy
from containers.text2text.generation import Generation
from containers.text2text.generator import pad
from containers.text2text.search import most_likely, one_by_one
from containers.text2text.settings import Settings
from containers.text2text.static_cache import CHECKED_TOKENS
from model_build.checkpoint import read
from model_build.text2text import export, verify
from model_build.text2text.export import graphs
from tests.model_build.miniatures.tiny_bart import ANSWER, FAMILIES, SOURCE, VOCABULARY, ends, make_model, save, start
from tests.model_build.miniatures.tiny_t5 import SETTINGS
from tests.model_build.text2text.eager_engine import EagerEngine
from workloads import TextToText

WAYS = {
    "greedy": Generation(),
    "constrained": Generation(
        no_repeat_ngram_size=2, min_length=6, repetition_penalty=1.3, bad_words_ids=((7,), (8, 9))
    ),
    "beams": Generation(num_beams=3),
    "beams, long and early": Generation(num_beams=4, length_penalty=2.0, early_stopping=True, min_length=5),
    "beams, forced": Generation(
        num_beams=2,
        forced_bos_token_id=9,
        forced_eos_token_ids=(1,),
        no_repeat_ngram_size=3,
        renormalize_logits=True,
        suppress_tokens=(11,),
        begin_suppress_tokens=(12,),
    ),
}


@cache
def tiny(kind: str) -> Any:
    return make_model(kind)


@cache
def engine(kind: str) -> EagerEngine:
    return EagerEngine(tiny(kind))


def decoding(kind: str) -> Settings:
    return replace(SETTINGS, decoder_start_token_id=start(kind), eos_token_ids=ends(kind))


def sources(count: int, seed: int = 0) -> list[list[int]]:
    rng = Random(seed)
    return [[*rng.choices(range(3, VOCABULARY), k=rng.randint(1, SOURCE - 1)), 1] for _ in range(count)]


def original(kind: str, rows: list[list[int]], way: Generation) -> list[list[int]]:
    """Returns the answers of transformers' `generate`, up to each row's first end."""
    model, (token_ids, mask) = tiny(kind), pad(rows, 0)
    model.generation_config = verify._configuration(decoding(kind), way)
    with torch.inference_mode():
        said = model.generate(input_ids=torch.tensor(token_ids), attention_mask=torch.tensor(mask))
    return [until_its_end(row[1:].tolist(), ends(kind)) for row in said.sequences]


def until_its_end(row: list[int], last: tuple[int, ...]) -> list[int]:
    places = [place for place, token in enumerate(row) if token in last]
    return row[: places[0] + 1] if places else row


def ours(kind: str, rows: list[list[int]], way: Generation) -> list[list[int]]:
    batch = (engine(kind), *pad(rows, 0), decoding(kind))
    said: list[Tokens]
    if way.plain:
        said = greedy(*batch)
    else:
        said = beam_search(*batch, way) if way.num_beams > 1 else one_by_one(*batch, way, most_likely)
    return [row.tolist() for row in said]


QUICK = ("greedy", "beams, forced")


@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way in QUICK else pytest.mark.slow) for way in WAYS])
@pytest.mark.parametrize("kind", FAMILIES)
def test_the_answers_are_those_of_generate(kind: str, way: str) -> None:
    rows = sources(30 if way == "greedy" else 8)
    answers = ours(kind, rows, WAYS[way])
    assert answers == original(kind, rows, WAYS[way])
    assert way != "greedy" or len({len(row) for row in answers}) > 1, "all answers end at one length"


@pytest.mark.parametrize("kind", ["m2m_100", "umt5"])
def test_no_neighbour_in_the_batch_changes_a_beam_search(kind: str) -> None:
    rows, way = sources(5, seed=3), WAYS["beams"]
    assert ours(kind, rows, way) == [ours(kind, [row], way)[0] for row in rows]


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_static_decoder_gives_the_growing_ones_logits(kind: str) -> None:
    """Every step of it, with caches whose places behind the position hold anything."""
    encoder, static = graphs(tiny(kind), SOURCE, ANSWER, static=True)
    encoder.eval(), static.eval()
    token_ids, mask = (torch.tensor(part) for part in pad(sources(3), 0))
    growing = engine(kind)
    state = growing.encode(token_ids.numpy(), mask.numpy(), 0)
    with torch.inference_mode():
        cross, cross_bias = encoder(token_ids, mask)
        past = torch.randn(3, cross.shape[1], static.places, cross.shape[3])
        tokens, position = torch.zeros(3, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long)
        for _ in range(ANSWER):
            expected = growing.logits(state, tokens.numpy())
            tokens, logits, past, position = static(tokens, position, cross_bias, cross, past)
            assert np.allclose(logits.numpy(), expected, atol=1e-3)


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_static_decoder_checks_several_tokens_as_the_growing_one_does(kind: str) -> None:
    """From each position, over places that hold anything, and behind the end of the cache."""
    encoder, decoder = graphs(tiny(kind), SOURCE, ANSWER, static=True)
    static: Any = decoder.eval()
    encoder.eval()
    token_ids, mask = (torch.tensor(part) for part in pad(sources(1), 0))
    tokens = torch.tensor([Random(kind).choices(range(3, VOCABULARY), k=ANSWER + CHECKED_TOKENS)])
    growing = engine(kind)
    state = growing.encode(token_ids.numpy(), mask.numpy(), 0)
    expected = growing.check(state, tokens[:, :ANSWER].numpy(), np.array([0]))[0]
    with torch.inference_mode():
        cross, cross_bias = encoder(token_ids, mask)
        past = torch.randn(1, cross.shape[1], static.places, cross.shape[3])
        for start in range(ANSWER):
            drafted, position = tokens[:, start : start + CHECKED_TOKENS], torch.tensor([start])
            best, present = static.check(drafted, position, cross_bias, cross, past)
            count = min(CHECKED_TOKENS, ANSWER - start)
            assert best[0, :count].tolist() == expected[start : start + count].tolist()
            past[:, :, start] = present[:, :, start]


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_saved_checkpoint_is_read_and_loaded(kind: str, tmp_path: Path) -> None:
    folder = save(tiny(kind), tmp_path)
    model = TextToText(task="text2text-generation", checkpoint="./x", max_input_tokens=SOURCE, max_output_tokens=ANSWER)
    config = read(folder, folder, model).config
    assert (config["num_decoder_layers"], config["num_heads"], config["d_kv"]) == (2, 4, 8)
    loaded = greedy(EagerEngine(export.load(folder)), *pad(sources(3), 0), decoding(kind))
    assert [row.tolist() for row in loaded] == ours(kind, sources(3), Generation())
