"""Products with attributes, and how alike two listings of them are.

Input: a seeded `random.Random`. A product is a tuple of values in the order of `ATTRIBUTES`, drawn from spellcheck's
lexicon; a listing states some of them and leaves others unsaid (None). Relation and score are functions of the stated
values alone, so that they can be told from the text. Brand and type are always stated.
"""

from functools import cache
from random import Random
from typing import Literal, TypeAlias

from workloads.spellcheck.grammar import Family, families

Relation: TypeAlias = Literal["duplicate", "variant", "different"]
Listing: TypeAlias = tuple[str | None, ...]

RELATIONS: tuple[Relation, ...] = ("duplicate", "variant", "different")
ATTRIBUTES = ("brand", "type", "attribute", "material", "colour", "size", "pack", "audience", "feature")
BRAND, TYPE = 0, 1
OPTIONAL = range(2, len(ATTRIBUTES))

# What each attribute counts in the score, and how often a product has it and a listing states it.
WEIGHTS = (0.25, 0.33, 0.08, 0.08, 0.09, 0.05, 0.05, 0.03, 0.04)
PRESENCE = (1.0, 1.0, 0.6, 0.45, 0.6, 0.35, 0.3, 0.35, 0.35)
STATED = 0.85
# A value stated on one side only is most likely the other's too, where brand and type are the same.
UNSAID_AGREEMENT = 0.75
# Two types of one family, a sofa and an armchair, have something in common.
SAME_FAMILY_AGREEMENT = 0.3
PACKS = ("2", "3", "4", "6", "10", "12")


def sample_product(rng: Random) -> Listing:
    """Draws a product with all its attributes; one that it does not have is None."""
    return _sample(_pools()[_index(rng, len(_pools()))], rng)


def sample_variant(product: Listing, rng: Random) -> Listing:
    """Returns a product of the same brand and type, with one or two other attributes changed."""
    values = list(product)
    places = [at for at in OPTIONAL if product[at] is not None and len(_pool(product)[at]) > 1]
    for at in rng.sample(places, min(len(places), 1 + (rng.random() < 0.35))):
        values[at] = _another(_pool(product)[at], product[at], rng)
    return tuple(values)


def sample_different(product: Listing, rng: Random) -> Listing:
    """Draws another product: of another brand, of another type, or, in three of ten cases, any other at all."""
    choice = rng.random()
    if choice < 0.3:
        return sample_product(rng)
    values = list(product)
    for at, changed in ((BRAND, choice < 0.65), (TYPE, choice >= 0.55)):
        if changed:
            values[at] = _another(_pool(product)[at], product[at], rng)
    return tuple(values)


def state(product: Listing, rng: Random) -> Listing:
    """Draws a listing of the product: brand, type, and most of its other attributes."""
    return product[:2] + tuple(value if value is None or rng.random() < STATED else None for value in product[2:])


def relation(first: Listing, second: Listing) -> Relation:
    """Returns the relation: different in brand or type, variants in anything that both state, or duplicates."""
    if first[:2] != second[:2]:
        return "different"
    if any(one != other and one is not None and other is not None for one, other in zip(first, second, strict=True)):
        return "variant"
    return "duplicate"


def score(first: Listing, second: Listing) -> float:
    """Returns the share of agreement, 0 to 1, weighted by attribute over those that at least one of the two states."""
    unsaid = UNSAID_AGREEMENT if first[:2] == second[:2] else 0.0
    weight = agreement = 0.0
    for at, (one, other) in enumerate(zip(first, second, strict=True)):
        if one is None and other is None:
            continue
        weight += WEIGHTS[at]
        if one == other:
            agreement += WEIGHTS[at]
        elif one is None or other is None:
            agreement += WEIGHTS[at] * unsaid
        elif at == TYPE and _family_of()[one] == _family_of()[other]:
            agreement += WEIGHTS[at] * SAME_FAMILY_AGREEMENT
    return round(agreement / weight, 4)


def key(listing: Listing) -> str:
    """Returns the listing's stated values as one text, however a seller words them."""
    return "|".join(value or "" for value in listing)


@cache
def _pools() -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Returns for each family the values of each attribute, in the order of `ATTRIBUTES`."""
    return tuple(tuple(_values(family, name) for name in ATTRIBUTES) for family in families())


def _values(family: Family, name: str) -> tuple[str, ...]:
    return PACKS if name == "pack" else family[name]


@cache
def _family_of() -> dict[str | None, int]:
    """Returns the family of each type; a type is in one family only."""
    return {type_: at for at, pool in enumerate(_pools()) for type_ in pool[TYPE]}


def _pool(product: Listing) -> tuple[tuple[str, ...], ...]:
    return _pools()[_family_of()[product[TYPE]]]


def _sample(pool: tuple[tuple[str, ...], ...], rng: Random) -> Listing:
    return tuple(
        values[_index(rng, len(values))] if values and rng.random() < presence else None
        for values, presence in zip(pool, PRESENCE, strict=True)
    )


def _another(values: tuple[str, ...], value: str | None, rng: Random) -> str:
    while (other := values[_index(rng, len(values))]) == value:
        pass
    return other


def _index(rng: Random, length: int) -> int:
    """Returns `rng.randrange(length)` in a third of its time; the batch's tests draw 200,000 pairs."""
    return int(rng.random() * length)
