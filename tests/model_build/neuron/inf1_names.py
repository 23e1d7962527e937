"""Finds what a file calls in torch and numpy that the Inf1 image's versions of them do not have.

In: a Python file. Out: sentences with the line. The names are in inf1_names.json, written inside the environment of
`make inf1` by `python tests/model_build/neuron/inf1_names.py > tests/model_build/neuron/inf1_names.json`, which needs
nothing but the two packages. Methods are told only by their name, because a syntax tree knows no types: one that
today's Tensor, Module or ndarray has and the old one lacks is named, whatever it is called on. What it cannot see:
arguments and behaviour that changed, for which the build itself runs there (test_neuron_images.py).
"""

import ast
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FACTS = Path(__file__).with_name("inf1_names.json")
MODULES = ("torch", "torch.jit", "torch.nn", "torch.nn.functional", "numpy")
CLASSES = ("torch.Tensor", "torch.nn.Module", "numpy.ndarray")


def public(name: str) -> set[str]:
    """Returns the public names of a module, or of a class in a module, as they are installed here."""
    module, _, short = ("", "", name) if name in MODULES else name.rpartition(".")
    found = importlib.import_module(name) if not module else getattr(importlib.import_module(module), short)
    inside = {each.name for each in pkgutil.iter_modules(getattr(found, "__path__", ()))}
    return {each for each in inside | set(dir(found)) if not each.startswith("_")}


@cache
def facts() -> Any:
    return json.loads(FACTS.read_text("utf-8"))


def known(name: str) -> set[str]:
    """Returns the public names of a module or class in the image's versions."""
    return set(facts()["names"][name].split())


@cache
def newer_methods() -> frozenset[str]:
    """Returns the methods of the versions here that no class of the image's versions has, nor a list."""
    return frozenset(set().union(*map(public, CLASSES)) - set().union(dir(list), *map(known, CLASSES)))


def newer_names(file: Path) -> list[str]:
    """Returns a sentence for each name that the image does not have, in the order of the lines."""
    tree = ast.parse(file.read_text("utf-8"))
    aliases = dict(_imported(tree))
    if not any(name.split(".")[0] in ("torch", "numpy") for name in aliases.values()):
        return []
    found = {(line, each) for line, name in _names(tree, aliases) for each in _missing(name)}
    found |= {
        (node.lineno, f".{node.attr}")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in newer_methods() and not _dotted(node, aliases)
    }
    return [f"{file.name}:{line}: {name}" for line, name in sorted(found)]


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields each name that a module of torch or numpy, or something in one, goes by, and what it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0], alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            name = ast.unparse(node.value)  # `jit: Any = torch.jit`
            if name in MODULES:
                yield node.target.id, name


def _names(tree: ast.AST, aliases: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yields each dotted name that begins with an import, and each import itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute) and (name := _dotted(node, aliases)):
            yield node.lineno, name


def _dotted(node: ast.expr, aliases: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, aliases)
        return base and f"{base}.{node.attr}"
    return aliases.get(node.id) if isinstance(node, ast.Name) else None


def _missing(name: str) -> Iterator[str]:
    parts = name.split(".")
    for end in range(1, len(parts)):
        outer = ".".join(parts[:end])
        if outer in facts()["names"] and parts[end] not in known(outer):
            yield f"{outer}.{parts[end]}"


def document() -> dict[str, Any]:
    versions = {name: importlib.import_module(name).__version__.split("+")[0] for name in ("torch", "numpy")}
    return {"versions": versions, "names": {name: " ".join(sorted(public(name))) for name in (*MODULES, *CLASSES)}}


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=1)
    print()
