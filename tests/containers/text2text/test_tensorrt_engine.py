"""The TensorRT engine over a GPU in host memory: the same tokens as ONNX Runtime's, and caches that never leave it."""

import inspect
import re
from enum import IntEnum
from pathlib import Path

import numpy as np
import onnx
import pytest

from containers.text2text.decoding import Tokens, greedy
from containers.text2text.engine import OnnxEngine
from containers.text2text.settings import Settings
from containers.text2text.tensorrt_engine import TensorRtEngine
from containers.text2text.tensorrt_plan import PlanRefused, plan_name
from model_build.tensorrt.precision import T5_CACHES, to_fp16
from model_build.tensorrt.profiles import text2text_profiles
from tests.containers.fake_tensorrt import Gpu, cudaDeviceAttr, cudaError_t, cudaMemcpyKind, install, write_plan
from tests.model_build.tensorrt.tensorrt_graphs import T5, T5_CHANNELS, T5_D_KV, make_t5
from tests.model_build.tiny_t5 import LIKELY_TOKEN
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
    return make_t5(tmp_path_factory.mktemp("t5"))


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


def reference(graphs: Path) -> OnnxEngine:
    return OnnxEngine(graphs / "encoder.onnx", graphs / "decoder.onnx", 1)


def listed(outputs: list[Tokens]) -> list[list[int]]:
    return [row.tolist() for row in outputs]


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (3, 9), (ROWS, T5.max_input_tokens)])
def test_its_tokens_are_onnx_runtimes(gpu: Gpu, plans: Path, graphs: Path, rows: int, length: int) -> None:
    asked = sources(rows, length)
    assert listed(greedy(TensorRtEngine(plans), *asked, SETTINGS)) == listed(
        greedy(reference(graphs), *asked, SETTINGS)
    )


def test_batches_follow_each_other_in_the_same_memory(gpu: Gpu, plans: Path, graphs: Path) -> None:
    engine, onnx_engine = TensorRtEngine(plans), reference(graphs)
    taken = dict.fromkeys(gpu.memory)
    for seed, (rows, length) in enumerate([(8, 24), (2, 5), (5, 17), (8, 24)]):
        asked = sources(rows, length, seed)
        assert listed(greedy(engine, *asked, SETTINGS)) == listed(greedy(onnx_engine, *asked, SETTINGS))
    assert dict.fromkeys(gpu.memory) == taken


def test_an_engine_that_is_gone_has_given_its_memory_back(gpu: Gpu, plans: Path) -> None:
    engine = TensorRtEngine(plans)
    engine.encode(*sources(2, 6))
    assert gpu.memory
    del engine
    assert not gpu.memory


def test_rows_leave_at_different_steps_in_this_model(gpu: Gpu, plans: Path) -> None:
    """Or the tests above would not see `keep`."""
    outputs = greedy(TensorRtEngine(plans), *sources(ROWS, 24), SETTINGS)
    assert len({len(row) for row in outputs}) > 2


def test_any_rows_can_leave(gpu: Gpu, plans: Path, graphs: Path) -> None:
    engine, onnx_engine = TensorRtEngine(plans), reference(graphs)
    state, expected = engine.encode(*sources(ROWS, 11)), onnx_engine.encode(*sources(ROWS, 11))
    tokens = np.zeros((ROWS, 1), np.int64)
    for kept in ([0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 4, 7], [1, 3], [0, 1], [1]):
        rows = np.array(kept)
        engine.keep(state, rows)
        onnx_engine.keep(expected, rows)
        tokens = tokens[rows]
        logits = engine.advance(state, tokens, "logits")
        assert np.array_equal(logits, onnx_engine.advance(expected, tokens, "logits"))
        tokens = logits.argmax(-1)[:, None]


def test_the_largest_batch_begins_with_an_empty_cache_and_fills_it_one_by_one(gpu: Gpu, plans: Path) -> None:
    engine = TensorRtEngine(plans)
    state = engine.encode(*sources(ROWS, T5.max_input_tokens))
    for _ in range(T5.max_output_tokens):
        engine.step(state, np.zeros((ROWS, 1), np.int64))
    assert [step["past"][2] for step in gpu.steps[1:]] == list(range(T5.max_output_tokens))
    assert [step["present"][2] for step in gpu.steps[1:]] == list(range(1, T5.max_output_tokens + 1))


def test_only_tokens_cross_to_the_host(gpu: Gpu, plans: Path) -> None:
    engine = TensorRtEngine(plans)
    state = engine.encode(*sources(4, 6))
    assert (gpu.uploaded, gpu.downloaded) == (2 * 4 * 6 * 8, 0)
    for _ in range(3):
        engine.step(state, np.zeros((4, 1), np.int64))
    engine.keep(state, np.array([1, 3]))
    engine.step(state, np.zeros((2, 1), np.int64))
    steps = (3 * 4 + 2) * 8
    assert (gpu.uploaded, gpu.downloaded) == (2 * 4 * 6 * 8 + steps, steps)


