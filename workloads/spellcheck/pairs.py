"""Training and evaluation data: (misspelt text, clean label) pairs drawn from the grammar.

A clean query belongs to training or to evaluation by its own hash, so no seed and no number of steps makes
them meet. Live traffic (`payload_texts`) is drawn from all queries.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from workloads.spellcheck.grammar import sample_query
from workloads.spellcheck.typos import corrupt, misspell

# Evaluation and payloads are the same whatever seed trains.
EVALUATION_SEED, MISSPELT_PAIRS, CORRECT_PAIRS = 20, 600, 200
PAYLOAD_SEED, PAYLOADS = 30, 256

ONE_MISTAKE_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Pair:
    """A query as it was typed, and as it was meant."""

    text: str
    label: str


def is_held_out(query: str) -> bool:
    """Returns whether a clean query is kept for evaluation: about a tenth of all, by SHA-256."""
    return hashlib.sha256(query.encode()).digest()[0] % 10 == 0


def training_pairs(rng: Random) -> Iterator[Pair]:
    """Yields pairs without end, with the mistakes of live traffic; no label is held out."""
    while True:
        query = sample_query(rng)
        if not is_held_out(query):
            yield Pair(misspell(query, rng), query)


def evaluation_pairs() -> list[Pair]:
    """Returns the lines of evaluation.jsonl: misspelt pairs, then correct ones; labels are held out and differ."""
    rng = Random(EVALUATION_SEED)
    queries = _held_out_queries(rng)
    pairs: list[Pair] = []
    while len(pairs) < MISSPELT_PAIRS:
        query = next(queries)
        text = corrupt(query, 1 if rng.random() < ONE_MISTAKE_SHARE else 2, rng)
        if text != query:
            pairs.append(Pair(text, query))
    return pairs + [Pair(query, query) for query, _ in zip(queries, range(CORRECT_PAIRS), strict=False)]


def payload_texts() -> list[str]:
    """Returns the lines of payloads.jsonl: different texts of live traffic."""
    rng = Random(PAYLOAD_SEED)
    texts: dict[str, None] = {}
    while len(texts) < PAYLOADS:
        texts[misspell(sample_query(rng), rng)] = None
    return list(texts)


def _held_out_queries(rng: Random) -> Iterator[str]:
    seen: set[str] = set()
    while True:
        query = sample_query(rng)
        if is_held_out(query) and query not in seen:
            seen.add(query)
            yield query
