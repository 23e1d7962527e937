"""A network for Inf2 has nothing that is split, and computes what the joined one does."""

from typing import Any

import pytest
import torch

from model_build.checkpoint import resolve
from model_build.encoder import bert
from model_build.encoder.export import example
from tests.fake_neuron import SPLITS
from workloads import ROOT, load_workload

NAMES = ("duplicates", "query_intent", "question_answering")


def networks(name: str) -> list[bert.Bert]:
    """Returns the workload's network joined, as all other runtimes have it, and apart."""
    source = load_workload(name)
    model: Any = source.workload.model
    checkpoint = resolve(source, ROOT / "build" / "checkpoints")
    return [bert.load(checkpoint, model, apart=apart) for apart in (False, True)]


def kinds(network: bert.Bert) -> set[str]:
    jit: Any = torch.jit
    with torch.no_grad():
        traced = jit.trace(network, example(network, 2, 8))
    return {node.kind() for node in traced.inlined_graph.nodes()}


@pytest.mark.parametrize("name", NAMES)
def test_products_that_are_apart_give_the_joined_ones_numbers(name: str) -> None:
    joined, apart = networks(name)
    assert kinds(joined) & SPLITS == {"aten::split"}
    assert not kinds(apart) & SPLITS
    torch.manual_seed(3)
    tensors = tuple(
        torch.tensor([20, 11]) if each == "valid_length" else torch.randint(0, 2, (2, 20)) for each in joined.inputs
    )
    with torch.no_grad():
        for one, other in zip(joined(*tensors), apart(*tensors), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
