"""Sampling: transformers' distribution, reproducible by a seed."""

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import logits_process as original

from containers.text2text.generation import SAMPLING, Generation
from containers.text2text.search import by_chance, likelihoods, top


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
