"""A target is compiled again for other inputs, other tools or other code of its backend, and for nothing else."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from model_build import compiled
from model_build.backends import BACKENDS
from model_build.compile_inputs import BackendName, CompileInputs
from model_build.compiled import COMPILING_MODULES, OWN_PACKAGES, Compiled, code_sha256, compile_key, imported_files
from model_build.plan import BuildPlan, plan
from tests.model_build.miniatures import tiny_bert
from workloads import ROOT, NeuronTarget, OnnxRuntimeTarget, Parity, TensorRtTarget
from workloads.objective import TargetObjective

COMPILES: Mapping[BackendName, tuple[str, ...]] = {
    "text2text": (
        "model_build/text2text/compile.py",
        "model_build/text2text/export.py",
        "model_build/text2text/optimise.py",
        "model_build/tensorrt/precision.py",
        "model_build/layers.py",
    ),
    "encoder": (
        "model_build/encoder/compile.py",
        "model_build/encoder/export.py",
        "model_build/encoder/bert.py",
        "model_build/encoder/optimise.py",
        "model_build/tensorrt/trtexec.py",
        "containers/encoder/preprocess.py",
        "containers/encoder/tensors.py",
    ),
    "neuron": (
        "model_build/neuron/backend.py",
        "model_build/neuron/arguments.py",
        "model_build/encoder/bert.py",
    ),
}
"""Some of the files that decide what the backend compiles."""
COMPILES_NOTHING = (
    "model_build/__main__.py",
    "model_build/build.py",
    "model_build/compiler_calls.py",
    "model_build/triton/config_pbtxt.py",
    "model_build/lint/check.py",
    "model_build/lint/hosting.py",
    "model_build/parity.py",
    "model_build/plan.py",
    "model_build/remote/request.py",
    "model_build/render.py",
    "model_build/triton/repository.py",
    "model_build/encoder/ensemble.py",
    "model_build/encoder/verify.py",
    "model_build/text2text/repository.py",
    "model_build/text2text/verify.py",
    "model_build/neuron/package.py",
    "containers/encoder/answers.py",
    "containers/text2text/generator.py",
)
"""Files that no backend compiles with: the command line, checks, packing and verification."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages whose code is hashed."""
    root = tmp_path_factory.mktemp("source")
    for package in OWN_PACKAGES:
        copytree(ROOT / package, root / package, ignore=ignore_patterns("__pycache__"))
    return root


def hash_after_change(source: Path, file: str, backend: BackendName) -> str:
    before = (source / file).read_text("utf-8")
    (source / file).write_text(f"{before}\nCHANGED = True\n", "utf-8")
    code_sha256.cache_clear()
    try:
        return code_sha256(backend, source)
    finally:
        (source / file).write_text(before, "utf-8")
        code_sha256.cache_clear()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copy_of_the_code_has_its_hash(source: Path, backend: BackendName) -> None:
    assert code_sha256(backend, source) == code_sha256(backend)


@pytest.mark.parametrize(
    ("backend", "file"), [(backend, file) for backend, files in COMPILES.items() for file in files]
)
def test_a_change_of_compiling_code_changes_the_hash(source: Path, backend: BackendName, file: str) -> None:
    assert hash_after_change(source, file, backend) != code_sha256(backend)


@pytest.mark.parametrize("file", COMPILES_NOTHING)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_change_elsewhere_keeps_the_hash(source: Path, backend: BackendName, file: str) -> None:
    assert hash_after_change(source, file, backend) == code_sha256(backend)


def test_a_change_of_one_backend_does_not_touch_the_others(source: Path) -> None:
    assert hash_after_change(source, "model_build/encoder/export.py", "text2text") == code_sha256("text2text")
    assert hash_after_change(source, "model_build/text2text/export.py", "encoder") == code_sha256("encoder")
    assert hash_after_change(source, "model_build/encoder/export.py", "neuron") == code_sha256("neuron")


@pytest.fixture(scope="module")
def ran() -> dict[str, list[str]]:
    """Returns our files that ran for the import of each compiling module: Python itself says so.

    Each finds none of our modules imported before; torch, whose import takes seconds, stays imported.
    """
    return {module: _import_alone(module) for module in COMPILING_MODULES.values()}


def _import_alone(module: str) -> list[str]:
    kept = {name: sys.modules.pop(name) for name in _ours()}
    try:
        importlib.import_module(module)
        return [file for name in _ours() if (file := sys.modules[name].__file__)]
    finally:
        for name in _ours():
            del sys.modules[name]
        sys.modules.update(kept)


def _ours() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] in OWN_PACKAGES]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_imported_module_of_this_project_is_hashed(ran: dict[str, list[str]], backend: BackendName) -> None:
    module = COMPILING_MODULES[backend]
    files = {Path(file) for file in ran[module]}
    assert files
    assert files <= imported_files(module)


def test_imports_for_the_type_checker_and_of_others_are_not_followed(tmp_path: Path) -> None:
    for name in ("__init__", "plan", "near", "far"):
        (tmp_path / "model_build").mkdir(exist_ok=True)
        (tmp_path / "model_build" / f"{name}.py").touch()
    (tmp_path / "model_build" / "start.py").write_text(
        "from typing import TYPE_CHECKING\nimport torch\nfrom .near import something\n"
        "if TYPE_CHECKING:\n    from model_build.plan import BuildPlan\n"
        "def later():\n    from model_build import far\n"
    )
    names = {file.stem for file in imported_files("model_build.start", tmp_path)}
    assert names == {"__init__", "start", "near", "far"}


@pytest.fixture
def inputs(tiny_plan: BuildPlan) -> CompileInputs:
    return tiny_plan.compile_inputs


def test_how_a_model_is_served_and_how_far_it_may_differ_compile_nothing_again(inputs: CompileInputs) -> None:
    objective = TargetObjective(model_latency_ms=200.0)
    target = inputs.target.model_copy(update={"parity": Parity(max_metric_drop=0.5), "objective": objective})
    assert compile_key(replace(inputs, target=target)) == compile_key(inputs)
    batches = inputs.batches.model_copy(update={"max_batch_size": 64})
    assert compile_key(replace(inputs, batches=batches)) == compile_key(inputs)


def test_the_batches_of_an_engine_compile_it_again(inputs: CompileInputs) -> None:
    engine = replace(inputs, target=TensorRtTarget(runtime="tensorrt", instance_types=("ml.g5.xlarge",)))
    batches = inputs.batches.model_copy(update={"max_batch_size": 64})
    assert compile_key(replace(engine, batches=batches)) != compile_key(engine)


def test_other_calibration_texts_compile_a_statically_quantised_graph_again(tmp_path: Path) -> None:
    workload = tiny_bert.make_workload(tmp_path / "workloads", "text-classification")
    for name, again in (("cpu-int8-static", True), ("cpu-int8", False), ("cpu", False)):
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
