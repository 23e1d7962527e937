"""A grammar of product descriptions and questions about them: the answer is a span of the description.

Input: a seeded `random.Random`. Templates stand in `facts.txt`; brands come from spellcheck's lexicon. A description
states a few facts of one product, or of two, told apart by name; the twin of the fact that is asked for (the packed
weight beside the net weight) and the other product's value for it often stand beside the answer.
"""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import TypeAlias

from workloads.product_bert.phrasing import sections, settle
from workloads.spellcheck.grammar import families

FACTS_FILE = Path(__file__).with_name("facts.txt")

TYPES = """kettle; toaster; blender; coffee maker; laptop; tablet; monitor; keyboard; speaker; camera; printer; router;
microphone; smartwatch; projector; webcam; television; floor lamp; desk lamp; lawn mower; hedge trimmer; hammer drill;
screwdriver; chainsaw; pressure washer; treadmill; rowing machine; scooter; hair dryer; toothbrush; aquarium; shredder;
whiteboard; calculator; vacuum cleaner; air purifier; heater; fan; sewing machine; radio; clock; massage chair"""
MATERIALS = """aluminium; stainless steel; recycled plastic; bamboo; cork; walnut; oak; glass; ceramic; carbon fibre;
brass; rubber; leather; silicone; cast iron; felt; copper; titanium"""
COLOURS = """black; white; navy; dark green; light grey; burgundy; beige; silver; orange; yellow; turquoise; ivory;
purple; brown; pink; pale blue; khaki; maroon"""
COUNTRIES = """Portugal; Poland; Italy; Japan; Denmark; Vietnam; Mexico; Turkey; Finland; Ireland; Spain; Austria;
South Korea; India; Brazil; Norway; the Netherlands; Canada"""
EXTRAS = """a travel case; a spare filter; a wall mount; a remote control; a cleaning brush; two batteries; an adapter;
a dust cover; a charging dock; a carrying strap; a tool kit; a second lid; a memory card; a set of screws; a stand;
a mains plug; a glass jug; an extension lead"""
CLEANERS = """a damp cloth; warm water; mild soap; a soft brush; a dry towel; vinegar and water; a wet sponge;
a wet sponge; a microfibre cloth; baking soda; a little wax; lemon juice; clear alcohol; a feather duster"""

INTRODUCTION = "(Meet|This is|About|We present) {it}."
SECOND_PRODUCT_SHARE, SAME_TYPE_SHARE, RIVAL_SHARE = 0.4, 0.5, 0.7
TWIN_SHARE, FILLER_SHARE = 0.6, 0.5
# Words and punctuation marks of question and description together; the model reads 128 tokens.
MAX_WORDS = 100
Sentence: TypeAlias = tuple[str | None, str]

PIECE = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that can be asked for and stated, with its possible answers."""

    questions: tuple[str, ...]
    sentences: tuple[str, ...]
    value: Callable[[Random], str]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the description that answers it, and the answer as it stands there.

    `asked` is the fact that is asked for, `phrasing` how it is asked and stated; `stated` has, for each sentence of the
    description, its fact, or None, and where it ends.
    """

    question: str
    context: str
    label: str
    asked: str
    phrasing: str
    stated: tuple[tuple[str | None, int], ...]

    def request(self) -> dict[str, str]:
        return {"question": self.question, "context": self.context}

    def example(self) -> dict[str, str]:
        return {**self.request(), "label": self.label}


@cache
def facts() -> dict[str, Fact]:
    """Returns every fact that can be asked for."""
    templates = sections(FACTS_FILE)
    return {
        name: Fact(
            tuple(line.removeprefix("? ") for line in templates[name] if line.startswith("?")),
            tuple(line.removeprefix("= ") for line in templates[name] if line.startswith("=")),
            value,
        )
        for pair, value in VALUES.items()
        for name in pair
    }


@cache
def fillers() -> tuple[str, ...]:
    return sections(FACTS_FILE)["filler"]


def sample(rng: Random) -> Question:
    """Draws a question and its description; the answer occurs in it exactly once, and all fits the model."""
    while True:
        found = _draw(rng)
        if found.context.count(found.label) == 1 and len(PIECE.findall(found.question + found.context)) <= MAX_WORDS:
            return found


def _draw(rng: Random) -> Question:
    asked = rng.choice(list(facts()))
    fact = facts()[asked]
    wording, sentence = settle(rng.choice(fact.questions), rng), settle(rng.choice(fact.sentences), rng)
    answer = fact.value(rng)
    names, *others = _names(rng)
    sentences: list[Sentence] = [(asked, _fill(sentence, rng.choice(names), answer))]
    sentences += [_state(name, names, rng) for name in _also_stated(asked, rng)]
    for other in others:
        rival = asked if rng.random() < RIVAL_SHARE else rng.choice(list(facts()))
        sentences += [_state(name, other, rng) for name in dict.fromkeys((rival, rng.choice(list(facts()))))]
    if rng.random() < FILLER_SHARE:
        sentences.append((None, _fill(settle(rng.choice(fillers()), rng), rng.choice(names))))
    rng.shuffle(sentences)
    if not others:
        sentences.insert(0, (None, _fill(settle(INTRODUCTION, rng), names[0])))
    question = _fill(wording, rng.choice(names))
    context = " ".join(text for _, text in sentences)
    return Question(question, context, answer, asked, f"{asked}: {wording} {sentence}", _ends(sentences))


