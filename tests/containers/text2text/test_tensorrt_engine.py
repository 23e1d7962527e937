"""The TensorRT engine over a GPU in host memory gives the tokens of PyTorch's engine, with few launches and copies.

test_static_engines.py compares PyTorch's engine with `generate`, and tests/model_build/text2text this one.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from pathlib import Path

import numpy as np
import onnx
import pytest

from containers.text2text import tensorrt_engine, torch_engine
from containers.text2text.decoding import Tokens, greedy
from containers.text2text.settings import Settings
from containers.text2text.static_cache import StaticEngine
from containers.text2text.tensorrt_plan import PlanRefused, plan_name
from model_build.tensorrt.precision import T5_CACHES, to_fp16
from model_build.tensorrt.profiles import text2text_profiles
from model_build.text2text import export
from tests.containers.fake_tensorrt import (
    Context,
    Engine,
    ExecutionContextAllocationStrategy,
    Gpu,
    TensorIOMode,
    cudaDeviceAttr,
    cudaError_t,
    cudaMemcpyKind,
    cudaStreamCaptureMode,
    install,
    write_plan,
)
from tests.model_build.miniatures.tiny_t5 import LIKELY_TOKEN, make_checkpoint
from tests.model_build.tensorrt.tensorrt_graphs import T5, T5_CHANNELS, T5_D_KV, t5
from workloads import Serving

ROWS = 8
PROFILES = text2text_profiles(T5, Serving(max_batch_size=ROWS), channels=T5_CHANNELS, d_kv=T5_D_KV)
SETTINGS = Settings(
    max_input_tokens=T5.max_input_tokens,
    max_output_tokens=T5.max_output_tokens,
    decoder_start_token_id=0,
    eos_token_ids=(1, LIKELY_TOKEN),
    pad_token_id=0,
    threads=1,
)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graphs for TensorRT and for PyTorch, of one checkpoint."""
    folder = tmp_path_factory.mktemp("t5")
    for name, model in t5(False).items():
        onnx.save(model, folder / f"{name}.onnx")
    make_checkpoint(folder / "checkpoint")
    export.trace(
        export.load(folder / "checkpoint"),
        folder,
        max_input_tokens=T5.max_input_tokens,
        max_output_tokens=T5.max_output_tokens,
    )
    return folder


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    install(monkeypatch, made)
    return made


@pytest.fixture
def plans(graphs: Path, tmp_path: Path) -> Path:
    """Engines for T4 and A10G of the same graphs."""
    for name in ("encoder", "decoder"):
        model = onnx.load(graphs / f"{name}.onnx")
        for capability in ("7.5", "8.6"):
            write_plan(tmp_path / plan_name(name, capability), model, PROFILES[name], capability=capability)
    return tmp_path


def sources(rows: int, length: int, seed: int = 0) -> tuple[Tokens, Tokens]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, length + 1, rows)
    lengths[0] = length
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    return rng.integers(4, 30, (rows, length)) * mask, mask


@pytest.fixture(scope="module")
def reference(graphs: Path) -> StaticEngine:
    return torch_engine.load(graphs, "cpu", most_rows=ROWS, longest=T5.max_input_tokens)


def listed(outputs: list[Tokens]) -> list[list[int]]:
    return [row.tolist() for row in outputs]


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (3, 9), (ROWS, T5.max_input_tokens)])
def test_its_tokens_are_pytorchs(gpu: Gpu, plans: Path, reference: StaticEngine, rows: int, length: int) -> None:
    asked = sources(rows, length)
    assert listed(greedy(tensorrt_engine.load(plans), *asked, SETTINGS)) == listed(greedy(reference, *asked, SETTINGS))


def test_batches_follow_each_other_in_the_same_memory(gpu: Gpu, plans: Path, reference: StaticEngine) -> None:
    engine = tensorrt_engine.load(plans)
    taken = dict.fromkeys(gpu.memory)
    for seed, (rows, length) in enumerate([(8, 24), (2, 5), (5, 17), (8, 24)]):
        asked = sources(rows, length, seed)
        assert listed(greedy(engine, *asked, SETTINGS)) == listed(greedy(reference, *asked, SETTINGS))
    assert dict.fromkeys(gpu.memory) == taken


