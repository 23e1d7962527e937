"""What a deployed template asks for, as far as it can be known from outside: references become physical ids.

A value that only AWS computes (GetAtt, a parameter read from SSM) becomes a pattern of its known parts; `.+` stands for
the rest. Pure: the template and the physical ids come in.
"""

import re
from collections.abc import Mapping
from typing import Any

ANYTHING = re.compile("(?s).+")


def resolve(node: Any, known: Mapping[str, str]) -> Any:
    """`node` with texts, numbers, lists and mappings kept and every function resolved or turned into a pattern."""
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
    if all(isinstance(part, str) for part in parts):
        return separator.join(parts)
    return re.compile("(?s)" + re.escape(separator).join(_pattern(part) for part in parts))


def _pattern(part: Any) -> str:
    return part.pattern.removeprefix("(?s)") if isinstance(part, re.Pattern) else re.escape(str(part))
