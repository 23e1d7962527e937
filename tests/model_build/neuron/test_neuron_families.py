"""Every family of our own network has only operators of Neuron's list, and no split for Inf2."""

from pathlib import Path
from typing import Any

import pytest
import torch

from model_build.encoder import bert
from model_build.matrix import rows
from model_build.neuron.arguments import calls
from model_build.neuron.backend import torch_examples
from model_build.plan import plan
from tests.fake_neuron import SPLITS
from tests.model_build.miniatures.tiny_rows import make_workload
from tests.model_build.neuron import operators
from workloads import NeuronTarget

jit: Any = torch.jit
CELLS = [(row.model_type, row.task) for row in rows() if "inf1" in row.targets]
QUICK = {("distilbert", "text-classification"), ("electra", "token-classification"), ("bert", "text-pair-scoring")}


def traced(network: bert.Bert, tensors: Any) -> Any:
    with torch.no_grad():
        return jit.trace(network, tensors)


def kinds(graph: Any) -> set[str]:
    return {node.kind() for node in graph.inlined_graph.nodes()}


@pytest.mark.parametrize(
    ("family", "task"), [pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow) for each in CELLS]
)
def test_every_operator_is_on_neurons_list_but_the_embedding_which_it_leaves_to_the_cpu(
    family: str, task: str, tmp_path: Path
) -> None:
    """A network for Inf2 has nothing that is split, and computes what the joined one does."""
    planned = plan(make_workload(tmp_path / "workloads", family, task), "inf1", tmp_path)
    model, target = planned.compile_inputs.encoder, planned.target
    assert isinstance(target, NeuronTarget)
    joined, apart = (bert.load(planned.checkpoint, model, apart=apart) for apart in (False, True))
    for call in calls(target, model):
        graph = traced(joined, torch_examples(call))
        assert operators.unsupported(graph) == []
        assert operators.on_the_cpu(graph) == ["aten::embedding"]
    assert "aten::split" in kinds(graph)
    assert not kinds(traced(apart, torch_examples(call))) & SPLITS
    tensors = [torch.tensor([20, 11]) if each == "valid_length" else torch.ones(2, 20).long() for each in joined.inputs]
    with torch.no_grad():
        for one, other in zip(joined(*tensors), apart(*tensors), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