def test_an_fp16_decoder_with_its_caches_in_fp16_gives_the_same_tokens(gpu: Gpu, plans: Path, graphs: Path) -> None:
    for name in ("encoder", "decoder"):
        model = onnx.load(graphs / f"{name}.onnx")
        half = to_fp16(model, half=T5_CACHES)
        write_plan(plans / plan_name(name, "7.5"), half, PROFILES[name], capability="7.5")
    asked = sources(ROWS, 12)
    assert listed(greedy(TensorRtEngine(plans), *asked, SETTINGS)) == listed(
        greedy(reference(graphs), *asked, SETTINGS)
    )


def test_a_batch_whose_memory_was_taken_is_refused(gpu: Gpu, plans: Path) -> None:
    engine = TensorRtEngine(plans)
    earlier = engine.encode(*sources(2, 6))
    engine.encode(*sources(2, 6))
    with pytest.raises(RuntimeError, match="this batch's caches were taken by a later one"):
        engine.step(earlier, np.zeros((2, 1), np.int64))


def test_the_plan_of_this_gpu_is_taken(gpu: Gpu, plans: Path, graphs: Path) -> None:
    gpu.capability = "8.6"
    (plans / "decoder.7.5.plan").unlink()
    asked = sources(2, 4)
    assert listed(greedy(TensorRtEngine(plans), *asked, SETTINGS)) == listed(
        greedy(reference(graphs), *asked, SETTINGS)
    )


def test_a_gpu_without_a_plan_is_told_which_there_are(gpu: Gpu, plans: Path) -> None:
    gpu.capability = "9.0"
    with pytest.raises(PlanRefused) as raised:
        TensorRtEngine(plans)
    assert str(raised.value) == (
        f"{plans}: this GPU has compute capability 9.0, and there is no encoder.9.0.plan. "
        "There: encoder.7.5.plan, encoder.8.6.plan. Build the target for this GPU."
    )


def test_a_plan_of_another_tensorrt_is_refused(gpu: Gpu, plans: Path, graphs: Path) -> None:
    model = onnx.load(graphs / "decoder.onnx")
    write_plan(plans / "decoder.7.5.plan", model, PROFILES["decoder"], capability="7.5", tensorrt="11.2.1.3")
    with pytest.raises(PlanRefused) as raised:
        TensorRtEngine(plans)
    assert str(raised.value) == (
        f"{plans}/decoder.7.5.plan: TensorRT 10.14.1.48 on a GPU of compute capability 7.5 cannot load it. A plan "
        "loads only in the TensorRT version and on the GPU it was built for. Build it again in this image."
    )


def test_plans_of_different_precisions_are_not_mixed(gpu: Gpu, plans: Path, graphs: Path) -> None:
    half = to_fp16(onnx.load(graphs / "encoder.onnx"), half=T5_CACHES)
    write_plan(plans / "encoder.7.5.plan", half, PROFILES["encoder"], capability="7.5")
    with pytest.raises(PlanRefused, match=r"decoder.7.5.plan: cross is float32, but float16 is written\.$"):
        TensorRtEngine(plans)


def test_more_rows_than_the_plan_was_built_for_are_refused(gpu: Gpu, plans: Path) -> None:
    with pytest.raises(PlanRefused, match=r"input_ids is \(9, 4\), but the plan was built for up to \(8, 24\)\.$"):
        TensorRtEngine(plans).encode(*sources(ROWS + 1, 4))


def test_a_device_that_is_not_there_is_cudas_own_error(gpu: Gpu, plans: Path) -> None:
    with pytest.raises(RuntimeError, match="CUDA: cudaErrorInvalidValue"):
        TensorRtEngine(plans, device=3)


def test_the_fake_is_called_as_the_real_cuda_bindings_are() -> None:
    """They import without a GPU: their signatures stand in the first line of their docstrings."""
    real = pytest.importorskip("cuda.bindings.runtime")
    for name in (name for name in dir(Gpu) if name.startswith("cuda")):
        documented = re.fullmatch(rf"{name}\((.*)\)", getattr(real, name).__doc__.splitlines()[0])
        assert documented, name
        names = [re.split(r"[ :]", part.strip())[-1 if ":" not in part else 0] for part in documented[1].split(",")]
        assert [part for part in names if part] == list(inspect.signature(getattr(Gpu(), name)).parameters)
    for fake in (cudaError_t, cudaMemcpyKind, cudaDeviceAttr):
        members: type[IntEnum] = fake
        assert all(getattr(getattr(real, fake.__name__), one.name) == one.value for one in members)
