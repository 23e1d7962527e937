"""The engines of t5_latency.py: each is prepared once from the checkpoint, then asked again and again in its own child.

`ENGINES[name](folder, case, threads)` is a context manager; inside, a call without arguments gives the output tokens.
`folder` is where `prepare` left what they load, `case` what `t5_checkpoint.make` returned.
"""

import contextlib
import http.client
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Ask = Callable[[], list[int]]
Case = dict[str, Any]
BASELINE = "huggingface fp32"
CONFIG_PBTXT = """\
name: "t5"
backend: "python"
max_batch_size: 1
input [{ name: "TEXT" data_type: TYPE_STRING dims: [1] }]
output [{ name: "CORRECTED" data_type: TYPE_STRING dims: [1] }]
instance_group [{ count: 1 kind: KIND_CPU }]
"""


def prepare(folder: Path) -> None:
    """Does all that takes time before the first call: conversion, export, compilation."""
    from ctranslate2.converters import TransformersConverter

    from model_build.text2text import export, optimise

    checkpoint = folder / "checkpoint"
    TransformersConverter(str(checkpoint)).convert(str(folder / "ctranslate2"))
    portable = folder / "portable"
    portable.mkdir()
    export.export(export.load(checkpoint), portable, max_input_tokens=64, max_output_tokens=11)
    for precision in ("fp32", "int8"):
        compiled = folder / f"ours-{precision}"
        compiled.mkdir()
        optimise.optimise(portable, compiled, precision)
        shutil.copyfile(checkpoint / "tokenizer.json", compiled / "tokenizer.json")


@contextlib.contextmanager
def _hugging_face(folder: Path, case: Case, threads: int) -> Iterator[Ask]:
    import torch
    from transformers import T5ForConditionalGeneration

    torch.set_num_threads(threads)
    model = T5ForConditionalGeneration.from_pretrained(folder / "checkpoint").eval()
    yield _generate(model, case)


@contextlib.contextmanager
def _optimum(folder: Path, case: Case, threads: int) -> Iterator[Ask]:
    import onnxruntime
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    made = folder / "optimum"
    if not made.exists():
        ORTModelForSeq2SeqLM.from_pretrained(folder / "checkpoint", export=True).save_pretrained(made)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    yield _generate(ORTModelForSeq2SeqLM.from_pretrained(made, session_options=options), case)


def _generate(model: Any, case: Case) -> Ask:
    import torch

    source = torch.tensor([case["source"]])
    mask = torch.ones_like(source)

    def ask() -> list[int]:
        with torch.inference_mode():
            output = model.generate(
                input_ids=source, attention_mask=mask, do_sample=False, max_new_tokens=len(case["output"])
            )
        return list(output[0, 1:].tolist())

    return ask


@contextlib.contextmanager
def _ctranslate2(compute_type: str, folder: Path, case: Case, threads: int) -> Iterator[Ask]:
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

    yield ask


@contextlib.contextmanager
def _ours(precision: str, folder: Path, case: Case, threads: int) -> Iterator[Ask]:
    from containers.text2text.generator import TextGenerator

    generator = TextGenerator.load(folder / f"ours-{precision}", _settings(case, threads))
    source = [case["source"]]
    yield lambda: list(generator.generate(source)[0].tolist())


@contextlib.contextmanager
def _triton(precision: str, folder: Path, case: Case, threads: int) -> Iterator[Ask]:
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
        address = urlsplit(server.sagemaker_url)
        connection = http.client.HTTPConnection(address.netloc)

        def ask() -> list[int]:
            connection.request("POST", f"{address.path}/invocations", body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            return [vocabulary[word] for word in answer["outputs"][0]["data"][0].split()]

        yield ask


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


def _named(engine: Any, variant: str) -> Any:
    return lambda folder, case, threads: engine(variant, folder, case, threads)


ENGINES: dict[str, Callable[[Path, Case, int], contextlib.AbstractContextManager[Ask]]] = {
    BASELINE: _hugging_face,
    "optimum fp32": _optimum,
    "ctranslate2 fp32": _named(_ctranslate2, "float32"),
    "ctranslate2 int8": _named(_ctranslate2, "int8"),
    "ours fp32": _named(_ours, "fp32"),
    "ours int8": _named(_ours, "int8"),
    "ours fp32, triton": _named(_triton, "fp32"),
    "ours int8, triton": _named(_triton, "int8"),
}


def missing(engine: str, optimum_python: Path) -> str | None:
    """Returns why this engine cannot run here, or None."""
    if engine == "optimum fp32" and not optimum_python.exists():
        return (
            "optimum-onnx 0.1.0 needs transformers < 4.58, so it has an environment of its own, "
            f"and {optimum_python.parent.parent.name} is not there"
        )
    return None


def python_of(engine: str, optimum_python: Path) -> str:
    return str(optimum_python) if engine == "optimum fp32" else sys.executable
