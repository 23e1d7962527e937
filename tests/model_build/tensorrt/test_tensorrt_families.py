"""NVIDIA's own parser and builder take every family's graphs, with the profiles that trtexec would get."""

from dataclasses import replace
from pathlib import Path

import pytest

from model_build.backends import backend
from model_build.matrix import BEAMS, GENERATION, rows
from model_build.plan import plan
from model_build.progress import silent
from model_build.tensorrt.engines import check_graphs
from tests.model_build.miniatures.tiny_rows import make_workload
from tests.model_build.tensorrt.tensorrt_graphs import PRECISIONS, fp32_products, needs_rtx
from workloads import TensorRtTarget

CELLS = [(row.model_type, row.task) for row in rows() if "tensorrt" in row.targets and row.task != BEAMS]
TYPES = ("ml.g4dn.xlarge", "ml.g5.xlarge", "ml.g6.xlarge")
QUICK = ("roberta", "text-classification")
FULLY = {QUICK, ("bert", "text-classification"), ("modernbert", "text-classification"), ("t5", GENERATION)}
"""Built in each precision for each GPU. A builder takes seconds an engine, and the other families' graphs are alike."""
ALL = [pytest.param(*each, marks=() if each == QUICK else pytest.mark.slow) for each in CELLS]


@needs_rtx
@pytest.mark.parametrize(("family", "task"), ALL)
def test_nvidias_builder_makes_engines_for_t4_a10g_and_l4(family: str, task: str, tmp_path: Path) -> None:
    """Refused are products in fp32 for a T4, which this builder alone has not."""
    made = plan(make_workload(tmp_path / "workloads", family, task), "tensorrt", tmp_path)
    assert isinstance(made.target, TensorRtTarget)
    each_type = [(precision, TYPES) for precision in PRECISIONS]
    spread = [("fp32", TYPES[1:2]), ("fp16", (TYPES[0], TYPES[2]))]
    for precision, types in each_type if (family, task) in FULLY else spread:
        target = made.target.model_copy(update={"precision": precision, "instance_types": types})
        inputs = replace(made.compile_inputs, target=target)
        typed = backend(made).typed_graphs(inputs, tmp_path / precision, tmp_path, silent)
        checked = check_graphs(inputs, typed, silent)
        assert len(checked) == len(types) * (2 if task == GENERATION else 1)
        for each in checked:
            refused = each.compute_capability == "7.5" and fp32_products(typed[each.graph])
            assert not each.failed, (precision, each)
            assert (each.plan_bytes is None) == refused, (precision, each)
