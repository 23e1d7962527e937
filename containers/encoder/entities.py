"""Makes entities of the labels of tokens, as transformers' token-classification pipeline does (version 5.23).

In: the shares of every label for each token, [tokens, labels]. Out: the pieces of text that have a label, with scores
of 0 to 1. The text's tokens are those that `spans` has places for; special tokens and padding are -1 there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .tensors import Integers

NOTHING = "O"
"""The label of what is no entity."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Entity:
    """A labelled piece of a text, from the character `start` up to before `end`."""

    label: str
    score: float
    start: int
    end: int


def find(shares: Floats, spans: Integers, labels: Sequence[str], aggregation: str) -> list[Entity]:
    """Returns the entities of one window: `shares` [length, labels] and `spans` [length, 3]."""
    own = spans[:, 0] >= 0
    shares, places = shares[own], spans[own].tolist()
    if aggregation in ("none", "simple"):
        tokens = [_labelled(row, start, end, labels) for row, (start, end, _) in zip(shares, places, strict=True)]
    else:
        tokens = [_word(shares[word], [places[each] for each in word], labels, aggregation) for word in _words(places)]
    entities = tokens if aggregation == "none" else _joined(tokens)
    return [entity for entity in entities if entity.label != NOTHING]


def merged(windows: Sequence[Sequence[Entity]]) -> list[Entity]:
    """Returns the entities of a row: of those of two windows that overlap, the longer, or the surer of equals."""
    if len(windows) == 1:
        return list(windows[0])
    kept: list[Entity] = []
    for entity in sorted((each for window in windows for each in window), key=lambda each: each.start):
        if kept and entity.start < kept[-1].end:
            kept[-1] = max(kept[-1], entity, key=lambda each: (each.end - each.start, each.score))
        else:
            kept.append(entity)
    return kept


def described(entities: Iterable[Entity], text: str) -> list[dict[str, Any]]:
    """Returns the entities as an answer lists them."""
    return [
        {
            "label": entity.label,
            "score": round(entity.score, 6),
            "start": entity.start,
            "end": entity.end,
            "text": text[entity.start : entity.end],
        }
        for entity in entities
    ]


def _labelled(shares: Floats, start: int, end: int, labels: Sequence[str]) -> Entity:
    best = int(shares.argmax())
    return Entity(labels[best], float(shares[best]), start, end)


def _words(places: Sequence[Sequence[int]]) -> list[list[int]]:
    """Returns the tokens of each word."""
    words: list[list[int]] = []
    for token, (_, _, goes_on) in enumerate(places):
        if words and goes_on:
            words[-1].append(token)
        else:
            words.append([token])
    return words


def _word(shares: Floats, places: Sequence[Sequence[int]], labels: Sequence[str], aggregation: str) -> Entity:
    match aggregation:
        case "first":
            chosen = shares[0]
        case "max":
            chosen = shares[shares.max(axis=1).argmax()]
        case _:
            chosen = shares.mean(axis=0)
    return _labelled(chosen, places[0][0], places[-1][1], labels)


def _joined(tokens: Sequence[Entity]) -> list[Entity]:
    """Joins neighbours of one label; one that begins with B- is a new entity."""
    groups: list[list[Entity]] = []
    for token in tokens:
        begins, label = _prefix(token.label)
        if groups and not begins and label == _prefix(groups[-1][-1].label)[1]:
            groups[-1].append(token)
        else:
            groups.append([token])
    return [
        Entity(group[0].label.split("-", 1)[-1], fmean(token.score for token in group), group[0].start, group[-1].end)
        for group in groups
    ]


def _prefix(label: str) -> tuple[bool, str]:
    """Returns whether a label begins an entity, and the label without its B- or I-."""
    return label.startswith("B-"), label[2:] if label[:2] in ("B-", "I-") else label
