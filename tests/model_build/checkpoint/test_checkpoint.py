"""A checkpoint is complete, or an error names the file: when it is read, or when transformers loads it."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_build.checkpoint import Checkpoint, read, resolve
from model_build.plan import BuildPlan
from model_build.text2text import export
from model_build.text2text.repository import settings
from tests.builders import message_of
from workloads import OnnxRuntimeTarget, ProjectError, TextToText, UsageError, WorkloadFolder


@pytest.fixture
def folder(tiny_plan: BuildPlan, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_plan.checkpoint.folder, tmp_path / "checkpoint")


T5 = TextToText(task="text2text-generation", checkpoint="./checkpoint", max_input_tokens=24, max_output_tokens=12)


def read_t5(folder: Path) -> Checkpoint:
    return read(folder, folder, T5)


def load(folder: Path) -> None:
    """Reads the checkpoint as a plan does and loads it as a build does."""
    settings(T5, OnnxRuntimeTarget(runtime="onnxruntime"), read_t5(folder))
    export.load(folder)


def edit_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_the_hash_covers_only_the_files_that_a_build_reads(folder: Path) -> None:
    before = read_t5(folder).sha256
    (folder / "training_log.txt").write_text("loss 0.1")
    assert read_t5(folder).sha256 == before
    edit_config(folder, dropout_rate=0.2)
    assert read_t5(folder).sha256 != before


Change = Callable[[Path], object]


def config(**changes: Any) -> Change:
    return lambda folder: edit_config(folder, **changes)


def written(name: str, content: str | bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def removed(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def cut(length: int) -> Change:
    """Shortens the weights to a length, or by a negative number of bytes."""
    file = "model.safetensors"
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:length])


def with_token(folder: Path) -> None:
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"]["z"] = 30
    file.write_text(json.dumps(tokenizer))


def with_integers(folder: Path) -> None:
    file = folder / "model.safetensors"
    content = file.read_bytes()
    at = content.index(b'"F32"')
    file.write_bytes(content[:at] + b'"I32"' + content[at + 5 :])


def without_end(folder: Path) -> None:
    edit_config(folder, eos_token_id=None)
    removed("generation_config.json")(folder)


WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
REFUSALS: dict[str, tuple[Change, str]] = {
    "weights cut short": (cut(-100), f"/{WEIGHTS}: is not a whole safetensors file (*). Copy it again."),
    "an empty file": (cut(0), f"/{WEIGHTS}: is not a whole safetensors file (0 bytes; *). Copy it again."),
    "another format": (
        written(WEIGHTS, struct.pack("<Q", 4) + b"PK\x03\x04"),
        f"/{WEIGHTS}: is not a whole safetensors file (12 bytes; *). Copy it again.",
    ),
    "no weights": (
        removed(WEIGHTS),
        f"/{WEIGHTS}: does not exist. Save the model with `save_pretrained(…)`, which writes safetensors.",
    ),
    "quantised weights": (
        with_integers,
        ": its weight '*' is of type I32. A build takes F64, F32, F16, BF16.",
    ),
    "a missing shard": (
        written(INDEX, json.dumps({"weight_map": {"shared.weight": "model-00002-of-00002.safetensors"}})),
        "/model-00002-of-00002.safetensors: does not exist, but the index names it. Copy the whole checkpoint again.",
    ),
    "a shard elsewhere": (
        written(INDEX, json.dumps({"weight_map": {"shared.weight": "../../elsewhere.safetensors"}})),
        f"/{INDEX}: weight_map: names files other than safetensors files of its folder. Copy it again.",
    ),
    "another architecture": (
        config(architectures=["PegasusXForConditionalGeneration"]),
        f'/{CONFIG}: architectures: got ["PegasusXForConditionalGeneration"], allowed for text2text-generation is '
        "T5ForConditionalGeneration, MT5ForConditionalGeneration, UMT5ForConditionalGeneration, "
        "BartForConditionalGeneration, MBartForConditionalGeneration, MarianMTModel, PegasusForConditionalGeneration, "
        "M2M100ForConditionalGeneration. By its name PegasusForConditionalGeneration is the nearest. docs/families.md "
        "says how to add one.",
    ),
    "no config": (removed(CONFIG), f"/{CONFIG}: does not exist. Copy the whole checkpoint again."),
    "a config that is not JSON": (
        written(CONFIG, "{"),
        f"/{CONFIG}: is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1).",
    ),
    "a config nested too deeply": (
        written(CONFIG, "[" * 100_000),
        f"/{CONFIG}: is not valid JSON: it is nested too deeply.",
    ),
    "a text for a number": (
        config(d_model="32"),
        f'/{CONFIG}: d_model: got "32". Input should be a valid integer.',
    ),
    "no heads": (config(num_heads=0), f"/{CONFIG}: num_heads: got 0. Input should be greater than or equal to 1."),
    "another vocabulary": (
        config(vocab_size=40),
        ": its weight 'shared.weight' has the shape [30, 32], but config.json asks for [40, 32]. Save the model again.",
    ),
    "more layers": (
        config(num_layers=3),
        ": its files hold no weight 'encoder.block.2.layer.0.SelfAttention.k.weight', which config.json asks for. Save "
        "the model again.",
    ),
    "fewer layers": (
        config(num_layers=1),
        ": config.json has no place for its weight 'encoder.block.1.layer.0.SelfAttention.k.weight'. Save the model "
        "again.",
    ),
    "no end of sequence": (
        without_end,
        f"/{CONFIG}: eos_token_id: got null, but decoding needs a token id (an integer).",
    ),
    "no tokenizer": (
        removed("tokenizer.json"),
        "/tokenizer.json: does not exist. Save the model's fast tokenizer there: AutoTokenizer's `save_pretrained` "
        "writes it.",
    ),
    "an empty tokenizer": (
        written("tokenizer.json", "{}"),
        "/tokenizer.json: cannot be used (Exception: *). Save or copy it again.",
    ),
    "a token without an embedding": (
        with_token,
        "/tokenizer.json: token 'z' has the id 30, but config.json says vocab_size 30. Save model and tokenizer "
        "together again.",
    ),
}
"""A change of the folder, and the error after the folder's path. * stands for other text."""


@pytest.mark.parametrize("name", REFUSALS)
def test_a_broken_checkpoint_is_refused(folder: Path, name: str) -> None:
    change, message = REFUSALS[name]
    change(folder)
    with pytest.raises(ProjectError) as caught:
        load(folder)
    before, _, after = message.partition("*")
    error = str(caught.value).removeprefix(str(folder))
    assert caught.value.exit_code == 2
    assert error == message if not after else error.startswith(before) and error.endswith(after)


def test_no_folder(tiny_workload: WorkloadFolder, tmp_path: Path) -> None:
    shutil.rmtree(tiny_workload.path / "checkpoint")
    assert message_of(UsageError, resolve, tiny_workload, tmp_path) == (
        f"{tiny_workload.file}: model.checkpoint: got './checkpoint', but there is no folder "
        f"{tiny_workload.path / 'checkpoint'}. Allowed: a folder (begins with ./, ../ or /), an s3:// URI of a folder "
        "or of a .tar.gz, or a model id of the Hugging Face hub."
    )
