"""Texts in, texts out: batching and guided decoding change no answer, and a bad row affects only its request."""

from dataclasses import replace
from random import Random
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, processors

from containers.text2text.decoding import Tokens, greedy
from containers.text2text.generation import Generation
from containers.text2text.generator import Refusal, TextGenerator, pad
from containers.text2text.guided import FIRST_DRAFT, SHORTEST_DRAFT, Draft, guided
from tests.model_build.miniatures.tiny_bart import FAMILIES, VOCABULARY
from tests.model_build.miniatures.tiny_t5 import LETTERS, make_tokenizer
from tests.model_build.text2text.test_families import decoding, engine, sources

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


def edited(tokens: list[int], rng: Random) -> list[int]:
    """Returns the tokens with some replaced, removed and added."""
    changed = []
    for token in tokens:
        kind = rng.choice(("same", "same", "same", "other", "removed", "added"))
        other = rng.randrange(1, VOCABULARY)
        changed += {"same": [token], "other": [other], "removed": [], "added": [token, other]}[kind]
    return changed


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("mode", ["input", "ngram"])
def test_the_tokens_are_those_of_greedy_decoding(kind: str, mode: Literal["input", "ngram"]) -> None:
    rng = Random(kind + mode)
    for count in (1, 1, 2, 5):
        rows = sources(count, rng.randrange(1000))
        batch = (engine(kind), *pad(rows, 0), decoding(kind))
        expected = [row.tolist() for row in greedy(*batch)]
        none: list[list[int]] = [[] for _ in rows]
        for drafts in (rows, expected, [edited(row, rng) for row in expected], none):
            answers, passes = guided(*batch, mode, drafts)
            assert [row.tolist() for row in answers] == expected
            assert all(1 <= used <= len(row) for used, row in zip(passes, expected, strict=True))
            if drafts is expected and mode == "input":
                assert passes == [1] * count if count == 1 else max(passes) <= 12


def test_a_draft_grows_if_it_is_accepted_and_shrinks_if_not() -> None:
    source, read = list(range(100, 300)), FIRST_DRAFT + 1
    draft = Draft(source, "input")
    assert draft.propose(99) == source[:FIRST_DRAFT]
    draft.advance(source[:read], FIRST_DRAFT, FIRST_DRAFT)
    assert draft.propose(99) == source[read : read + 2 * FIRST_DRAFT]
    assert draft.propose(3) == source[read : read + 3], "no longer than the answer may become"
    draft.advance([*source[: read + 3], source[30]], 2 * FIRST_DRAFT, 3)
    assert draft.propose(99) == source[31 : 31 + SHORTEST_DRAFT]


def test_a_draft_is_always_as_long_as_a_pass_of_fixed_size() -> None:
    source = list(range(100, 300))
    draft = Draft(source, "input", 15)
    assert draft.propose(15) == source[:15]
    draft.advance([*source[:3], source[30]], 15, 3)
    assert draft.propose(15) == source[31:46]


@pytest.mark.parametrize(
    ("answer", "accepted", "continued"),
    [
        ([1, 2, 9, 4], 0, [5, 1, 3]),  # the token after the one that differs
        ([1, 2, 9], 2, []),  # no token of the source
        ([4, 5, 1], 0, [3]),  # the longest match, not the nearest
    ],
)
def test_a_draft_goes_on_where_the_answer_meets_the_source_again(
    answer: list[int], accepted: int, continued: list[int]
) -> None:
    draft = Draft([1, 2, 3, 4, 5, 1, 3], "input")
    draft.advance(answer, 7, accepted)
    assert list(draft.propose(99)) == continued


def test_n_grams_begin_with_a_match_of_two_tokens() -> None:
    draft = Draft([1, 2, 3, 4], "ngram")
    assert list(draft.propose(9)) == []
    draft.advance([2], 0, 0)
    assert list(draft.propose(9)) == []
    draft.advance([2, 3], 0, 0)
    assert list(draft.propose(9)) == [4]


def test_a_request_may_leave_guidance_out_and_not_sample_with_it() -> None:
    served = Generation(guided="input", settable=("guided", "do_sample", "num_beams"))
    assert served.asked({}).guided == "input"
    assert served.asked({"guided": "off"}).guided == "off"
    assert served.asked({"do_sample": True}) == Generation(do_sample=True, settable=served.settable)
    with pytest.raises(ValueError, match="The parameter guided needs greedy decoding"):
        served.asked({"guided": "input", "do_sample": True})
    with pytest.raises(ValueError, match="guided is 'on', but has to be one of off, input, ngram"):
        served.asked({"guided": "on"})
