"""The engines of latency.py: each is prepared once from the checkpoint, then timed in a process of its own.

  python benchmarks/t5/engines.py TASK FOLDER SHAPE DEVICE THREADS

TASK is `make`, `prepare` or an engine; what they write and load is in FOLDER. Prints one JSON document. Optimum's
environment has none of our dependencies, so only engines of ours import ours.
"""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.side_by_side import pairs, timed
from benchmarks.t5 import checkpoint as t5_checkpoint

Device = Literal["cpu", "cuda"]
Case = dict[str, Any]
Stages = tuple[float, float]  # milliseconds of the encoder, and of the decoder for each token


@dataclass(frozen=True)
class Call:
    """One engine, loaded. `answer` gives the output tokens, `stages` times one answer where its two parts show."""

    answer: Callable[[], list[int]]
    stages: Callable[[], Stages] | None = None


Made = Iterator[Call]
Engine = Callable[[Path, Case, int], contextlib.AbstractContextManager[Call]]
BASELINE = "huggingface fp32"
TRITON = ", triton"  # ends the name of an engine that is asked through it
CONFIG_PBTXT = """\
name: "t5"
backend: "python"
max_batch_size: 1
input [{ name: "TEXT" data_type: TYPE_STRING dims: [1] }]
output [{ name: "CORRECTED" data_type: TYPE_STRING dims: [1] }]
instance_group [{ count: 1 kind: KIND_CPU }]
"""


def main() -> int:
    task, folder, shape, device, threads = sys.argv[1:]
    print(json.dumps(_run(task, Path(folder), shape, "cuda" if device == "cuda" else "cpu", int(threads))))
    return 0


def _run(task: str, folder: Path, shape: str, device: Device, threads: int) -> Any:
    if task == "make":
        case = t5_checkpoint.make(folder / "checkpoint", shape)
        (folder / "case.json").write_text(json.dumps(case))
        return None
    if task == "prepare":
        return prepare(folder, device)
    case, engines = json.loads((folder / "case.json").read_text()), ENGINES[device]
    with engines[task](folder, case, threads) as call:
        timed(call.answer, warm_up=3, at_least=1, seconds=0)
        answer = {"tokens": call.answer(), "stages": [call.stages() for _ in range(12)][2:] if call.stages else []}
        if task.endswith(TRITON):
            with engines[task.removesuffix(TRITON)](folder, case, threads) as inside:
                return {**answer, "pairs": pairs(inside.answer, call.answer, number=8)}
        read = _reading(case, bytes_per_weight(task), device, threads)
        return {**answer, "pairs": pairs(read, call.answer, number=5, calls=4)}


