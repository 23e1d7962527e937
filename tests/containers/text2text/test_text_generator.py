"""Texts in, texts out: batching changes no answer, and a bad row affects only its request."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, processors

from containers.text2text.decoding import Tokens
from containers.text2text.generator import Refusal, TextGenerator
from tests.model_build.miniatures.tiny_t5 import LETTERS, make_tokenizer

BAD_ROWS = {
    b"abc\xff": "TEXT row 0 is not UTF-8: byte 3 is 0xff.",
    b"": "TEXT row 0 is empty or blank.",
    " \t\n\u3000".encode(): "TEXT row 0 is empty or blank.",
    b"a" * 30: "TEXT row 0 has 32 tokens, at most 24 are allowed.",
    b"a"
    * 6_000_000: "TEXT row 0 has 6000000 characters; the first 768 are 770 tokens already, at most 24 are allowed.",
}


@pytest.mark.parametrize(("row", "message"), BAD_ROWS.items())
def test_a_bad_row_is_refused_and_its_neighbours_are_answered(
    generator: TextGenerator, row: bytes, message: str
) -> None:
    alone = generator.answer([[b"hello"], [b"shoes"]])
    first, refused, last = generator.answer([[b"hello"], [row], [b"shoes"]])
    assert refused == Refusal(message)
    assert [first, last] == alone


def test_a_request_with_several_rows_is_refused_as_a_whole_and_names_its_bad_rows(generator: TextGenerator) -> None:
    answers = generator.answer([[b"good", b"", b"fine", b"a" * 30], [b"other"]])
    assert answers[0] == Refusal(
        "TEXT row 1 is empty or blank. TEXT row 3 has 32 tokens, at most 24 are allowed. "
        "No row of this request was answered."
    )
    assert answers[1:] == generator.answer([[b"other"]])


def test_the_longest_row_allowed_is_not_cut(generator: TextGenerator) -> None:
    """tokenizer.json says to cut at 8 tokens; serving must not."""
    tokens = generator.tokenise(b"qwertyuiopasdfghjklzxc")
    assert isinstance(tokens, list)
    assert len(tokens) == 24


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.text(LETTERS, min_size=1, max_size=20), min_size=1, max_size=4), min_size=1, max_size=4))
def test_batching_changes_no_answer(generator: TextGenerator, requests: list[list[str]]) -> None:
    batched = generator.answer([[text.encode() for text in rows] for rows in requests])
    singly = [[answer_alone(generator, text) for text in rows] for rows in requests]
    assert batched == singly


def test_rows_of_similar_lengths_are_decoded_together(
    generator: TextGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, ...]] = []

    def encode(token_ids: Tokens, mask: Tokens, start: int) -> object:
        sizes.append(token_ids.shape)
        return type(generator.engine).encode(generator.engine, token_ids, mask, start)

    monkeypatch.setattr(generator.engine, "encode", encode, raising=False)
    requests = [[b"a", b"abcdefghijklmnopqrst"], [b"ab"], [b"abcdefghijklmnopqr", b"abc"]]
    together = TextGenerator(make_tokenizer(), generator.engine, replace(generator.settings, launch_tokens=0))
    grouped = TextGenerator(make_tokenizer(), generator.engine, replace(generator.settings, launch_tokens=8))
    assert grouped.answer(requests) == together.answer(requests)
    assert sizes == [(3, 5), (2, 22), (5, 22)]


def test_a_long_text_of_few_tokens_is_answered(generator: TextGenerator) -> None:
    """A text of many characters may have few tokens."""
    tokenizer = make_tokenizer()
    tokenizer.normalizer = normalizers.Replace("-", "")
    forgiving = TextGenerator(tokenizer, generator.engine, generator.settings)
    assert forgiving.tokenise(b"-" * 10_000 + b"abc") == generator.tokenise(b"abc")


def test_a_text_without_a_token_is_refused(generator: TextGenerator) -> None:
    """It would reach the graphs as a source of length 0 and fail the whole batch."""
    tokenizer = make_tokenizer()
    tokenizer.normalizer = normalizers.Replace("-", "")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    assert TextGenerator(tokenizer, generator.engine, generator.settings).tokenise(b"---") == Refusal("has no tokens")


def answer_alone(generator: TextGenerator, text: str) -> bytes:
    [answer] = generator.answer([[text.encode()]])
    assert not isinstance(answer, Refusal)
    return answer[0]
