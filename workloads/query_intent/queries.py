"""Training and evaluation data: misspelt queries with their intent, drawn from the grammar.

A query belongs to training or to evaluation by its phrasing's hash: the model is judged on phrasings that it never saw,
whatever fills their slots. Live traffic (`payload_texts`) is drawn from all phrasings.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from workloads.product_bert.phrasing import is_held_out
from workloads.query_intent.grammar import Query, sample, vocabulary
from workloads.spellcheck import typos

# Evaluation and payloads are the same whatever seed trains.
EVALUATION_SEED, EVALUATION_QUERIES = 40, 800
PAYLOAD_SEED, PAYLOADS = 50, 256

# Kinds of mistakes that stay inside one word, and how often they are made; how many mistakes a query carries.
KINDS = {kind: weight for kind, weight in typos.KINDS.items() if kind not in (typos.split_word, typos.join_words)}
COUNTS: dict[int, int] = {0: 50, 1: 38, 2: 12}
ATTEMPTS = 20


def training_queries(rng: Random) -> Iterator[Query]:
    """Yields queries as typed, without end; no phrasing is held out."""
    while True:
        query = sample(rng)
        if not is_held_out(query.phrasing):
            yield misspell(query, rng)


def evaluation_queries() -> list[Query]:
    """Returns the lines of evaluation.jsonl: different texts, every phrasing held out."""
    rng = Random(EVALUATION_SEED)
    found: dict[str, Query] = {}
    while len(found) < EVALUATION_QUERIES:
        query = sample(rng)
        if is_held_out(query.phrasing):
            typed = misspell(query, rng)
            found[typed.text] = typed
    return list(found.values())


def payload_texts() -> list[str]:
    """Returns the lines of payloads.jsonl: different texts of live traffic."""
    rng = Random(PAYLOAD_SEED)
    texts: dict[str, None] = {}
    while len(texts) < PAYLOADS:
        texts[misspell(sample(rng), rng).text] = None
    return list(texts)


def misspell(query: Query, rng: Random) -> Query:
    """Types the query as users do: in half of all cases without a mistake, else with one or two."""
    words = query.text.split()
    for _ in range(rng.choices(list(COUNTS), weights=list(COUNTS.values()))[0]):
        places = [at for at, word in enumerate(words) if word.isalpha() and len(word) >= typos.SHORTEST_WORD]
        if places:
            at = rng.choice(places)
            words[at] = _mistyped(words[at], rng)
    return replace(query, text=" ".join(words))


def _mistyped(word: str, rng: Random) -> str:
    """Makes a mistake in the word; returns it unchanged where every attempt gives another word of the grammar."""
    for _ in range(ATTEMPTS):
        kind = rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
        text = kind(word, rng)
        if text not in vocabulary():
            return text
    return word
