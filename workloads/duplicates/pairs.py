"""Pairs of listings with their relation and score, for training, for evaluation and for batches of any size.

A listing belongs to training or to evaluation by the hash of what it states, however it is worded: no listing of
training is ever the first of an evaluation pair. `pairs` draws from all listings, as a night's batch would.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random

from workloads.duplicates import catalogue
from workloads.duplicates.catalogue import Listing, Relation
from workloads.duplicates.listings import word
from workloads.product_bert.phrasing import is_held_out

# Evaluation and payloads are the same whatever seed trains.
EVALUATION_SEED, EVALUATION_PAIRS = 60, 800
PAYLOAD_SEED, PAYLOADS = 70, 256

FIELDS = ("title", "brand", "other_title", "other_brand")
DUPLICATES, VARIANTS = 0.4, 0.3


@dataclass(frozen=True, slots=True)
class Pair:
    """Two listings as their sellers word them; `label` and `score` follow from what both state."""

    title: str
    brand: str
    other_title: str
    other_brand: str
    label: Relation
    score: float

    @property
    def segments(self) -> tuple[str, str]:
        """Returns the model's input: the text of each listing."""
        return f"{self.title} {self.brand}", f"{self.other_title} {self.other_brand}"

    def request(self) -> dict[str, str]:
        """Returns the four text fields, without label and score."""
        return {name: getattr(self, name) for name in FIELDS}

    def example(self) -> dict[str, str | float]:
        return asdict(self)


def pairs(count: int, seed: int) -> Iterator[Pair]:
    """Returns that many different pairs. A seed always gives the same ones; a longer run begins like a shorter one."""
    rng = Random(seed)
    seen: set[tuple[str, ...]] = set()
    while len(seen) < count:
        pair = _word_pair(*_listings(rng), rng)
        if (texts := (pair.title, pair.brand, pair.other_title, pair.other_brand)) not in seen:
            seen.add(texts)
            yield pair


def training_pairs(rng: Random) -> Iterator[Pair]:
    """Yields pairs without end; neither listing is held out."""
    while True:
        first, second = _listings(rng)
        if not (is_held_out(catalogue.key(first)) or is_held_out(catalogue.key(second))):
            yield _word_pair(first, second, rng)


def evaluation_pairs() -> list[Pair]:
    """Returns the lines of evaluation.jsonl: the first listing of each is held out, and no two state the same."""
    rng = Random(EVALUATION_SEED)
    found: dict[str, Pair] = {}
    while len(found) < EVALUATION_PAIRS:
        first, second = _listings(rng)
        if is_held_out(catalogue.key(first)):
            found.setdefault(catalogue.key(first), _word_pair(first, second, rng))
    return list(found.values())


def payload_pairs() -> list[Pair]:
    """Returns the lines of payloads.jsonl."""
    return list(pairs(PAYLOADS, PAYLOAD_SEED))


def _listings(rng: Random) -> tuple[Listing, Listing]:
    """Draws two sellers' statements of one product, of two variants, or of two products."""
    product = catalogue.sample_product(rng)
    choice = rng.random()
    if choice < DUPLICATES:
        other = product
    elif choice < DUPLICATES + VARIANTS:
        other = catalogue.sample_variant(product, rng)
    else:
        other = catalogue.sample_different(product, rng)
    first, second = catalogue.state(product, rng), catalogue.state(other, rng)
    return (first, second) if rng.random() < 0.5 else (second, first)


def _word_pair(first: Listing, second: Listing, rng: Random) -> Pair:
    relation, score = catalogue.relation(first, second), catalogue.score(first, second)
    return Pair(*word(first, rng), *word(second, rng), relation, score)
