"""The static graphs answer as Hugging Face `generate` does: one contract for PyTorch and for TensorRT.

The cases of `cuda` need a GPU. TensorRT runs on a GPU in host memory, with ONNX Runtime.
"""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from containers.text2text import tensorrt_engine, torch_engine
from containers.text2text.decoding import greedy
from containers.text2text.generation import Generation
from containers.text2text.generator import TextGenerator, pad
from containers.text2text.guided import guided
from containers.text2text.static_cache import CHECKED_TOKENS, StaticEngine
from containers.text2text.tensorrt_plan import plan_name
from model_build.parity import ParityComparison
from model_build.tensorrt.profiles import text2text_profiles
from model_build.text2text import export
from model_build.text2text.verify import Original, compare
from tests.containers.fake_tensorrt import Gpu, install, write_plan
from tests.model_build.miniatures import tiny_t5
from tests.model_build.miniatures.tiny_t5 import make_checkpoint, make_texts, make_tokenizer
from tests.model_build.tensorrt.tensorrt_graphs import T5, T5_CHANNELS, T5_D_KV, t5
from workloads import Example, Serving, TextToText, load_workload

ROWS = 6
SETTINGS = replace(tiny_t5.SETTINGS, max_output_tokens=11)
EXAMPLES = [Example(row={"text": text}, label=text) for text in make_texts(24)]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU")


@pytest.fixture(scope="module", params=["relu", "gated-gelu"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Original:
    folder = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(folder, gated=request.param == "gated-gelu")
    return Original.load(folder, export.load(folder))


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=needs_gpu), "tensorrt"])
def engine(
    request: pytest.FixtureRequest, original: Original, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StaticEngine]:
    folder = tmp_path_factory.mktemp("compiled")
    if request.param != "tensorrt":
        yield on_torch(original, folder, request.param)
        return
    gated = "gated-gelu" in (original.folder / "config.json").read_text()
    profiles = text2text_profiles(T5, Serving(max_batch_size=ROWS), channels=T5_CHANNELS, d_kv=T5_D_KV)
    for name, model in t5(gated).items():
        write_plan(folder / plan_name(name, "7.5"), model, profiles[name], capability="7.5")
    with pytest.MonkeyPatch.context() as monkeypatch:
        install(monkeypatch, Gpu())
        yield tensorrt_engine.load(folder)


def on_torch(original: Original, folder: Path, device: str, *, half: bool = False) -> StaticEngine:
    longest, limit = SETTINGS.max_input_tokens, SETTINGS.max_output_tokens
    export.trace(original.model, folder, max_input_tokens=longest, max_output_tokens=limit, half=half)
    return torch_engine.load(folder, device, most_rows=ROWS, longest=longest, guided=True)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Does on CPU what a CUDA graph does: runs the same operations again, over the memory of the first time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "the host cannot wait within a capture"
        made = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, made))
        return made

    def replay(self) -> None:
        for func, args, kwargs, made in self._calls:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                # Else it is a view, or was written in place.
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def recorded(program: torch_engine.TorchProgram, work: Callable[[], None]) -> Callable[[], None]:
    recorder = Recorder()
    with recorder:
        work()
    return recorder.replay


def test_a_captured_graph_answers_every_batch(
    original: Original, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_engine.TorchProgram, "_captured", recorded)
    engine = on_torch(original, tmp_path, "cpu")
    assert all(each.identical for each in compared(original, engine, ROWS))
    comparisons = compared(original, engine, 1, Generation(guided="input"))
    assert all(each.identical and each.guided and each.guided.same for each in comparisons)


@pytest.mark.parametrize("limit", [1, 2, 11])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_guided_answers_are_greedys_whatever_the_draft(
    original: Original, tmp_path: Path, device: str, limit: int
) -> None:
    """Drafts are right, wrong in part, longer than the answer and its end, or empty. Some answers end at the limit."""
    engine, rng = on_torch(original, tmp_path, device), Random(limit)
    answers = []
    for row in (make_tokenizer().encode(text).ids for text in make_texts(24)):
        batch = (engine, *pad([row], 0), replace(SETTINGS, max_output_tokens=limit))
        answer = greedy(*batch)[0].tolist()
        answers.append(answer)
        wrong = [token if rng.random() < 0.7 else rng.randrange(4, 30) for token in answer]
        for draft in (answer, [*answer, *row], wrong, row, []):
            (tokens,), (passes,) = guided(*batch, "input", [draft])
            assert tokens.tolist() == answer
            assert passes == 1 if draft[: len(answer)] == answer else passes <= len(answer)
    assert len({len(answer) for answer in answers}) > 2 or limit < 11
    assert any(answer[-1] not in SETTINGS.eos_token_ids for answer in answers)


