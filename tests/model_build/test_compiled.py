"""A target is compiled again for other inputs, other tools or other code of its backend, and for nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest

from model_build import compiled
from model_build.compile_inputs import CompileInputs
from model_build.compiled import Compiled, code_sha256, compile_key
from model_build.plan import BuildPlan, plan
from tests.model_build.miniatures import tiny_bert
from workloads import NeuronTarget, OnnxRuntimeTarget, Parity, TensorRtTarget
from workloads.model import Generation
from workloads.objective import TargetObjective


@pytest.mark.parametrize(
    ("file", "again"),
    [("model_build/encoder/export.py", True), ("containers/tensors.py", True), ("model_build/lint/check.py", False)],
)
def test_other_code_compiles_again_unless_it_only_lints(file: str, again: bool, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("before")
    before = code_sha256(tmp_path)
    (tmp_path / file).write_text("after")
    code_sha256.cache_clear()
    assert (code_sha256(tmp_path) != before) is again


@pytest.fixture
def inputs(tiny_plan: BuildPlan) -> CompileInputs:
    return tiny_plan.compile_inputs


def test_how_a_model_is_served_and_how_far_it_may_differ_compile_nothing_again(inputs: CompileInputs) -> None:
    objective = TargetObjective(model_latency_ms=200.0)
    target = inputs.target.model_copy(update={"parity": Parity(max_metric_drop=0.5), "objective": objective})
    assert compile_key(replace(inputs, target=target)) == compile_key(inputs)
    batches = inputs.batches.model_copy(update={"max_batch_size": 64})
    assert compile_key(replace(inputs, batches=batches)) == compile_key(inputs)


def test_of_the_decoding_only_the_number_of_beams_compiles_again(inputs: CompileInputs) -> None:
    def key(generation: Generation | None) -> str:
        return compile_key(replace(inputs, model=inputs.model.model_copy(update={"generation": generation})))

    assert key(Generation(guided="input")) == key(Generation()) == key(None)
    assert key(Generation(num_beams=4)) != key(None)


def test_the_batches_of_an_engine_compile_it_again(inputs: CompileInputs) -> None:
    engine = replace(inputs, target=TensorRtTarget(runtime="tensorrt", instance_types=("ml.g5.xlarge",)))
    batches = inputs.batches.model_copy(update={"max_batch_size": 64})
    assert compile_key(replace(engine, batches=batches)) != compile_key(engine)


def test_other_calibration_texts_compile_a_statically_quantised_graph_again(tmp_path: Path) -> None:
    workload = tiny_bert.make_workload(tmp_path / "workloads", "text-classification")
    for name, again in (("openvino-int8", True), ("cpu-int8", False), ("cpu", False)):
        inputs = plan(workload, name, tmp_path).compile_inputs
        changed = replace(inputs, calibration=inputs.calibration[1:])
        assert (compile_key(changed) != compile_key(inputs)) is again, name


@pytest.mark.parametrize(
    ("target", "tool"),
    [
        (OnnxRuntimeTarget(runtime="onnxruntime"), "onnxruntime"),
        (NeuronTarget(runtime="neuron"), "neuron-cc"),
        (NeuronTarget(runtime="neuronx"), "neuronx-cc"),
    ],
)
def test_another_version_of_a_tool_compiles_again(
    inputs: CompileInputs, target: OnnxRuntimeTarget | NeuronTarget, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = replace(inputs, target=target)
    before = compile_key(inputs)
    monkeypatch.setattr(compiled, "version", lambda name: "99.0" if name == tool else "1.0")
    other = compile_key(inputs)
    monkeypatch.setattr(compiled, "version", lambda name: "98.0" if name == tool else "1.0")
    assert len({before, other, compile_key(inputs)}) == 3


def test_a_record_that_an_older_version_wrote_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "compiled.json").write_text('{"key": "k", "toolchain": {}, "parity": null}')
    assert Compiled.load(tmp_path, "k") is None
