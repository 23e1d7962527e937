"""Checks every operator of a traced graph against Neuron's published list, operators.json.

The list is torch-neuron's, for Inf1: an operator that is off it is left to the CPU. torch-neuronx publishes no list for
inference. Whether the compiler accepts an operator with these shapes is unknown.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _facts() -> Any:
    return json.loads(Path(__file__).with_name("operators.json").read_text("utf-8"))


def unsupported(traced: Any) -> list[str]:
    """Returns the operators of a ScriptModule that are neither supported nor left to the CPU, sorted."""
    facts = _facts()
    return sorted(set(_kinds(traced.inlined_graph)) - {*facts["supported"], *facts["limited"], *facts["removed"]})


def on_the_cpu(traced: Any) -> list[str]:
    """Returns a ScriptModule's operators that Neuron leaves to the CPU on purpose, sorted."""
    return sorted(set(_kinds(traced.inlined_graph)) & set(_facts()["removed"]))


def _kinds(graph: Any) -> Iterator[str]:
    for node in graph.nodes():
        yield node.kind()
        for block in node.blocks():
            yield from _kinds(block)
