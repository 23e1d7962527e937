"""A grammar of shoppers' queries: a query in lower case, its intent, and the phrasing that it fills.

Input: a seeded `random.Random`. Templates stand in `intents.txt`; products come from spellcheck's lexicon. Half of the
product searches are spellcheck's own queries, which have no fixed words: each is its own phrasing. The grammar
knows nothing of typos.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import TypeAlias

from workloads.product_bert.phrasing import sections, settle, slots, words
from workloads.spellcheck.grammar import Family, families, sample_query
from workloads.spellcheck.grammar import vocabulary as product_words

INTENTS_FILE = Path(__file__).with_name("intents.txt")
BARE_SEARCH_SHARE = 0.5

Filler: TypeAlias = Callable[[Family, Random], str]

PERSONS = """dad; mum; sister; brother; grandma; grandad; wife; husband; girlfriend; boyfriend; boss; teacher; nephew;
niece; neighbour; best friend; colleague; daughter; son; 10 year old; toddler; teenage son; in laws; new parents"""
OCCASIONS = """birthday; christmas; wedding; anniversary; easter; graduation; retirement; housewarming; baby shower;
mothers day; fathers day; valentines day"""
DAYS = """monday; tuesday; wednesday; thursday; friday; saturday; sunday; new year's day; christmas eve; bank holiday;
good friday; boxing day"""
CITIES = """london; leeds; york; bristol; cardiff; glasgow; dublin; exeter; oxford; norwich; belfast; aberdeen; bath;
lincoln; derby; brighton"""
PRODUCT_SHAPES = {("type",): 6, ("brand", "type"): 4, ("colour", "type"): 3, ("attribute", "type"): 3}


@dataclass(frozen=True, slots=True)
class Query:
    """A query, its intent, and the template that it fills, with its choices settled."""

    text: str
    label: str
    phrasing: str


@cache
def intents() -> dict[str, tuple[str, ...]]:
    """Returns the templates of each intent; the order is that of the model's classes."""
    return sections(INTENTS_FILE)


@cache
def vocabulary() -> frozenset[str]:
    """Returns every word that can occur in a query. A misspelling is never one of them."""
    texts = [template for templates in intents().values() for template in templates]
    texts += [PERSONS, OCCASIONS, DAYS, CITIES]
    return product_words().union(*map(words, texts))


def sample(rng: Random) -> Query:
    """Draws one query: an intent, a template of it, its choices, its slots."""
    label = rng.choice(list(intents()))
    if label == "product_search" and rng.random() < BARE_SEARCH_SHARE:
        text = sample_query(rng)
        return Query(text, label, text)
    phrasing = settle(rng.choice(intents()[label]), rng)
    family = rng.choice(families())
    text = phrasing
    for slot in slots(phrasing):
        text = text.replace(f"{{{slot}}}", FILLERS[slot](family, rng), 1)
    return Query(text, label, phrasing)


def _product(family: Family, rng: Random) -> str:
    """Returns a product of the family in one to four words, such as `navy loafers`."""
    shapes = {shape: weight for shape, weight in PRODUCT_SHAPES.items() if all(family[slot] for slot in shape)}
    shape = rng.choices(list(shapes), weights=list(shapes.values()))[0]
    return " ".join(rng.choice(family[slot]) for slot in shape)


def _one_of(phrases: str) -> Filler:
    choices = [" ".join(phrase.split()) for phrase in phrases.split(";")]
    return lambda family, rng: rng.choice(choices)


def _order(family: Family, rng: Random) -> str:
    return rng.choice(["", "", "a", "gb", "no "]) + str(rng.randrange(10_000, 1_000_000))


# All slots of a query are filled from one family of products.
FILLERS: dict[str, Filler] = {
    "product": _product,
    "type": lambda family, rng: rng.choice(family["type"]),
    "brand": lambda family, rng: rng.choice(family["brand"]),
    "colour": lambda family, rng: rng.choice(family["colour"] or families()[0]["colour"]),
    "person": _one_of(PERSONS),
    "occasion": _one_of(OCCASIONS),
    "day": _one_of(DAYS),
    "city": _one_of(CITIES),
    "order": _order,
    "money": _one_of("5; 10; 15; 20; 25; 30; 40; 50; 75; 100; 150; 200"),
    "number": lambda family, rng: str(rng.randrange(2, 70)),
    "hour": lambda family, rng: f"{rng.randrange(6, 12)}{rng.choice(['', ' am', ' pm', 'am', 'pm'])}",
    "days": _one_of("3 days; 5 days; a week; ten days; two weeks; a month"),
}
