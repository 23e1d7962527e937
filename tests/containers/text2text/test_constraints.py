"""Forbidden, forced and discouraged tokens, beside transformers' own processors on the same random scores."""

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import logits_process as original

from containers.text2text.constraints import Constraints
from containers.text2text.generation import Generation
from containers.text2text.settings import Settings

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
