"""The small template language of the grammars: `(track|find) my {type}`.

`(one|other|)` is a choice, the empty one included; `{slot}` is filled by the grammar that owns the template. Files of
templates hold `[section]` lines with one template a line below each; `#` begins a comment. What a template becomes
when its choices are settled and its slots are not is called a phrasing.
"""

import hashlib
import re
from pathlib import Path
from random import Random

CHOICE = re.compile(r"\(([^()]*)\)")
SLOT = re.compile(r"{(\w+)}")


def sections(file: Path) -> dict[str, tuple[str, ...]]:
    """Returns the templates of each section, in the file's order."""
    found: dict[str, list[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            section.append(line)
    return {name: tuple(templates) for name, templates in found.items()}


def settle(template: str, rng: Random) -> str:
    """Returns a phrasing of the template: every choice drawn, spaces put right, slots left open."""
    text = CHOICE.sub(lambda choice: rng.choice(choice[1].split("|")), template)
    return " ".join(text.split())


def slots(phrasing: str) -> list[str]:
    """Returns the names of the open slots, in order."""
    return SLOT.findall(phrasing)


def words(template: str) -> set[str]:
    """Returns every lower-case word that the template itself can put into a text."""
    return set(re.findall(r"[a-z]+", SLOT.sub(" ", template).lower()))


def is_held_out(key: str) -> bool:
    """Returns whether the key's text is kept for evaluation: about a tenth of all, by SHA-256."""
    return hashlib.sha256(key.encode()).digest()[0] % 10 == 0