def _reading(case: Case, bytes_each: int, device: Device, threads: int) -> Callable[[], None]:
    """Returns a function that reads as much memory as an answer has to: no engine can be quicker."""
    import torch

    torch.set_num_threads(threads)
    encoder, decoder = (
        torch.ones(case[f"{part}_weights"] * bytes_each // 8, dtype=torch.int64, device=device)
        for part in ("encoder", "decoder")
    )

    def read() -> None:
        for memory in (encoder, *[decoder] * len(case["output"])):
            memory.sum().item()  # waits for a GPU

    return read


def bytes_per_weight(engine: str) -> int:
    return {"fp32": 4, "fp16": 2, "int8": 1}[engine.removesuffix(TRITON).split()[-1]]


def prepare(folder: Path, device: Device) -> None:
    """Does all that takes time before the first call: conversion, export, compilation."""
    if device == "cuda":
        return _trace(folder)
    from model_build.text2text import export, optimise

    checkpoint = folder / "checkpoint"
    if find_spec("ctranslate2"):
        from ctranslate2.converters import TransformersConverter

        TransformersConverter(str(checkpoint)).convert(str(folder / "ctranslate2"))
    portable = folder / "portable"
    portable.mkdir()
    export.export(export.load(checkpoint), portable, max_input_tokens=64, max_output_tokens=11)
    for precision in ("fp32", "int8"):
        compiled = folder / f"ours-{precision}"
        compiled.mkdir()
        optimise.optimise(portable, compiled, precision)
        shutil.copyfile(checkpoint / "tokenizer.json", compiled / "tokenizer.json")
    return None


def _trace(folder: Path) -> None:
    import onnx

    from model_build.tensorrt.precision import T5_CACHES, to_fp16
    from model_build.text2text import export

    limits = {"max_input_tokens": 64, "max_output_tokens": 11}
    for precision in ("fp32", "fp16"):
        made = folder / f"static-{precision}"
        made.mkdir()
        model = export.load(folder / "checkpoint")
        export.export(model, made, **limits, static=True)
        if precision == "fp16":
            for file in made.glob("*.onnx"):
                onnx.save(to_fp16(onnx.load(file), half=T5_CACHES), file)
        export.trace(model, made, **limits, half=precision == "fp16")


@contextlib.contextmanager
def _hugging_face(precision: str, device: str, options: dict[str, Any], folder: Path, case: Case, threads: int) -> Made:
    import torch
    from transformers import T5ForConditionalGeneration

    torch.set_num_threads(threads)
    dtype = {"fp32": torch.float32, "fp16": torch.float16}[precision]
    model: Any = T5ForConditionalGeneration.from_pretrained(folder / "checkpoint", dtype=dtype)
    yield _generate(model.to(device).eval(), case, options)


@contextlib.contextmanager
def _optimum(folder: Path, case: Case, threads: int) -> Made:
    import onnxruntime
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    made = folder / "optimum"
    if not made.exists():
        ORTModelForSeq2SeqLM.from_pretrained(folder / "checkpoint", export=True).save_pretrained(made)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    yield _generate(ORTModelForSeq2SeqLM.from_pretrained(made, session_options=options), case, {})


def _generate(model: Any, case: Case, options: dict[str, Any]) -> Call:
    """Calls greedy `generate` with `options`. The decoder's time is that of `generate` with the encoder's outputs."""
    import torch

    source = torch.tensor([case["source"]], device=model.device)
    mask = torch.ones_like(source)
    greedy = {"attention_mask": mask, "do_sample": False, "max_new_tokens": len(case["output"]), **options}

    def answer() -> list[int]:
        with torch.inference_mode():
            return list(model.generate(input_ids=source, **greedy)[0, 1:].tolist())

    def stages() -> Stages:
        with torch.inference_mode():
            start = _now(model.device)
            encoded = model.get_encoder()(input_ids=source, attention_mask=mask)
            middle = _now(model.device)
            model.generate(encoder_outputs=encoded, **greedy)
            return _stages(start, middle, _now(model.device), case)

    return Call(answer, stages)


def _now(device: Any) -> float:
    """Returns the time when the device has done all that it was asked for."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _stages(start: float, middle: float, end: float, case: Case) -> Stages:
    return (middle - start) * 1000, (end - middle) * 1000 / len(case["output"])


@contextlib.contextmanager
def _ctranslate2(compute_type: str, folder: Path, case: Case, threads: int) -> Made:
    import ctranslate2

    translator = ctranslate2.Translator(
        str(folder / "ctranslate2"), device="cpu", compute_type=compute_type, intra_threads=threads
    )
    vocabulary = json.loads((folder / "checkpoint" / "tokenizer.json").read_text())["model"]["vocab"]
    words = {token: word for word, token in vocabulary.items()}
    source = [[words[token] for token in case["source"]]]

    def ask() -> list[int]:
        (result,) = translator.translate_batch(source, beam_size=1, max_decoding_length=len(case["output"]))
        return [vocabulary[word] for word in result.hypotheses[0]]

    yield Call(ask)


@contextlib.contextmanager
def _ours(precision: str, folder: Path, case: Case, threads: int) -> Made:
    from containers.text2text.generator import TextGenerator

    generator = TextGenerator.load(folder / f"ours-{precision}", _settings(case, threads))
    yield _decoding(generator, case, time.perf_counter)


@contextlib.contextmanager
def _static(runtime: str, precision: str, device: Device, folder: Path, case: Case, threads: int) -> Made:
    import torch
    from tokenizers import Tokenizer

    from containers.text2text import onnx_static_engine, torch_engine
    from containers.text2text.generator import TextGenerator

    load = torch_engine.load if runtime == "torch" else onnx_static_engine.load
    engine = load(folder / f"static-{precision}", device, most_rows=1, longest=64)
    tokenizer = Tokenizer.from_file(str(folder / "checkpoint" / "tokenizer.json"))
    generator = TextGenerator(tokenizer, engine, _settings(case, threads))
    yield _decoding(generator, case, lambda: _now(torch.device(device)))


def _decoding(generator: Any, case: Case, now: Callable[[], float]) -> Call:
    source = [case["source"]]

    def answer() -> list[int]:
        return list(generator.generate(source)[0].tolist())

    def stages() -> Stages:
        engine, generator.engine = generator.engine, _Clocked(generator.engine, now)
        start = now()
        answer()
        encoded, generator.engine = generator.engine.encoded, engine
        return _stages(start, encoded, now(), case)

    return Call(answer, stages)


class _Clocked:
    """Passes everything on to an engine, and notes when `encode` has ended."""

    def __init__(self, engine: Any, now: Callable[[], float]) -> None:
        self._engine, self._now = engine, now
        self.encoded = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def encode(self, *arguments: Any) -> Any:
        state = self._engine.encode(*arguments)
        self.encoded = self._now()
        return state


@contextlib.contextmanager
def _triton(precision: str, folder: Path, case: Case, threads: int) -> Made:
    from local_aws.process.triton import TritonServer

    repository = folder / f"triton-{precision}-{threads}"
    if not repository.exists():
        _lay_out(repository, folder / f"ours-{precision}", case, threads)
    vocabulary = json.loads((folder / "checkpoint" / "tokenizer.json").read_text())["model"]["vocab"]
    words = {token: word for word, token in vocabulary.items()}
    text = " ".join(words[token] for token in case["source"][:-1])
    tensor = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
    body = json.dumps({"inputs": [tensor]}).encode()
    with TritonServer.start(repository, default_model="t5", log_file=folder / "triton.log") as server:

        def ask() -> list[int]:
            answer = json.loads(server.invoke(body, {"Content-Type": "application/json"}).body)
            return [vocabulary[word] for word in answer["outputs"][0]["data"][0].split()]

        yield Call(ask)


def _lay_out(repository: Path, compiled: Path, case: Case, threads: int) -> None:
    """Lays out the serving code and graphs as the build does, with nothing around them that costs or saves time."""
    import containers.text2text

    version = repository / "t5" / "1"
    version.mkdir(parents=True)
    for file in [*compiled.iterdir(), *Path(containers.text2text.__path__[0]).glob("*.py")]:
        if file.name != "__init__.py" and file.is_file():
            shutil.copyfile(file, version / file.name)
    parameters = "".join(
        f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
        for key, value in _settings(case, threads).to_parameters().items()
    )
    (repository / "t5" / "config.pbtxt").write_text(CONFIG_PBTXT + parameters)


def _settings(case: Case, threads: int) -> Any:
    from containers.text2text.settings import Settings

    return Settings(
        max_input_tokens=64,
        max_output_tokens=len(case["output"]),
        decoder_start_token_id=0,
        eos_token_ids=(1,),
        pad_token_id=0,
        threads=threads,
    )


def _named(engine: Any, *variant: Any) -> Engine:
    return lambda folder, case, threads: engine(*variant, folder, case, threads)


STATIC = {"cache_implementation": "static"}  # on a GPU `generate` compiles its decoder then, without being asked
ENGINES: dict[Device, Mapping[str, Engine]] = {
    "cpu": {
        BASELINE: _named(_hugging_face, "fp32", "cpu", {}),
        "optimum fp32": _optimum,
        "ctranslate2 fp32": _named(_ctranslate2, "float32"),
        "ctranslate2 int8": _named(_ctranslate2, "int8"),
        "ours fp32": _named(_ours, "fp32"),
        "ours int8": _named(_ours, "int8"),
        "ours fp32, triton": _named(_triton, "fp32"),
        "ours int8, triton": _named(_triton, "int8"),
    },
    "cuda": {
        BASELINE: _named(_hugging_face, "fp32", "cuda", {}),
        "huggingface fp16": _named(_hugging_face, "fp16", "cuda", {}),
        "huggingface compiled fp32": _named(_hugging_face, "fp32", "cuda", STATIC),
        "huggingface compiled fp16": _named(_hugging_face, "fp16", "cuda", STATIC),
        "ours fp32": _named(_static, "torch", "fp32", "cuda"),
        "ours fp16": _named(_static, "torch", "fp16", "cuda"),
        "ours onnxruntime fp32": _named(_static, "onnxruntime", "fp32", "cuda"),
        "ours onnxruntime fp16": _named(_static, "onnxruntime", "fp16", "cuda"),
    },
}


def missing(engine: str, optimum_python: Path) -> str | None:
    """Returns why this engine cannot run here, or None."""
    if engine == "optimum fp32" and not optimum_python.exists():
        return (
            "optimum-onnx 0.1.0 needs transformers < 4.58, so it has an environment of its own, "
            f"and {optimum_python.parent.parent.name} is not there: `make peers`"
        )
    if engine.startswith("ctranslate2") and not find_spec("ctranslate2"):
        return "the package ctranslate2 is not installed here; `make bench` installs it"
    if engine.startswith("ours onnxruntime"):
        import onnxruntime

        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            return "this onnxruntime has no CUDA provider, which is in the package onnxruntime-gpu"
    return None


def python_of(engine: str, optimum_python: Path) -> str:
    return str(optimum_python) if engine == "optimum fp32" else sys.executable


if __name__ == "__main__":
    sys.exit(main())
