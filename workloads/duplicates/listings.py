"""How a seller words a listing: a title of two to about thirty words and a brand field.

Input: a `Listing` of the catalogue and a seeded `random.Random`. Sellers differ in the order of words, in synonyms and
spellings, in capitals, in what they add that says nothing of the product, and now and then they mistype.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from workloads.duplicates.catalogue import ATTRIBUTES, Listing
from workloads.spellcheck import typos

T = TypeVar("T")

# Other ways to say a value of the lexicon.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "extra large": ("xl", "x-large"),
    "large": ("l",),
    "medium": ("m",),
    "small": ("s",),
    "women": ("ladies", "womens"),
    "kids": ("children",),
    "boys": ("lads",),
    "teenagers": ("teens",),
    "toddlers": ("little ones",),
    "adults": ("grown ups",),
    "navy": ("dark blue",),
    "burgundy": ("wine red",),
    "ivory": ("cream",),
    "beige": ("sand",),
    "turquoise": ("teal",),
    "silver": ("silver grey",),
    "sofa": ("couch",),
    "television": ("tv",),
    "power bank": ("portable charger",),
    "trousers": ("pants",),
    "sneakers": ("trainers",),
    "wellingtons": ("rubber boots",),
    "raincoat": ("rain jacket",),
    "pyjamas": ("pajamas", "nightwear"),
    "sweater": ("jumper",),
    "hoodie": ("hooded sweatshirt",),
    "suitcase": ("luggage case",),
    "frying pan": ("skillet",),
    "kettle": ("water boiler",),
    "baking tray": ("oven tray",),
    "headphones": ("headset",),
    "hard drive": ("hdd",),
    "wardrobe": ("closet",),
    "nightstand": ("bedside table",),
    "curtains": ("drapes",),
    "duvet cover": ("quilt cover",),
    "lawn mower": ("grass cutter",),
    "wrench": ("spanner",),
    "shovel": ("spade",),
    "bicycle": ("bike",),
    "stroller": ("pushchair",),
    "pacifier": ("soother",),
    "diapers": ("nappies",),
    "shampoo": ("hair wash",),
    "moisturizer": ("moisturiser",),
    "perfume": ("eau de parfum",),
    "dog leash": ("dog lead",),
    "notebook": ("writing pad",),
    "planner": ("organiser",),
    "green tea": ("sencha",),
    "oatmeal": ("porridge oats",),
    "sparkling water": ("soda water",),
    "aluminium": ("aluminum", "alloy"),
    "stainless steel": ("inox",),
    "wooden": ("wood", "timber"),
    "leather": ("genuine leather",),
    "polyester": ("poly",),
    "cashmere": ("cashmere wool",),
    "waterproof": ("water resistant",),
    "lightweight": ("light weight", "ultralight"),
    "wireless": ("cord free",),
    "portable": ("travel ready",),
    "foldable": ("collapsible",),
    "nonstick": ("non-stick",),
    "adjustable": ("height adjustable",),
    "organic": ("bio",),
    "rechargeable": ("usb rechargeable",),
    "washable": ("machine washable",),
    "electric": ("mains powered",),
    "vintage": ("retro style",),
    "zipper": ("zip",),
    "timer": ("auto timer",),
    "remote": ("remote control",),
}
SYNONYM_SHARE = 0.25

# Words around a value, by attribute; the first is drawn half of the time.
WORDINGS: dict[str, tuple[str, ...]] = {
    "type": ("{}",),
    "attribute": ("{}",),
    "material": ("{}", "{}", "made of {}", "{} material"),
    "colour": ("{}", "{}", "in {}", "- {}", "({})", "colour: {}"),
    "size": ("{}", "size {}", "({})", "{} size"),
    "pack": ("pack of {}", "{} pack", "{}-pack", "set of {}", "x{}", "{} pcs"),
    "audience": ("for {}", "for {}", "- {}"),
    "feature": ("with {}", "with {}", "including {}", "+ {}"),
}
# Orders of a title's parts.
ORDERS: tuple[tuple[str, ...], ...] = (
    ("size", "colour", "attribute", "material", "type", "feature", "audience", "pack"),
    ("attribute", "material", "type", "audience", "feature", "colour", "size", "pack"),
    ("type", "attribute", "material", "feature", "audience", "colour", "size", "pack"),
    ("pack", "colour", "material", "type", "feature", "audience", "attribute", "size"),
    ("audience", "attribute", "type", "material", "colour", "pack", "feature", "size"),
    ("colour", "type", "size", "material", "attribute", "audience", "feature", "pack"),
)
EXTRAS = (
    "free delivery",
    "best seller",
    "new arrival",
    "easy returns",
    "official store",
    "ideal gift",
    "24 month guarantee",
    "customer favourite",
    "ships today",
    "as seen on tv",
    "premium quality",
    "limited offer",
    "tested by experts",
    "great value for everyday use",
    "carefully packed and sent within one working day",
)
BRAND_SUFFIXES = ("", "", "", "", " ltd", " official", " co.", " home")
BRAND_IN_TITLE = 0.3
MISTYPED = 0.06
LETTER_KINDS = (typos.replace_letter, typos.delete_letter, typos.swap_letters, typos.double_letter)
CASES = (str.title, str.title, str.title, str.capitalize, str.lower, str.lower)


def word(listing: Listing, rng: Random) -> tuple[str, str]:
    """Returns the listing's title and brand field, as one seller would write them."""
    values = dict(zip(ATTRIBUTES, listing, strict=True))
    brand = str(values["brand"])
    parts = [_part(name, value, rng) for name in _pick(ORDERS, rng) if (value := values[name]) is not None]
    if rng.random() < BRAND_IN_TITLE:
        parts.insert(0, brand)
    if extras := int(4 * rng.random() ** 2.5 + 0.35):
        parts += rng.sample(EXTRAS, extras)
    title = " ".join(parts)
    if rng.random() < MISTYPED:
        title = _mistype(title, rng)
    return _pick(CASES, rng)(title), _pick(CASES, rng)(brand + _pick(BRAND_SUFFIXES, rng))


def _part(name: str, value: str, rng: Random) -> str:
    if value in SYNONYMS and rng.random() < SYNONYM_SHARE:
        value = _pick(SYNONYMS[value], rng)
    return _pick(WORDINGS[name], rng).format(value)


def _mistype(title: str, rng: Random) -> str:
    """Makes a mistake in one word of five letters or more; digits stay as they are."""
    words = title.split(" ")
    places = [at for at, text in enumerate(words) if text.isalpha() and len(text) > typos.SHORTEST_WORD]
    if places:
        at = _pick(places, rng)
        words[at] = _pick(LETTER_KINDS, rng)(words[at], rng)
    return " ".join(words)


def _pick(choices: Sequence[T], rng: Random) -> T:
    return choices[int(rng.random() * len(choices))]
