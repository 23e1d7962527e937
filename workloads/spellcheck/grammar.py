"""A grammar of product-search queries: lower case, one to five words, every word from `lexicon.txt`.

Input: a seeded `random.Random`. Output: a query such as `waterproof hiking boots for women`. The same seed
gives the same queries. The grammar knows nothing of typos; the brands in it are invented.
"""

import re
from functools import cache
from pathlib import Path
from random import Random
from typing import TypeAlias

LEXICON = Path(__file__).with_name("lexicon.txt")
MAX_WORDS = 5

Family: TypeAlias = dict[str, tuple[str, ...]]

# A template and how often it is drawn. Words outside braces stand for themselves.
TEMPLATES: dict[str, int] = {
    "{type}": 6,
    "{brand} {type}": 10,
    "{attribute} {type}": 12,
    "{material} {type}": 9,
    "{colour} {type}": 8,
    "{type} {size}": 4,
    "{type} for {audience}": 8,
    "{type} with {feature}": 6,
    "{brand} {attribute} {type}": 8,
    "{brand} {colour} {type}": 6,
    "{brand} {type} {size}": 4,
    "{colour} {material} {type}": 6,
    "{attribute} {material} {type}": 6,
    "{attribute} {colour} {type}": 6,
    "{size} {colour} {type}": 4,
    "{brand} {type} for {audience}": 6,
    "{attribute} {type} for {audience}": 7,
    "{material} {type} for {audience}": 5,
    "{attribute} {type} with {feature}": 5,
    "{brand} {colour} {material} {type}": 4,
}


@cache
def families() -> tuple[Family, ...]:
    """Returns the product families of the lexicon, each slot name mapped to its phrases, shared slots filled in."""
    sections: dict[str, Family] = {}
    for line in LEXICON.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            slot, _, phrases = line.partition(":")
            section[slot] = tuple(phrase.strip() for phrase in phrases.split(",") if phrase.strip())
    shared = sections.pop("shared")
    return tuple({**shared, **own} for own in sections.values())


@cache
def vocabulary() -> frozenset[str]:
    """Returns every word that can occur in a query, connecting words included."""
    phrases = [phrase for family in families() for slot in family.values() for phrase in slot]
    literals = [re.sub(r"{\w+}", "", template) for template in TEMPLATES]
    return frozenset(word for text in phrases + literals for word in text.split())


def sample_query(rng: Random) -> str:
    """Draws one query: a family by its number of types, a template by its weight, a phrase for each slot."""
    while True:
        family = rng.choices(families(), weights=[len(family["type"]) for family in families()])[0]
        template = rng.choices(list(TEMPLATES), weights=list(TEMPLATES.values()))[0]
        slots: list[str] = re.findall(r"{(\w+)}", template)
        if not all(family[slot] for slot in slots):
            continue
        query = template.format(**{slot: rng.choice(family[slot]) for slot in slots})
        if len(query.split()) <= MAX_WORDS:
            return query