def test_a_request_is_one_upload_and_one_download_for_every_four_tokens(gpu: Gpu, plans: Path) -> None:
    engine = tensorrt_engine.load(plans)
    gpu.launches, gpu.waits = 0, 0
    gpu.uploads.clear()
    gpu.downloads.clear()
    greedy(engine, *sources(2, 9), replace(SETTINGS, eos_token_ids=(1,), max_output_tokens=11))
    position_and_tokens, source_and_mask = 2 * 256, 2 * 256
    assert gpu.uploads == [position_and_tokens + source_and_mask]
    assert gpu.downloads == 3 * [4 * 2 * 8]
    assert gpu.launches == 1 + 3
    assert gpu.waits == 1 + 3, "for what came before, and for each four tokens"


def test_the_host_does_not_wait_for_the_encoder(gpu: Gpu, plans: Path) -> None:
    engine = tensorrt_engine.load(plans)
    gpu.steps.clear()
    state = engine.encode(*sources(4, 6), 0)
    assert not gpu.steps
    engine.step(state, np.ones(4, np.bool_))
    assert len(gpu.steps) == 1 + 4


def test_a_batch_is_padded_to_one_of_a_few_sizes(gpu: Gpu, plans: Path) -> None:
    engine = tensorrt_engine.load(plans)
    assert len(gpu.graphs) == 2 * len([1, 2, 4, 8]) * len([16, 24])
    for rows, length, size in ((1, 1, (1, 16)), (2, 16, (2, 16)), (3, 17, (4, 24)), (ROWS, 24, (8, 24))):
        gpu.steps.clear()
        engine.step(engine.encode(*sources(rows, length), 0), np.ones(rows, np.bool_))
        assert gpu.steps[0][1]["input_ids"] == size


def test_one_row_runs_in_the_profile_that_is_timed_for_it(gpu: Gpu, plans: Path) -> None:
    engine = tensorrt_engine.load(plans)
    for rows, profile in ((1, 0), (2, 1)):
        gpu.steps.clear()
        engine.step(engine.encode(*sources(rows, 9), 0), np.ones(rows, np.bool_))
        assert {ran for ran, _ in gpu.steps} == {profile}


def test_an_earlier_batch_in_the_cache_changes_no_answer(gpu: Gpu, plans: Path) -> None:
    """Not even NaN: places after the position are masked, but still part of a sum."""
    engine, asked = tensorrt_engine.load(plans), sources(2, 9)
    expected = listed(greedy(engine, *asked, SETTINGS))
    state = engine.encode(*sources(2, 9, seed=1), 0)
    for _ in range(2):
        engine.step(state, np.ones(2, np.bool_))
    assert isinstance(state.program, tensorrt_engine.TensorRtProgram)
    for address in state.program.memory.caches:
        gpu.memory[address].fill(0xFF)
    assert listed(greedy(engine, *asked, SETTINGS)) == expected


def test_the_plan_of_this_gpu_is_taken(gpu: Gpu, plans: Path, reference: StaticEngine) -> None:
    gpu.capability = "8.6"
    (plans / "decoder.7.5.plan").unlink()
    asked = sources(2, 4)
    assert listed(greedy(tensorrt_engine.load(plans), *asked, SETTINGS)) == listed(greedy(reference, *asked, SETTINGS))


def of_a_newer_gpu(gpu: Gpu, plans: Path, graphs: Path) -> None:
    gpu.capability = "9.0"
    tensorrt_engine.load(plans)


def of_another_tensorrt(gpu: Gpu, plans: Path, graphs: Path) -> None:
    model = onnx.load(graphs / "decoder.onnx")
    write_plan(plans / "decoder.7.5.plan", model, PROFILES["decoder"], capability="7.5", tensorrt="11.2.1.3")
    tensorrt_engine.load(plans)


def of_two_precisions(gpu: Gpu, plans: Path, graphs: Path) -> None:
    half = to_fp16(onnx.load(graphs / "encoder.onnx"), half=T5_CACHES)
    write_plan(plans / "encoder.7.5.plan", half, PROFILES["encoder"], capability="7.5")
    tensorrt_engine.load(plans)


