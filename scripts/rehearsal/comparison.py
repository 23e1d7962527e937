"""Compares what a template asked for with what an API tells. Pure.

Names differ in case only; numbers and booleans may be texts; lists are compared in any order. Each leaf of what is
asked is equal, different, or not told at all.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scripts.rehearsal.template_values import Pieces


@dataclass
class Comparison:
    equal: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)

    def add(self, other: "Comparison") -> None:
        self.equal += other.equal
        self.different += other.different
        self.untold += other.untold


def compare(asked: Any, told: Any, path: str = "") -> Comparison:
    asked, told = _parsed(asked, told)
    match asked, told:
        case Mapping(), Mapping():
            return _mappings(asked, told, path)
        case Mapping(), list() if all(_is_pair(each) for each in told):
            return _mappings(asked, _from_pairs(told), path)
        case list(), Mapping() if all(_is_pair(each) for each in asked):
            return _mappings(_from_pairs(asked), told, path)
        case list(), list():
            return _lists(asked, told, path)
        case list(), str():
            return _lists(asked, told.split(","), path)
    if _same(asked, told):
        return Comparison(equal=[path])
    return Comparison(different=[f"{path}: asked {_shown(asked)}, told {_shown(told)}"])


def leaves(asked: Any, path: str) -> Iterator[str]:
    if isinstance(asked, Mapping) and asked:
        for key, value in asked.items():
            yield from leaves(value, f"{path}.{key}" if path else key)
    else:
        yield path


def _mappings(asked: Mapping[str, Any], told: Mapping[str, Any], path: str) -> Comparison:
    names = {key.lower(): key for key in told}
    result = Comparison()
    for key, value in asked.items():
        below = f"{path}.{key}" if path else key
        name = names.get(key.lower())
        if name is None or told[name] is None:
            result.untold += list(leaves(value, below))
        else:
            result.add(compare(value, told[name], below))
    return result


def _lists(asked: list[Any], told: list[Any], path: str) -> Comparison:
    """Compares each asked item with the told item that fits best."""
    result, remaining = Comparison(), list(told)
    for number, item in enumerate(asked):
        tries = []
        for each in remaining:
            tries.append(compare(item, each, f"{path}[{number}]"))
            if not (tries[-1].different or tries[-1].untold):
                break
        if not tries:
            result.different.append(f"{path}[{number}]: asked {_shown(item)}, told nothing")
            continue
        best = min(range(len(tries)), key=lambda index: (len(tries[index].different), len(tries[index].untold)))
        result.add(tries[best])
        remaining.pop(best)
    return result


def _parsed(asked: Any, told: Any) -> tuple[Any, Any]:
    """Parses documents inside texts (policies, definitions), so that they are compared as documents."""
    if isinstance(told, str) and told[:1] in ("{", "["):
        try:
            document = json.loads(told)
        except ValueError:
            return asked, told
        if isinstance(asked, str):
            return json.loads(asked), document
        if not isinstance(asked, Pieces):
            return asked, document
    return asked, told


def _same(asked: Any, told: Any) -> bool:
    if isinstance(asked, Pieces):
        return asked.fits(str(told))
    if isinstance(asked, bool) or isinstance(told, bool):
        return str(asked).lower() == str(told).lower()
    try:
        return float(asked) == float(told)
    except (TypeError, ValueError):
        return bool(str(asked) == str(told)) or _names(asked, told) or _names(told, asked)


def _names(name: Any, arn: Any) -> bool:
    """Returns whether `arn` is an ARN that ends with `name`: the two name the same thing."""
    return str(arn).startswith("arn:") and str(arn).endswith((f"/{name}", f":{name}"))


def _is_pair(item: Any) -> bool:
    return isinstance(item, Mapping) and {key.lower() for key in item} in ({"key", "value"}, {"name", "value"})


def _from_pairs(pairs: list[Any]) -> dict[str, Any]:
    rows = [{key.lower(): value for key, value in pair.items()} for pair in pairs]
    return {str(row.get("key", row.get("name"))): row["value"] for row in rows}


def _shown(value: Any) -> str:
    text = "…".join(value.pieces) if isinstance(value, Pieces) else json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
