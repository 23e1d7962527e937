"""Forbidden, forced and discouraged tokens, and sampling, beside transformers' own."""

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import logits_process as original

from containers.text2text.constraints import Constraints
from containers.text2text.generation import SAMPLING, Generation
from containers.text2text.search import by_chance, likelihoods, top
from containers.text2text.settings import Settings


@settings(max_examples=60)
@given(
    st.sampled_from((0.3, 1.0, 2.5)),
    st.sampled_from((0, 1, 5, 50, 400)),
    st.sampled_from((0.05, 0.5, 0.95, 1.0)),
    st.integers(0, 10**6),
)
def test_likelihoods_equal_those_of_transformers(heat: float, most: int, share: float, seed: int) -> None:
    scores = np.random.default_rng(seed).standard_normal(300).astype(np.float32) * 3
    warped = torch.tensor(scores)[None]
    none: Any = None
    for warper in (
        original.TemperatureLogitsWarper(heat),
        *([original.TopKLogitsWarper(most)] if most else []),
        *([original.TopPLogitsWarper(share)] if share < 1 else []),
    ):
        warped = warper(none, warped)
    expected = torch.softmax(warped[0].double(), -1).numpy()
    tokens, weights = likelihoods(scores, Generation(temperature=heat, top_k=most, top_p=share))
    found = np.zeros(300)
    found[tokens] = weights
    assert np.allclose(found, expected, atol=1e-6)


def test_tokens_are_drawn_as_often_as_they_are_likely_and_again_by_the_same_seed() -> None:
    scores = np.log(np.array([[0.5, 0.3, 0.2, 0.0001]], np.float32))

    def draw() -> list[int]:
        choose = by_chance(Generation(do_sample=True, top_k=3), [np.random.default_rng(0)])
        return [int(choose(scores, np.array([0]))[0]) for _ in range(4000)]

    assert np.bincount(draw()) / 4000 == pytest.approx([0.5, 0.3, 0.2], abs=0.03)
    assert draw() == draw()


@settings(max_examples=40)
@given(st.integers(1, 9), st.sampled_from((5, 128, 1000, 4001)), st.integers(0, 10**6))
def test_the_best_tokens_are_found_by_blocks(count: int, vocabulary: int, seed: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 300, (3, vocabulary)).astype(np.float32)
    tokens, best = top(scores, min(count, vocabulary))
    assert np.array_equal(best, -np.sort(-scores, 1)[:, :count])
    assert np.array_equal(np.take_along_axis(scores, tokens, 1), best)
    assert all(len(set(row)) == len(row) for row in tokens.tolist())


SERVED = Generation(num_beams=4, settable=("num_beams", *SAMPLING))


def test_a_request_may_set_fewer_beams_or_sampling() -> None:
    assert SERVED.asked({}) == SERVED
    assert SERVED.asked({"num_beams": 2, "binary_data_output": True}).num_beams == 2
    drawn = SERVED.asked({"temperature": "0.7", "seed": 3})
    assert (drawn.do_sample, drawn.num_beams, drawn.temperature, drawn.seed) == (True, 1, 0.7, 3)
    assert SERVED.asked({"do_sample": "false"}).num_beams == 4


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_beams": 5}, "The parameter num_beams is 5, but has to be a whole number from 1 to 4."),
        ({"num_beams": True}, "The parameter num_beams is True, but has to be a whole number from 1 to 4."),
        ({"top_p": 0}, "The parameter top_p is 0, but has to be a number above 0 and up to 1."),
        ({"top_k": 1.5}, "The parameter top_k is 1.5, but has to be a whole number from 0 to 2147483647."),
        ({"temperature": "nan"}, "The parameter temperature is 'nan', but has to be a number above 0 and up to 100."),
        ({"do_sample": 1}, "The parameter do_sample is 1, but has to be true or false."),
        (
            {"seed": "9" * 99},
            f"The parameter seed is '{'9' * 99}', but has to be a whole number from 0 to {2**63 - 1}.",
        ),
        (
            {"num_beams": 2, "top_k": 3},
            "The parameters num_beams and do_sample exclude each other: beams are not sampled here.",
        ),
    ],
)
def test_an_invalid_parameter_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SERVED.asked(parameters)


