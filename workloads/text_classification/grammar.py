"""A grammar of product reviews: one to about fifty sentences on one product, and whether they praise or blame it.

Input: a seeded `random.Random`. Templates stand in `sentences.txt`; products come from spellcheck's lexicon. A review
leans one way: more than two of three opinions, and its verdict where it has one, are on its label's side; the others,
the neutral sentences and what is said of other things are noise.
"""

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

from workloads.product_bert.phrasing import sections, settle, slots
from workloads.spellcheck.grammar import Family, families

SENTENCES_FILE = Path(__file__).with_name("sentences.txt")

Label: TypeAlias = Literal["negative", "positive"]
# Whether a sentence may be drawn.
Allowed: TypeAlias = Callable[[str], bool]

LABELS: tuple[Label, ...] = ("negative", "positive")
OPPOSITE: dict[Label, Label] = {"negative": "positive", "positive": "negative"}
ELSEWHERE: dict[Label, str] = {"negative": "blamed_elsewhere", "positive": "praised_elsewhere"}

# Fewest and most sentences of a review, and how often.
LENGTHS: dict[tuple[int, int], int] = {(1, 2): 25, (3, 8): 40, (9, 20): 25, (21, 48): 10}
# The model reads 512 tokens, [CLS] and [SEP] included. Rare words and typing mistakes take more than one token.
MAX_WORDS = 470
OPINION_SHARE, ELSEWHERE_SHARE = 0.55, 0.12
VERDICT_SHARE = 0.5
OTHER_SIDE = 1 / 3

ASPECTS = """quality; price; size; colour; packaging; material; finish; design; weight; smell; handle; lid; surface;
stitching; workmanship; delivery; service; feel; shape; fit; sound; grip; cleaning; assembly; battery; warranty"""
PERSONS = "sister; brother; mother; father; wife; husband; son; daughter; neighbour; flatmate; colleague"
WORDS: dict[str, str] = {
    "aspect": ASPECTS,
    "person": PERSONS,
    "very": "very; really; quite; rather; truly; surprisingly; extremely; simply",
    "day": "Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday",
    "time": "two days; a week; ten days; three weeks; a month; two months; half a year; a year",
}


@dataclass(frozen=True, slots=True)
class Review:
    """A review and its label; `opinions` are the sentences that carry it, as the text has them."""

    text: str
    label: Label
    opinions: tuple[str, ...]


@cache
def templates() -> dict[str, tuple[str, ...]]:
    return sections(SENTENCES_FILE)


def sample(label: Label, rng: Random, allowed: Allowed) -> Review:
    """Draws one review of that label; every opinion and verdict in it is allowed."""
    family = rng.choice(families())
    family = {**family, "type": (rng.choice(family["type"]),)}
    shortest, longest = rng.choices(list(LENGTHS), weights=list(LENGTHS.values()))[0]
    texts: dict[str, None] = {}
    opinions: list[str] = []
    for kind in _kinds(label, rng.randint(shortest, longest), rng):
        carries = kind in LABELS or kind == f"{label}_verdict"
        text = _sentence(kind, family, rng, texts, allowed if carries else lambda _: True)
        texts[text] = None
        if carries:
            opinions.append(text)
    return Review(" ".join(texts), label, tuple(opinions))


def _kinds(label: Label, count: int, rng: Random) -> list[str]:
    """Returns the kind of each sentence, in order: opinions, a minority of them on the other side, amid noise."""
    verdict = [f"{label}_verdict"] if rng.random() < VERDICT_SHARE else []
    opinions = max(1, round((count - len(verdict)) * OPINION_SHARE))
    others = int(rng.random() * (opinions * OTHER_SIDE + 1))
    if 3 * others > opinions:
        others -= 1
    kinds: list[str] = [*[label] * (opinions - others), *[OPPOSITE[label]] * others]
    while len(kinds) + len(verdict) < count:
        elsewhere = rng.random() < ELSEWHERE_SHARE / (1 - OPINION_SHARE)
        kinds.append(ELSEWHERE[rng.choice(LABELS)] if elsewhere else "neutral")
    rng.shuffle(kinds)
    return kinds + verdict


def _sentence(kind: str, family: Family, rng: Random, said: Container[str], allowed: Allowed) -> str:
    """Draws a sentence that the review does not have yet."""
    while True:
        text = settle(rng.choice(templates()[kind]), rng)
        for slot in slots(text):
            text = text.replace(f"{{{slot}}}", _fill(slot, family, rng), 1)
        text = re.sub(r" ([,.!])", r"\1", text)
        if text not in said and allowed(text):
            return text


def _fill(slot: str, family: Family, rng: Random) -> str:
    if slot in ("good", "bad"):
        return rng.choice(templates()[slot])
    if slot == "brand":
        return rng.choice(family[slot]).capitalize()
    if slot == "colour":
        return rng.choice(family[slot] or families()[0][slot])
    return rng.choice(_phrases(slot) if slot in WORDS else family[slot])


@cache
def _phrases(slot: str) -> list[str]:
    return [" ".join(phrase.split()) for phrase in WORDS[slot].split(";")]
