"""config.pbtxt of what runs on a GPU, to the letter, by Triton's own schema and by its backends' conventions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from model_build.encoder import export
from model_build.plan import BuildPlan, plan
from tests.builders import assert_is_golden
from tests.model_build.miniatures import tiny_bert, tiny_t5
from tests.model_build.tensorrt.tensorrt_graphs import BERTS, bert
from tests.model_build.tensorrt.test_tensorrt_build import T5_TOML

GOLDENS = Path(__file__).parent / "goldens" / "config"
TASKS = ("text-classification", "text-pair-scoring", "question-answering")
BUILDS = [("text2text", "tensorrt")] + [(task, target) for target in ("tensorrt", "pytorch") for task in TASKS]
Plan = Callable[[str, str], BuildPlan]


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    def of(task: str, target: str) -> BuildPlan:
        folder = tmp_path / "workloads"
        if task == "text2text":
            return plan(tiny_t5.make_workload(folder, T5_TOML), target, tmp_path)
        return plan(tiny_bert.make_workload(folder, task), target, tmp_path)

    return of


def configs(planned: BuildPlan) -> dict[str, str]:
    """Returns each model's config.pbtxt."""
    contents = planned.contents(planned.compiled / "graphs")
    return {name.split("/")[0]: str(it) for name, it in contents.items() if name.endswith("config.pbtxt")}


def parse(text: str) -> model_config_pb2.ModelConfig:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


@pytest.mark.parametrize(("task", "target"), BUILDS)
def test_the_models_configs_are_the_golden_file(planned: Plan, task: str, target: str) -> None:
    made = configs(planned(task, target))
    text = "".join(f"# {model}/config.pbtxt\n{made[model]}\n" for model in ("tiny", "tiny_model") if model in made)
    assert_is_golden(GOLDENS / f"{task}.{target}.pbtxt", text)


@pytest.mark.parametrize("task", BERTS)
def test_a_trace_can_be_moved_to_a_gpu_and_has_no_names_of_its_inputs(task: str, tmp_path: Path) -> None:
    """Triton's backend loads it onto its GPU: a device in its code would stay. Names would come before places."""
    load: Any = torch.jit.load
    graph = load(str(export.trace(bert(BERTS[task]), tmp_path)))
    assert "Device = prim::Constant" not in str(graph.inlined_graph)
    assert not {argument.name for argument in graph.forward.schema.arguments} & set(BERTS[task].inputs)


@pytest.mark.parametrize("task", BERTS)
def test_in_mixed_precision_matrices_are_multiplied_in_fp16_and_the_answer_is_near_and_fp32(
    task: str, tmp_path: Path
) -> None:
    """Without a GPU and without an autocast around it, because the trace holds the casts."""
    load: Any = torch.jit.load
    model = bert(BERTS[task])
    graph = load(str(export.trace_mixed(model, tmp_path)))
    text = str(graph.inlined_graph)
    assert "Device = prim::Constant" not in text
    inputs = export.example(model, 3, 5)
    with torch.inference_mode():
        for mixed, full in zip(graph(*inputs), model(*inputs), strict=True):
            assert mixed.dtype == torch.float32
            assert 0 < (mixed - full).abs().max() < 0.01
