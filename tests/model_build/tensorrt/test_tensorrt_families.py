"""Every family's graphs are taken by TensorRT, as far as a machine without a GPU can tell.

Two say so: the list of operators that ONNX-TensorRT publishes, and NVIDIA's own parser and builder with the profiles
that trtexec would get.
"""

import re
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from model_build.backends import backend
from model_build.matrix import BEAMS, GENERATION, rows
from model_build.plan import BuildPlan, plan
from model_build.progress import silent
from model_build.tensorrt.precision import T5_CACHES, to_fp16
from tests.model_build.miniatures.tiny_rows import make_workload
from tests.model_build.tensorrt.operators import unsupported
from tests.model_build.tensorrt.tensorrt_graphs import PRECISIONS, fp32_products, needs_rtx
from workloads import TensorRtTarget

CELLS = [(row.model_type, row.task) for row in rows() if "tensorrt" in row.targets and row.task != BEAMS]
UNPUBLISHED = re.compile(r"(Clip|CumSum) \S+ \S+ is INT64;")
"""Operators that the list has for floats alone and NVIDIA's builder takes of whole numbers, too: positions of MPNet,
RoBERTa-PreLayerNorm and XLM-RoBERTa-XL, and distances of DeBERTa."""
QUICK = ("roberta", "text-classification")
ALL = [pytest.param(*each, marks=() if each == QUICK else pytest.mark.slow) for each in CELLS]


def planned(folder: Path, family: str, task: str) -> BuildPlan:
    return plan(make_workload(folder / "workloads", family, task), "tensorrt", folder)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "task"), CELLS)
def test_every_operator_is_published_as_taken_or_known_to_be(family: str, task: str, tmp_path: Path) -> None:
    made = planned(tmp_path, family, task)
    assert backend(made).layers(made.compile_inputs, tmp_path, silent)
    graphs = sorted(tmp_path.rglob("*.onnx"))
    assert [graph.stem for graph in graphs] == (["decoder", "encoder"] if task == GENERATION else ["model"])
    for graph in map(onnx.load, graphs):
        for typed in (graph, to_fp16(graph, half=T5_CACHES)):
            assert [problem for problem in unsupported(typed) if not UNPUBLISHED.match(problem)] == []


@needs_rtx
@pytest.mark.parametrize(("family", "task"), ALL)
def test_nvidias_builder_makes_engines_for_t4_and_a10g(family: str, task: str, tmp_path: Path) -> None:
    """Refused are products in fp32 for a T4, which this builder alone has not."""
    made = planned(tmp_path, family, task)
    assert isinstance(made.target, TensorRtTarget)
    for precision in PRECISIONS:
        inputs = replace(made.compile_inputs, target=made.target.model_copy(update={"precision": precision}))
        checked = backend(made).check_engines(inputs, tmp_path, silent)
        assert len(checked) == (4 if task == GENERATION else 2)
        for each in checked:
            (graph,) = tmp_path.rglob(f"{each.graph}{'.fp16' if precision == 'fp16' else ''}.onnx")
            refused = each.compute_capability == "7.5" and fp32_products(graph)
            assert not each.failed, (precision, each)
            assert (each.plan_bytes is None) == refused, (precision, each)
