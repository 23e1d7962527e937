"""Guided decoding returns the tokens of greedy decoding whatever the draft, in fewer passes if the draft is right."""

from random import Random
from typing import Literal

import pytest

from containers.text2text.decoding import greedy
from containers.text2text.generation import Generation
from containers.text2text.generator import pad
from containers.text2text.guided import FIRST_DRAFT, SHORTEST_DRAFT, Draft, guided
from tests.model_build.miniatures.tiny_bart import FAMILIES, VOCABULARY
from tests.model_build.text2text.test_families import decoding, engine, sources


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
