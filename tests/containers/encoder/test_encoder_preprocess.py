"""Rows to encodings and tensors: each row is read whole or refused in words, and its neighbours do not change it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.encoder.preprocess import Preprocessor
from containers.encoder.row import Refusal
from containers.encoder.settings import Settings
from containers.encoder.tensors import Encoding, merge, split, tensors, token_spans
from tests.builders import message_of
from tests.containers.encoder.encoder_miniature import (
    CLASSIFICATION,
    FIVE_INPUTS,
    LETTERS,
    PAIR_SCORING,
    QUESTION_ANSWERING,
    SETTINGS,
    make_tokenizer,
)

CLS, SEP = 2, 3
GOOD_PAIR = {"left_brand": "b", "left_title": "x", "right_brand": "", "right_title": "y"}


def word_pieces(*words: str) -> list[int]:
    return [LETTERS.index(letter) + (30 if index else 4) for word in words for index, letter in enumerate(word)]


def encode(settings: Settings, *rows: dict[str, Any]) -> list[Encoding | Refusal]:
    return Preprocessor(make_tokenizer(), settings).encode(rows)


def encode_one(settings: Settings, row: dict[str, Any]) -> Encoding:
    [encoding] = encode(settings, row)
    assert isinstance(encoding, Encoding)
    return encoding


def test_one_segment() -> None:
    encoding = encode_one(CLASSIFICATION, {"text": "Red shoe"})
    assert encoding == Encoding((CLS, *word_pieces("red", "shoe"), SEP), (0,) * 9)


def test_the_fields_of_a_segment_are_joined_by_a_space_and_some_may_be_blank() -> None:
    encoding = encode_one(PAIR_SCORING, {**GOOD_PAIR, "left_title": "shoe", "unknown": 3})
    assert encoding == Encoding(
        (CLS, *word_pieces("b", "shoe"), SEP, *word_pieces("y"), SEP), (0, 0, 0, 0, 0, 0, 0, 1, 1)
    )


def test_the_characters_of_every_token_of_the_context_are_known_and_of_no_other() -> None:
    encoding = encode_one(QUESTION_ANSWERING, {"question": "who", "context": "É 李 ab"})
    assert len(encoding) == 10
    assert encoding.spans == (*[(-1, -1)] * 5, (0, 1), (2, 3), (4, 5), (5, 6), (-1, -1))


REFUSALS: list[tuple[Settings, dict[str, Any], str]] = [
    (CLASSIFICATION, {}, "lacks the field text"),
    (PAIR_SCORING, {"left_brand": "b", "right_title": "x"}, "lacks the fields left_title, right_brand"),
    (CLASSIFICATION, {"text": " \t\n\u3000"}, "has no text in text"),
    (PAIR_SCORING, {**GOOD_PAIR, "right_title": " "}, "has no text in right_brand, right_title"),
    (CLASSIFICATION, {"text": "\u0000"}, "has no token in text"),
    (CLASSIFICATION, {"text": b"abc\xff"}, "is not UTF-8 in text: byte 3 is 0xff"),
    (CLASSIFICATION, {"text": "ab\ud83d"}, "is not UTF-8 in text: character 2 is U+D83D"),
    (PAIR_SCORING, {**GOOD_PAIR, "left_brand": 7}, "has a value of type int in left_brand, and text is wanted"),
    (CLASSIFICATION, {"text": "a" * 31}, "has 33 tokens, at most 32 are allowed"),
    (QUESTION_ANSWERING, {"question": "a" * 20, "context": "b " * 30}, "has 53 tokens, at most 48 are allowed"),
    (CLASSIFICATION, {"text": "a" * 6_000_000}, "has 6000000 characters, at most 4096 are read for 32 tokens"),
]


@pytest.mark.parametrize(("settings", "row", "message"), REFUSALS)
def test_a_bad_row_is_refused_and_its_neighbours_are_read(
    settings: Settings, row: dict[str, Any], message: str
) -> None:
    good = dict.fromkeys(settings.fields, "hello")
    assert encode(settings, good, row, good) == [
        encode_one(settings, good),
        Refusal(message),
        encode_one(settings, good),
    ]


def test_the_longest_row_allowed_is_not_cut() -> None:
    """tokenizer.json says to cut at 8 tokens and to pad to 20; serving must do neither."""
    assert len(encode_one(CLASSIFICATION, {"text": "a" * 30})) == 32
    assert len(encode_one(CLASSIFICATION, {"text": "a"})) == 3


def test_a_long_row_is_cut_if_the_workload_truncates() -> None:
    """It is cut as by transformers' truncation=True: from the end, the longer segment first, special tokens kept."""
    cutting = replace(CLASSIFICATION, truncation=True)
    cut = encode_one(cutting, {"text": "a" * 31})
    assert len(cut) == 32
    assert (cut.token_ids[0], cut.token_ids[-1]) == (CLS, SEP)
    many, few = ({"text": "a " * count} for count in (3_000_000, 31))
    assert encode_one(cutting, many) == encode_one(cutting, few), "no more is tokenised than can be kept"
    pair = encode_one(replace(PAIR_SCORING, truncation=True), {**GOOD_PAIR, "left_title": "x " * 50})
    assert len(pair) == PAIR_SCORING.max_input_tokens
    assert pair.type_ids.count(1) == 2, "the shorter segment is whole"


