"""Resolves a deployed template's functions as far as that is possible from outside. Pure.

References become physical ids. A value that only AWS computes (GetAtt, a parameter read from SSM) becomes the known
texts around it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Pieces:
    """A text of which only pieces are known; each gap between two is at least one character long."""

    pieces: tuple[str, ...]

    def fits(self, text: str) -> bool:
        first, *rest = self.pieces
        if not text.startswith(first):
            return False
        place = len(first)
        for number, piece in enumerate(rest, start=1):
            last = number == len(rest)
            at = text.rfind(piece) if last and piece else text.find(piece, place + 1)
            if last and not piece:
                return place < len(text)
            if at <= place or (last and at + len(piece) != len(text)):
                return False
            place = at + len(piece)
        return place == len(text)


ANYTHING = Pieces(("", ""))


def resolve(node: Any, known: Mapping[str, str]) -> Any:
    """Returns `node` with every function resolved to its value or to `Pieces`. `known` maps names to physical ids."""
    match node:
        case {"Ref": str(name)} if len(node) == 1:
            return None if name == "AWS::NoValue" else known.get(name, ANYTHING)
        case {"Fn::Join": [separator, list(parts)]}:
            return _joined(str(separator), [resolve(part, known) for part in parts])
        case {"Fn::Sub": str(text)}:
            pieces = re.split(r"\$\{([^}]+)\}", text)
            values = [resolve({"Ref": piece}, known) if odd % 2 else piece for odd, piece in enumerate(pieces)]
            return _joined("", values)
        case Mapping() if len(node) == 1 and next(iter(node)).startswith("Fn::"):
            return ANYTHING
        case Mapping():
            resolved = {key: resolve(value, known) for key, value in node.items()}
            return {key: value for key, value in resolved.items() if value is not None}
        case list():
            return [resolve(item, known) for item in node]
    return node


def _joined(separator: str, parts: list[Any]) -> Any:
    """Returns a text, or pieces where a part has gaps."""
    made = [""]
    for number, part in enumerate(parts):
        made[-1] += separator if number else ""
        pieces = part.pieces if isinstance(part, Pieces) else (str(part),)
        made[-1] += pieces[0]
        made += pieces[1:]
    return made[0] if len(made) == 1 else Pieces(tuple(made))