def too_many_rows(gpu: Gpu, plans: Path, graphs: Path) -> None:
    tensorrt_engine.load(plans).encode(*sources(ROWS + 1, 4), 0)


def no_such_device(gpu: Gpu, plans: Path, graphs: Path) -> None:
    tensorrt_engine.load(plans, device=3)


def taken_memory(gpu: Gpu, plans: Path, graphs: Path) -> None:
    engine = tensorrt_engine.load(plans)
    earlier = engine.encode(*sources(2, 6), 0)
    engine.encode(*sources(2, 6), 0)
    engine.step(earlier, np.ones(2, np.bool_))


REFUSED: list[tuple[Callable[[Gpu, Path, Path], None], type[Exception], str]] = [
    (
        of_a_newer_gpu,
        PlanRefused,
        "{plans}: this GPU has compute capability 9.0, and there is no encoder.9.0.plan. There: encoder.7.5.plan, "
        "encoder.8.6.plan. Build the target for this GPU.",
    ),
    (
        of_another_tensorrt,
        PlanRefused,
        "{plans}/decoder.7.5.plan: TensorRT 10.14.1.48 on a GPU of compute capability 7.5 cannot load it. A plan loads "
        "only in the TensorRT version and on the GPU it was built for. Build it again in this image.",
    ),
    (of_two_precisions, PlanRefused, "{plans}/decoder.7.5.plan: cross is float32, but float16 is written."),
    (too_many_rows, ValueError, "a batch of 9 × 4 tokens, where 8 × 24 are the most"),
    (no_such_device, RuntimeError, "CUDA: cudaErrorInvalidValue"),
    (taken_memory, RuntimeError, "this batch's caches were taken by a later one"),
]


@pytest.mark.parametrize(("use", "error", "message"), REFUSED)
def test_plans_and_batches_that_cannot_run_are_refused(
    use: Callable[[Gpu, Path, Path], None], error: type[Exception], message: str, gpu: Gpu, plans: Path, graphs: Path
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message.format(plans=plans))}$"):
        use(gpu, plans, graphs)


def test_the_fake_is_called_as_the_real_cuda_bindings_are() -> None:
    """They import without a GPU: their signatures stand in the first line of their docstrings."""
    real = pytest.importorskip("cuda.bindings.runtime")
    for name in (name for name in dir(Gpu) if name.startswith("cuda")):
        documented = re.fullmatch(rf"{name}\((.*)\)", getattr(real, name).__doc__.splitlines()[0])
        assert documented, name
        parts = [part.strip() for part in documented[1].split(",")]
        names = [part.split(":")[0] if ":" in part else part.split(" ")[-1] for part in parts]
        assert [part for part in names if part] == list(inspect.signature(getattr(Gpu(), name)).parameters)
    for fake in (cudaError_t, cudaMemcpyKind, cudaDeviceAttr, cudaStreamCaptureMode):
        members: type[IntEnum] = fake
        assert all(getattr(getattr(real, fake.__name__), one.name) == one.value for one in members)


def test_the_fake_is_called_as_nvidias_bindings_of_tensorrt_are() -> None:
    """Those of TensorRT for RTX have the classes of TensorRT 10, and each signature in a docstring."""
    real = pytest.importorskip("tensorrt_rtx_bindings")
    for fake, name in ((Context, "IExecutionContext"), (Engine, "ICudaEngine")):
        for part in (part for part in vars(fake) if not part.startswith("_")):
            documented = getattr(getattr(real, name), part).__doc__ or ""
            signatures = re.findall(rf"{part}\(self: [\w.]+(?:, (.*?))?\) ->", documented)
            known = [[each.split(":")[0] for each in signature.split(", ") if each] for signature in signatures]
            if callable(getattr(fake, part)):
                assert [*inspect.signature(getattr(fake, part)).parameters][1:] in known, part
    for kind in (ExecutionContextAllocationStrategy, TensorIOMode):
        members: type[IntEnum] = kind
        assert all(int(getattr(getattr(real, kind.__name__), one.name)) == one.value for one in members)
