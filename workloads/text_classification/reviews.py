"""Training and evaluation data: reviews with typing mistakes, drawn from the grammar.

A sentence that carries an opinion belongs to training or to evaluation by its own hash: no opinion that the model is
judged on was ever trained on. Live traffic (`payload_texts`) is drawn from all sentences.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from workloads.product_bert.phrasing import is_held_out
from workloads.spellcheck import typos
from workloads.text_classification.grammar import LABELS, MAX_WORDS, Review, sample

# Evaluation and payloads are the same whatever seed trains.
EVALUATION_SEED, EVALUATION_REVIEWS = 80, 600
PAYLOAD_SEED, PAYLOADS = 90, 256
LONG_PAYLOADS, LONG_WORDS = 24, 512

# One word in so many is mistyped.
WORDS_PER_MISTAKE = 60
LETTER_KINDS = (typos.replace_letter, typos.delete_letter, typos.swap_letters, typos.double_letter)


def training_reviews(rng: Random) -> Iterator[Review]:
    """Yields reviews without end, both labels alike; no opinion in them is held out."""
    while True:
        review = sample(rng.choice(LABELS), rng, lambda sentence: not is_held_out(sentence))
        if fits(review):
            yield mistype(review, rng)


def evaluation_reviews() -> list[Review]:
    """Returns the lines of evaluation.jsonl: different texts, the labels in turn, every opinion held out."""
    rng = Random(EVALUATION_SEED)
    found: dict[str, Review] = {}
    while len(found) < EVALUATION_REVIEWS:
        review = sample(LABELS[len(found) % len(LABELS)], rng, is_held_out)
        if fits(review):
            found.setdefault(review.text, mistype(review, rng))
    return list(found.values())


def payload_texts() -> list[str]:
    """Returns the lines of payloads.jsonl: different texts of live traffic."""
    rng = Random(PAYLOAD_SEED)
    texts: dict[str, None] = {}
    while len(texts) < PAYLOADS:
        review = sample(rng.choice(LABELS), rng, lambda sentence: True)
        if fits(review):
            texts[mistype(review, rng).text] = None
    return list(texts)


def long_payload_texts() -> list[str]:
    """Returns the lines of payloads-512.jsonl: reviews one after another, until they have more tokens than 512."""
    texts = iter(payload_texts())
    joined = []
    for _ in range(LONG_PAYLOADS):
        text = next(texts)
        while len(_words(text)) < LONG_WORDS:
            text = f"{text} {next(texts)}"
        joined.append(text)
    return joined


def _words(text: str) -> list[str]:
    """Returns words and signs: no tokenizer makes fewer tokens of them."""
    return re.findall(r"\w+|[^\w\s]", text)


def fits(review: Review) -> bool:
    """Returns whether the review leaves room for the pieces that rare and mistyped words break into."""
    return len(_words(review.text)) <= MAX_WORDS


def mistype(review: Review, rng: Random) -> Review:
    """Types the review: about every sixtieth word, where it is long enough, gets a mistake."""
    words = review.text.split(" ")
    for at, word in enumerate(words):
        if (
            word.isalpha()
            and word.islower()
            and len(word) > typos.SHORTEST_WORD
            and rng.random() < 1 / WORDS_PER_MISTAKE
        ):
            words[at] = rng.choice(LETTER_KINDS)(word, rng)
    return replace(review, text=" ".join(words))