@given(st.lists(st.text(max_size=40), max_size=8))
def test_any_text_is_read_or_refused_and_batching_changes_neither(texts: list[str]) -> None:
    rows = [{"question": "who", "context": text} for text in texts]
    encoded = encode(QUESTION_ANSWERING, *rows)
    assert encoded == [encode(QUESTION_ANSWERING, row)[0] for row in rows]
    for row, encoding in zip(rows, encoded, strict=True):
        if isinstance(encoding, Encoding):
            assert all(0 <= start <= end <= len(row["context"]) for start, end in encoding.spans if start >= 0)


def test_settings_pass_through_their_file() -> None:
    for settings in SETTINGS.values():
        assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"task": "translation"},
            "task: got 'translation'; allowed: text-classification, text-pair-scoring, text-ranking, "
            "token-classification, feature-extraction, question-answering.",
        ),
        ({"pad_to": (16, 8, 32)}, "pad_to: got [16, 8, 32]; it must ascend and its last fit max_input_tokens = 32."),
        ({"pad_to": (8, 16)}, "pad_to: got [8, 16]; it must ascend and its last fit max_input_tokens = 32."),
    ],
)
def test_settings_that_cannot_be_served_are_refused(change: dict[str, Any], message: str) -> None:
    assert message_of(ValueError, replace, CLASSIFICATION, **change) == message


PAD = 9
encodings = st.lists(st.integers(10, 99), min_size=1, max_size=20).map(
    lambda ids: Encoding(tuple(ids), tuple(token % 2 for token in ids), tuple((token, token + 1) for token in ids))
)
batches = st.lists(encodings, min_size=1, max_size=6)


def test_rows_are_padded_to_the_smallest_length_that_fits() -> None:
    rows = [Encoding((5, 6, 7), (0, 0, 1), ((0, 1), (1, 2), (2, 3))), Encoding((8,), (1,), ((0, 4),))]
    made = tensors(rows, FIVE_INPUTS, (2, 4, 8), PAD)
    assert {name: tensor.tolist() for name, tensor in made.items()} == {
        "input_ids": [[5, 6, 7, PAD], [8, PAD, PAD, PAD]],
        "attention_mask": [[1, 1, 1, 0], [1, 0, 0, 0]],
        "position_ids": [[0, 1, 2, 0], [0, 0, 0, 0]],
        "valid_length": [3, 1],
        "token_type_ids": [[0, 0, 1, 0], [1, 0, 0, 0]],
    }
    assert list(made) == list(FIVE_INPUTS)
    assert all(tensor.dtype == np.int64 for tensor in made.values())
    assert token_spans(rows, 4).tolist() == [[[0, 1], [1, 2], [2, 3], [-1, -1]], [[0, 4], *[[-1, -1]] * 3]]
    assert tensors(rows, ["input_ids"], (), PAD)["input_ids"].shape == (2, 3)
    with pytest.raises(ValueError, match=r"^inputs: 'pixels' is not known\.$"):
        tensors(rows, ["pixels"], (), PAD)


@given(st.lists(batches, min_size=1, max_size=4))
def test_requests_are_merged_to_the_batch_of_all_their_rows_and_split_again(requests: list[list[Encoding]]) -> None:
    made = [tensors(rows, FIVE_INPUTS, (), PAD) for rows in requests]
    merged = merge(made, PAD)
    together = tensors([row for rows in requests for row in rows], FIVE_INPUTS, (), PAD)
    assert {name: tensor.tolist() for name, tensor in merged.items()} == {
        name: tensor.tolist() for name, tensor in together.items()
    }
    ids = merged["input_ids"]
    apart = split({"start_logits": ids, "score": ids[:, 0]}, [tuple(each["input_ids"].shape) for each in made])
    for outputs, each in zip(apart, made, strict=True):
        assert outputs["start_logits"].tolist() == each["input_ids"].tolist()
        assert outputs["score"].tolist() == each["input_ids"][:, 0].tolist()
