"""The TensorRT engine over a GPU in host memory needs few launches and copies, and refuses plans that cannot run.

test_static_engines.py compares its answers with `generate`.
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

from containers.text2text import tensorrt_engine
from containers.text2text.decoding import Tokens, greedy
from containers.text2text.tensorrt_plan import PlanRefused, plan_name
from model_build.tensorrt.precision import T5_CACHES, to_fp16
from model_build.tensorrt.profiles import text2text_profiles
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
from tests.model_build.miniatures.tiny_t5 import SETTINGS
from tests.model_build.tensorrt.tensorrt_graphs import T5, T5_CHANNELS, T5_D_KV, t5
from workloads import Serving

ROWS = 8
PROFILES = text2text_profiles(T5, Serving(max_batch_size=ROWS), channels=T5_CHANNELS, d_kv=T5_D_KV)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    install(monkeypatch, made)
    return made


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    """Engines for T4 and A10G of the same graphs."""
    for name, model in t5(False).items():
        for capability in ("7.5", "8.6"):
            write_plan(tmp_path / plan_name(name, capability), model, PROFILES[name], capability=capability)
    return tmp_path


def sources(rows: int, length: int, seed: int = 0) -> tuple[Tokens, Tokens]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, length + 1, rows)
    lengths[0] = length
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    return rng.integers(4, 30, (rows, length)) * mask, mask


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


def test_a_batch_is_padded_to_one_of_a_few_sizes_and_one_row_has_a_profile(gpu: Gpu, plans: Path) -> None:
    gpu.capability = "8.6"
    (plans / "decoder.7.5.plan").unlink()
    engine = tensorrt_engine.load(plans)
    assert len(gpu.graphs) == 2 * len([1, 2, 4, 8]) * len([16, 24])
    for rows, length, size in ((1, 1, (1, 16)), (2, 16, (2, 16)), (3, 17, (4, 24)), (ROWS, 24, (8, 24))):
        gpu.steps.clear()
        engine.step(engine.encode(*sources(rows, length), 0), np.ones(rows, np.bool_))
        assert gpu.steps[0][1]["input_ids"] == size
        assert {ran for ran, _ in gpu.steps} == {0 if rows == 1 else 1}


def of_a_newer_gpu(gpu: Gpu, plans: Path) -> None:
    gpu.capability = "9.0"
    tensorrt_engine.load(plans)


def of_another_tensorrt(gpu: Gpu, plans: Path) -> None:
    model = t5(False)["decoder"]
    write_plan(plans / "decoder.7.5.plan", model, PROFILES["decoder"], capability="7.5", tensorrt="11.2.1.3")
    tensorrt_engine.load(plans)


def of_two_precisions(gpu: Gpu, plans: Path) -> None:
    half = to_fp16(onnx.load_from_string(t5(False)["encoder"].SerializeToString()), half=T5_CACHES)
    write_plan(plans / "encoder.7.5.plan", half, PROFILES["encoder"], capability="7.5")
    tensorrt_engine.load(plans)


def no_such_device(gpu: Gpu, plans: Path) -> None:
    tensorrt_engine.load(plans, device=3)


REFUSED: list[tuple[Callable[[Gpu, Path], None], type[Exception], str]] = [
    (
        of_a_newer_gpu,
        PlanRefused,
        "{plans}: this GPU has compute capability 9.0, and there is no encoder.9.0.plan. There: encoder.7.5.plan, "
        "encoder.8.6.plan. Build the target for this GPU.",
    ),
    (
        of_another_tensorrt,
        PlanRefused,
        "{plans}/decoder.7.5.plan: TensorRT 10.4.0.26 on a GPU of compute capability 7.5 cannot load it. A plan loads "
        "only in the TensorRT version and on the GPU it was built for. Build it again in this image.",
    ),
    (of_two_precisions, PlanRefused, "{plans}/decoder.7.5.plan: cross is float32, but float16 is written."),
    (no_such_device, RuntimeError, "CUDA: cudaErrorInvalidValue"),
]


@pytest.mark.parametrize(("use", "error", "message"), REFUSED)
def test_plans_and_batches_that_cannot_run_are_refused(
    use: Callable[[Gpu, Path], None], error: type[Exception], message: str, gpu: Gpu, plans: Path
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message.format(plans=plans))}$"):
        use(gpu, plans)


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
