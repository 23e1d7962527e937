"""Checks every operator of a traced graph against Neuron's published list.

In: a graph of torch.jit.trace. Out: the names of operators that are not on it. The list is a file beside this one.

It is torch-neuron's, for Inf1. An operator that is off it is left to the CPU, and each change of place costs time.
torch-neuronx publishes no list for inference: it records what torch-xla makes of the model. The one list there is, of
training, names XLA's own operators, which a TorchScript graph does not show. What the list cannot tell: whether the
compiler accepts an operator with these shapes.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

FACTS = Path(__file__).with_name("operators.json")


@cache
def _facts() -> Any:
    return json.loads(FACTS.read_text("utf-8"))


def supported() -> frozenset[str]:
    """Returns the operators that run on a NeuronCore, also under a condition: see `limited` of the facts."""
    return frozenset(_facts()["supported"]) | frozenset(_facts()["limited"])


def left_to_the_cpu() -> frozenset[str]:
    """Returns the operators that Neuron took off its list on purpose, with the reason in the facts."""
    return frozenset(_facts()["removed"])


def unsupported(traced: Any) -> list[str]:
    """Returns the operators of a ScriptModule that are neither supported nor left to the CPU, sorted."""
    return sorted(set(_kinds(traced.inlined_graph)) - supported() - left_to_the_cpu())


def on_the_cpu(traced: Any) -> list[str]:
    """Returns a torch.jit.ScriptModule's operators that Neuron leaves to the CPU, sorted."""
    return sorted(set(_kinds(traced.inlined_graph)) & left_to_the_cpu())


def _kinds(graph: Any) -> Iterator[str]:
    for node in graph.nodes():
        yield node.kind()
        for block in node.blocks():
            yield from _kinds(block)
