"""Answers from the graph's outputs: expected numbers, and spans from an exhaustive search."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.encoder.answers import OUTPUTS, VECTORS, answer
from containers.encoder.tensors import Encoding
from tests.containers.encoder.encoder_miniature import CLASSIFICATION, PAIR_SCORING, QUESTION_ANSWERING, SETTINGS

# Whole numbers, so that sums are exact and equal spans are really equal.
logit = st.integers(-9, 9).map(float)


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[float], list[float], int, int]:
    """Start and end logits, and which tokens are the context: from first up to before last."""
    length = draw(st.integers(1, 12))
    logits = st.lists(logit, min_size=length, max_size=length)
    first = draw(st.integers(0, length - 1))
    return draw(logits), draw(logits), first, draw(st.integers(first + 1, length))


def by_trying_all(
    start: list[float], end: list[float], first: int, last: int, max_tokens: int
) -> tuple[float, int, int]:
    spans = [
        (start[begin] + end[stop], begin, stop)
        for begin in range(first, last)
        for stop in range(begin, min(begin + max_tokens, last))
    ]
    return max(spans, key=lambda span: span[0])  # The first of equals.


@given(st.lists(questions(), min_size=1, max_size=4), st.integers(1, 15))
def test_an_answer_is_a_part_of_the_context_with_any_padding(
    batch: list[tuple[list[float], list[float], int, int]], max_tokens: int
) -> None:
    settings = replace(QUESTION_ANSWERING, max_answer_tokens=max_tokens)
    length = max(len(start) for start, *_ in batch) + 1
    padding_logit = 100.0  # Would win if anybody looked at it.
    starts, ends = np.full((2, len(batch), length), padding_logit, np.float32)
    encodings, rows, expected = [], [], []
    for row, (start, end, first, last) in enumerate(batch):
        starts[row, : len(start)], ends[row, : len(end)] = start, end
        context = "".join(chr(0x1F600 + token) + "é " for token in range(last - first))
        spans = [(3 * (token - first), 3 * (token - first) + 2) for token in range(first, last)]
        places = (*[(-1, -1)] * first, *spans, *[(-1, -1)] * (len(start) - last))
        encodings.append(Encoding((7,) * len(start), (0,) * len(start), places))
        rows.append({"question": "?", "context": context})
        _, begin, stop = by_trying_all(start, end, first, last, max_tokens)
        share = softmax(start[first:last])[begin - first] * softmax(end[first:last])[stop - first]
        begin_character, end_character = spans[begin - first][0], spans[stop - first][1]
        expected.append(
            {
                "ANSWER": context[begin_character:end_character],
                "SCORE": pytest.approx(share),
                "START": begin_character,
                "END": end_character,
            }
        )
    assert answer(settings, {"start_logits": starts, "end_logits": ends}, encodings, rows) == expected


def softmax(logits: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in logits)
    return [math.exp(value) / total for value in logits]


def test_a_context_of_several_fields_is_answered_from_their_joined_text() -> None:
    settings = replace(QUESTION_ANSWERING, segments=(("question",), ("title", "body")))
    encoding = Encoding((1, 2, 3), (0, 1, 1), ((-1, -1), (0, 2), (3, 5)))
    outputs = {name: np.array([[0, 0, 5]], np.float32) for name in ("start_logits", "end_logits")}
    [found] = answer(settings, outputs, [encoding], [{"question": "?", "title": "ab", "body": b"cd"}])
    assert (found["ANSWER"], found["START"], found["END"]) == ("cd", 3, 5)


def test_a_label_and_its_share() -> None:
    outputs = {"logits": np.array([[0, math.log(3), 0], [1000, 0, 0]], np.float32)}
    assert answer(CLASSIFICATION, outputs, [], []) == [
        {"LABEL": "buy", "SCORE": pytest.approx(0.6)},
        {"LABEL": "navigate", "SCORE": 1.0},
    ]


def test_a_duplicate_score_and_a_relation() -> None:
    outputs = {"logits": np.array([[0, 1, 0], [0, 1, 2]], np.float32), "score": np.array([0.25, 1], np.float32)}
    assert answer(PAIR_SCORING, outputs, [], []) == [
        {"DUPLICATE_SCORE": 0.25, "RELATION": "variant"},
        {"DUPLICATE_SCORE": 1.0, "RELATION": "different"},
    ]


@pytest.mark.parametrize("kind", SETTINGS)
def test_answers_have_the_keys_and_types_of_config_pbtxt(kind: str) -> None:
    settings = SETTINGS[kind]
    shape = (1, 3, len(settings.labels)) if settings.task == "token-classification" else (1, 3)
    outputs = {name: np.zeros(shape, np.float32) for name in settings.graph_outputs} | {"score": np.zeros(1)}
    encoding = Encoding((1, 2, 3), (0, 1, 1), ((-1, -1, -1), (0, 1, 0), (2, 3, 0)))
    [found] = answer(settings, outputs, [encoding], [{"question": "?", "context": "a b", "text": "a b"}])
    python = {"TYPE_STRING": str, "TYPE_FP32": float, "TYPE_INT64": int}
    assert [(name, type(value)) for name, value in found.items()] == [
        (name, list if name in VECTORS else python[data_type]) for name, data_type in OUTPUTS[kind]
    ]