def _ends(sentences: list[Sentence]) -> tuple[tuple[str | None, int], ...]:
    lengths = itertools.accumulate(len(text) + 1 for _, text in sentences)
    return tuple((fact, end) for (fact, _), end in zip(sentences, lengths, strict=True))


def _names(rng: Random) -> list[tuple[str, ...]]:
    """Returns the names that tell a product from the other; of two products each has only its full name."""
    types, brands = rng.sample(_phrases(TYPES), 2), rng.sample(_brands(), 2)
    full_names = [f"the {brand} {type_}" for brand, type_ in zip(brands, types, strict=True)]
    if rng.random() >= SECOND_PRODUCT_SHARE:
        return [(full_names[0], f"the {types[0]}", "it")]
    if rng.random() < SAME_TYPE_SHARE:
        full_names[1] = f"the {brands[1]} {types[0]}"
    return [(name,) for name in full_names]


def _also_stated(asked: str, rng: Random) -> list[str]:
    """Returns other facts of the product: often the twin of the one that is asked for, and one to three more."""
    twin = next(name for pair in VALUES if asked in pair for name in pair if name != asked)
    others = [name for name in facts() if name not in (asked, twin)]
    return [twin] * (rng.random() < TWIN_SHARE) + rng.sample(others, rng.randint(1, 3))


def _state(name: str, names: tuple[str, ...], rng: Random) -> Sentence:
    fact = facts()[name]
    return name, _fill(settle(rng.choice(fact.sentences), rng), rng.choice(names), fact.value(rng))


def _fill(phrasing: str, name: str, answer: str = "") -> str:
    """Returns the sentence, its first letter a capital. No sentence begins with its answer."""
    text = re.sub(r" ([.,?])", r"\1", phrasing.replace("{it}", name).replace("{answer}", answer))
    return text[0].upper() + text[1:]


@cache
def _brands() -> list[str]:
    return [brand.capitalize() for family in families() for brand in family["brand"]]


@cache
def _phrases(text: str) -> list[str]:
    return [" ".join(phrase.split()) for phrase in text.split(";")]


def _one_of(text: str) -> Callable[[Random], str]:
    return lambda rng: rng.choice(_phrases(text))


def _weight(rng: Random) -> str:
    if rng.random() < 0.5:
        return f"{rng.randrange(105, 995, 5)} {rng.choice(['g', 'grams'])}"
    return f"{rng.randrange(1, 30)}.{rng.randrange(1, 10)} {rng.choice(['kg', 'kilograms'])}"


def _price(rng: Random) -> str:
    return f"{rng.choice('$£€')}{rng.randrange(9, 700)}{rng.choice(['', '.50', '.90', '.95', '.99'])}"


def _hours(rng: Random) -> str:
    if rng.random() < 0.4:
        return f"{rng.randrange(20, 120, 5)} minutes"
    return f"{rng.choice(['', 'about ', 'up to '])}{rng.randrange(2, 60)} hours"


def _period(rng: Random) -> str:
    numbers = [
        "two",
        "three",
        "four",
        "five",
        "six",
        "ten",
        "12",
        "14",
        "18",
        "20",
        "24",
        "30",
        "36",
        "60",
        "90",
        "100",
    ]
    return f"{rng.choice(numbers)} {rng.choice(['days', 'weeks', 'months', 'years'])}"


def _year(rng: Random) -> str:
    return str(rng.randrange(1950, 2026))


def _length(rng: Random) -> str:
    if rng.random() < 0.5:
        return f"{rng.randrange(12, 250)} {rng.choice(['cm', 'centimetres'])}"
    return f"{rng.randrange(1, 6)}.{rng.randrange(1, 10)} {rng.choice(['m', 'metres'])}"


# Twin facts, which have the same kind of answer.
VALUES: dict[tuple[str, str], Callable[[Random], str]] = {
    ("weight", "shipping_weight"): _weight,
    ("price", "old_price"): _price,
    ("battery_life", "charging_time"): _hours,
    ("warranty", "return_window"): _period,
    ("material", "handle_material"): _one_of(MATERIALS),
    ("colour", "case_colour"): _one_of(COLOURS),
    ("origin", "design"): _one_of(COUNTRIES),
    ("released", "founded"): _year,
    ("height", "cable"): _length,
    ("included", "optional"): _one_of(EXTRAS),
    ("care", "polish"): _one_of(CLEANERS),
}
