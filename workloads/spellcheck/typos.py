"""Typing mistakes in search queries: one function for each kind, and `misspell`, which mixes them.

Each kind is a pure function of the query (lower-case letters and single spaces) and a seeded
`random.Random`. It makes one mistake of its kind, or returns the query unchanged where it cannot (no space
to lose, no word long enough to split). Letters are mistaken for their neighbours on a QWERTY keyboard.
Words under four letters are left alone while the query has a longer one: `mat` with a typo could be
anything.
"""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from workloads.spellcheck.grammar import vocabulary

Typo: TypeAlias = Callable[[str, Random], str]

KEYBOARD_NEIGHBOURS: dict[str, str] = {
    "q": "wa",
    "w": "qeas",
    "e": "wrsd",
    "r": "etdf",
    "t": "ryfg",
    "y": "tugh",
    "u": "yihj",
    "i": "uojk",
    "o": "ipkl",
    "p": "ol",
    "a": "qwsz",
    "s": "weadzx",
    "d": "ersfxc",
    "f": "rtdgcv",
    "g": "tyfhvb",
    "h": "yugjbn",
    "j": "uihknm",
    "k": "iojlm",
    "l": "opk",
    "z": "asx",
    "x": "sdzc",
    "c": "dfxv",
    "v": "fgcb",
    "b": "ghvn",
    "n": "hjbm",
    "m": "jkn",
}
SHORTEST_WORD = 4
SHORTEST_FRAGMENT = 2
ATTEMPTS = 100


def insert_letter(query: str, rng: Random) -> str:
    """Hits a neighbouring key as well, before or after the letter that was meant."""
    at = _letter(query, rng)
    extra = _neighbour(query[at], rng)
    after = at + rng.randrange(2)
    return query[:after] + extra + query[after:]


def delete_letter(query: str, rng: Random) -> str:
    """Leaves one letter out."""
    at = _letter(query, rng)
    return query[:at] + query[at + 1 :]


def swap_letters(query: str, rng: Random) -> str:
    """Types two neighbouring, different letters of one word in the wrong order."""
    start, end = _word(query, rng)
    places = [at for at in range(start, end - 1) if query[at] != query[at + 1]]
    if not places:
        return query
    at = rng.choice(places)
    return query[:at] + query[at + 1] + query[at] + query[at + 2 :]


def replace_letter(query: str, rng: Random) -> str:
    """Hits a neighbouring key in place of the letter that was meant."""
    at = _letter(query, rng)
    return query[:at] + _neighbour(query[at], rng) + query[at + 1 :]


def double_letter(query: str, rng: Random) -> str:
    """Types one letter twice."""
    at = _letter(query, rng)
    return query[:at] + query[at] + query[at:]


def split_word(query: str, rng: Random) -> str:
    """Puts a space inside a word."""
    start, end = _word(query, rng)
    places = range(start + SHORTEST_FRAGMENT, end - SHORTEST_FRAGMENT + 1)
    if not places:
        return query
    at = rng.choice(places)
    return f"{query[:at]} {query[at:]}"


def join_words(query: str, rng: Random) -> str:
    """Leaves out one of the spaces."""
    spaces = [at for at, character in enumerate(query) if character == " "]
    if not spaces:
        return query
    at = rng.choice(spaces)
    return query[:at] + query[at + 1 :]


# How often each kind is drawn.
KINDS: dict[Typo, int] = {
    replace_letter: 20,
    delete_letter: 22,
    insert_letter: 14,
    swap_letters: 18,
    double_letter: 12,
    split_word: 6,
    join_words: 8,
}
# How many mistakes a query of live traffic carries.
COUNTS: dict[int, int] = {0: 28, 1: 54, 2: 18}


def misspell(query: str, rng: Random) -> str:
    """Types a query as users do: mostly with one mistake, sometimes two, sometimes none."""
    return corrupt(query, rng.choices(list(COUNTS), weights=list(COUNTS.values()))[0], rng)


def corrupt(query: str, mistakes: int, rng: Random) -> str:
    """Makes that many mistakes, drawn again while the result is unchanged or ambiguous.

    A query that allows no such result within `ATTEMPTS` draws comes back unchanged.
    """
    if mistakes == 0:
        return query
    for _ in range(ATTEMPTS):
        text = query
        for kind in rng.choices(list(KINDS), weights=list(KINDS.values()), k=mistakes):
            text = kind(text, rng)
        if text != query and not is_ambiguous(text, query):
            return text
    return query


def is_ambiguous(text: str, query: str) -> bool:
    """Returns whether the text holds a word of the grammar that the query lacks: it could then mean another query."""
    return any(word in vocabulary() for word in set(text.split()) - set(query.split()))


def _word(query: str, rng: Random) -> tuple[int, int]:
    """Returns start and end of a word to misspell: one of four letters or more, or else the longest."""
    spans = [(at, at + len(word)) for at, word in _words(query)]
    long = [span for span in spans if span[1] - span[0] >= SHORTEST_WORD]
    return rng.choice(long) if long else max(spans, key=lambda span: span[1] - span[0])


def _words(query: str) -> list[tuple[int, str]]:
    """Yields each word with the place where it starts."""
    places, at = [], 0
    for word in query.split(" "):
        places.append((at, word))
        at += len(word) + 1
    return places


def _letter(query: str, rng: Random) -> int:
    start, end = _word(query, rng)
    return rng.randrange(start, end)


def _neighbour(letter: str, rng: Random) -> str:
    return rng.choice(KEYBOARD_NEIGHBOURS[letter])