def test_a_parameter_that_is_not_settable_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^The parameter top_k cannot be set here; no parameter can\.$"):
        Generation().asked({"top_k": 3})
    with pytest.raises(ValueError, match=r"^The parameter seed cannot be set here; num_beams can\.$"):
        Generation(num_beams=2, settable=("num_beams",)).asked({"seed": 3})


def test_settings_pass_through_config_pbtxt() -> None:
    generation = Generation(num_beams=3, bad_words_ids=((1,), (2, 3)), early_stopping="never", settable=("num_beams",))
    assert Generation.from_json(generation.to_json()) == generation
    assert json.loads(Generation().to_json()) == {}


VOCABULARY, START, END, LIMIT = 12, 2, 1, 8
SETTINGS = Settings(
    max_input_tokens=8,
    max_output_tokens=LIMIT,
    decoder_start_token_id=START,
    eos_token_ids=(END, 3),
    pad_token_id=0,
    threads=1,
)

token = st.integers(0, VOCABULARY - 1)
generations = st.builds(
    Generation,
    repetition_penalty=st.sampled_from((1.0, 0.5, 1.7)),
    no_repeat_ngram_size=st.integers(0, 3),
    bad_words_ids=st.lists(st.lists(token, min_size=1, max_size=3, unique=True).map(tuple), max_size=3).map(tuple),
    min_length=st.integers(0, 5),
    min_new_tokens=st.integers(0, 5),
    forced_bos_token_id=st.none() | token,
    forced_eos_token_ids=st.sampled_from(((), (END,), (END, 3))),
    suppress_tokens=st.lists(token, max_size=2).map(tuple),
    begin_suppress_tokens=st.lists(token, max_size=2).map(tuple),
)


def processors(asked: Generation) -> list[Any]:
    """transformers' own, in its order."""
    ends: Any = torch.tensor(SETTINGS.eos_token_ids)
    made: list[Any] = []
    if asked.repetition_penalty != 1.0:
        made.append(original.RepetitionPenaltyLogitsProcessor(asked.repetition_penalty))
    if asked.no_repeat_ngram_size:
        made.append(original.NoRepeatNGramLogitsProcessor(asked.no_repeat_ngram_size))
    if [word for word in asked.bad_words_ids if word not in ((END,), (3,))]:
        made.append(original.NoBadWordsLogitsProcessor([list(word) for word in asked.bad_words_ids], ends))
    if asked.min_length:
        made.append(original.MinLengthLogitsProcessor(asked.min_length, ends))
    if asked.min_new_tokens:
        made.append(original.MinNewTokensLengthLogitsProcessor(1, asked.min_new_tokens, ends))
    if asked.forced_bos_token_id is not None:
        made.append(original.ForcedBOSTokenLogitsProcessor(asked.forced_bos_token_id))
    if asked.forced_eos_token_ids:
        made.append(original.ForcedEOSTokenLogitsProcessor(LIMIT + 1, list(asked.forced_eos_token_ids)))
    if asked.suppress_tokens:
        made.append(original.SuppressTokensLogitsProcessor(asked.suppress_tokens))
    if asked.begin_suppress_tokens:
        begin = 1 if asked.forced_bos_token_id is None else 2
        made.append(original.SuppressTokensAtBeginLogitsProcessor(asked.begin_suppress_tokens, begin))
    return made


@settings(max_examples=60)
@given(generations, st.integers(0, LIMIT - 1), st.integers(0, 10**6))
def test_scores_are_changed_as_transformers_changes_them(asked: Generation, position: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((3, VOCABULARY)).astype(np.float32)
    written = rng.integers(0, VOCABULARY, (3, position))
    expected = torch.tensor(scores)
    history: Any = torch.tensor(np.concatenate([np.full((3, 1), START), written], 1))
    for process in processors(asked):
        expected = process(history, expected)
    Constraints(asked, SETTINGS).apply(scores, written)
    assert np.array_equal(scores, expected.numpy())
