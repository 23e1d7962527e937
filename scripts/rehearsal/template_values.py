"""What a deployed template asks for, as far as it can be known from outside: references become physical ids.

A value that only AWS computes (GetAtt, a parameter read from SSM) is known by its pieces: the texts around what is not
known. Pure: the template and the physical ids come in.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Pieces:
    """A text with gaps between its pieces, each gap at least one character long."""

    pieces: tuple[str, ...]

    def fits(self, text: str) -> bool:
        first, *rest = self.pieces
        if not text.startswith(first):
            return False
        place = len(first)
        for number, piece in enumerate(rest, start=1):
            last = number == len(rest)
            found = text.rfind(piece) if last and piece else text.find(piece, place + 1)
            if last and not piece:
                return place < len(text)
            if found <= place or (last and found + len(piece) != len(text)):
                return False
            place = found + len(piece)
        return place == len(text)


ANYTHING = Pieces(("", ""))


def resolve(node: Any, known: Mapping[str, str]) -> Any:
    """`node` with its texts, numbers, lists and mappings, and every function resolved or turned into pieces."""
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
            found = {key: resolve(value, known) for key, value in node.items()}
            return {key: value for key, value in found.items() if value is not None}
        case list():
            return [resolve(item, known) for item in node]
    return node


def _joined(separator: str, parts: list[Any]) -> Any:
    """One text, or pieces where a part has gaps."""
    made = [""]
    for number, part in enumerate(parts):
        made[-1] += separator if number else ""
        pieces = part.pieces if isinstance(part, Pieces) else (str(part),)
        made[-1] += pieces[0]
        made += pieces[1:]
    return made[0] if len(made) == 1 else Pieces(tuple(made))