def test_a_traced_decoder_has_no_operand_that_stays_on_the_cpu(tmp_path: Path) -> None:
    """The device `meta` refuses one, as a GPU does."""
    make_checkpoint(tmp_path)
    export.trace(export.load(tmp_path), tmp_path, max_input_tokens=24, max_output_tokens=11)
    jit: Any = torch.jit
    with torch.inference_mode(), torch.device("meta"), jit.optimized_execution(False):
        decoder = jit.load(tmp_path / "decoder.pt", map_location="meta")
        tokens, position = torch.ones(1, CHECKED_TOKENS, dtype=torch.long), torch.zeros(1, dtype=torch.long)
        caches = torch.ones(1, 1, 1, 9), torch.ones(1, T5_CHANNELS, 9, T5_D_KV), torch.ones(1, T5_CHANNELS, 12, T5_D_KV)
        made = (*decoder(tokens[:, :1], position, *caches), *decoder.check(tokens, position, *caches))
    assert {each.device.type for each in made} == {"meta"}


def test_spellchecks_guided_answers_are_greedys_with_drafts_longer_than_a_pass(tmp_path: Path) -> None:
    workload = load_workload("spellcheck")
    model, folder = workload.workload.model, workload.path / "checkpoint"
    assert isinstance(model, TextToText)
    export.trace(
        export.load(folder),
        tmp_path,
        max_input_tokens=model.max_input_tokens,
        max_output_tokens=model.max_output_tokens,
    )
    engine = torch_engine.load(tmp_path, "cpu", most_rows=1, longest=model.max_input_tokens, guided=True)
    settings = replace(SETTINGS, max_output_tokens=model.max_output_tokens, eos_token_ids=(1,))
    tokenizer, lengths = Tokenizer.from_file(str(folder / "tokenizer.json")), []
    for example in workload.evaluation()[:40]:
        row = tokenizer.encode(example.row["text"]).ids
        batch = (engine, *pad([row], 0), settings)
        answer = greedy(*batch)[0].tolist()
        (tokens,), (passes,) = guided(*batch, "input", [row])
        assert tokens.tolist() == answer
        assert passes <= len(answer)
        lengths.append(len(answer))
    assert max(lengths) > CHECKED_TOKENS


def compared(
    original: Original, engine: StaticEngine, batch_size: int, generation: Generation = SETTINGS.generation
) -> list[ParityComparison]:
    generator = TextGenerator(make_tokenizer(), engine, replace(SETTINGS, generation=generation))
    return compare(original, generator, EXAMPLES, batch_size=batch_size, file=original.folder)


@pytest.mark.parametrize("batch_size", [1, 5, ROWS])
def test_every_answer_is_the_originals(original: Original, engine: StaticEngine, batch_size: int) -> None:
    """The batches have rows of different lengths, which end at different steps, and the last is a smaller one."""
    comparisons = compared(original, engine, batch_size)
    assert all(each.identical for each in comparisons)
    assert max(each.max_logit_difference for each in comparisons) < 1e-4
    assert len({len(each.original.text or "") for each in comparisons}) > 2


def test_an_earlier_batch_in_the_cache_changes_no_answer(engine: StaticEngine) -> None:
    """Not even NaN: places after the position are masked, but still part of a sum."""
    asked, live = (np.full((2, 9), 7), np.ones((2, 9), np.int64), 0), np.ones(2, np.bool_)
    state = engine.encode(*asked)
    expected = engine.step(state, live).tolist()
    if isinstance(program := state.program, torch_engine.TorchProgram):
        with torch.inference_mode():
            program.past.fill_(torch.nan)
    else:
        assert isinstance(program, tensorrt_engine.TensorRtProgram)
        for cache in program.memory.caches:
            np.ctypeslib.as_array((ctypes.c_uint8 * 256).from_address(cache)).fill(0xFF)
    assert engine.step(engine.encode(*asked), live).tolist() == expected


def test_a_batch_that_is_too_large_or_gone_is_refused(engine: StaticEngine) -> None:
    rows = np.ones((ROWS + 1, 4), np.int64)
    with pytest.raises(ValueError, match=r"^a batch of 7 × 4 tokens, where 6 × 24 are the most$"):
        engine.encode(rows, rows, 0)
    earlier = engine.encode(rows[:2], rows[:2], 0)
    engine.encode(rows[:2], rows[:2], 0)
    with pytest.raises(RuntimeError, match=r"^this batch's caches were taken by a later one$"):
        engine.step(earlier, np.ones(2, np.bool_))


def test_fp16_changes_logits_little_and_the_checkpoint_not_at_all(original: Original, tmp_path: Path) -> None:
    engine = on_torch(original, tmp_path, "cpu", half=True)
    assert {parameter.dtype for parameter in original.model.parameters()} == {torch.float32}
    epsilon = torch.jit.load(tmp_path / "encoder.pt").norm.epsilon  # type: ignore[no-untyped-call]
    assert epsilon.item() > 0, "it is less than fp16 has"
    program = engine.encode(np.ones((1, 1), np.int64), np.ones((1, 1), np.int64), 0).program
    assert isinstance(program, torch_engine.TorchProgram)
    assert program.past.dtype == torch.float16
    assert 1e-4 < max(each.max_logit_difference for each in compared(original, engine, ROWS)) < 0.1
