"""A checkpoint is whole, or one sentence says which file is not."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from model_build.checkpoint import Checkpoint, read, resolve
from model_build.plan import BuildPlan
from model_build.text2text.repository import settings
from workloads import OnnxRuntimeTarget, ProjectError, TextToText, UsageError, WorkloadFolder


@pytest.fixture
def folder(tiny_plan: BuildPlan, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_plan.checkpoint.folder, tmp_path / "checkpoint")


T5 = TextToText(task="text2text-generation", checkpoint="./checkpoint", max_input_tokens=24, max_output_tokens=12)


def read_t5(folder: Path) -> Checkpoint:
    return read(folder, folder, T5)


def refusal(folder: Path) -> str:
    with pytest.raises(ProjectError) as caught:
        read_t5(folder)
    assert caught.value.exit_code == 2
    return str(caught.value)


def edit_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_the_token_ids_are_the_checkpoints(folder: Path) -> None:
    decoding = settings(T5, OnnxRuntimeTarget(runtime="onnxruntime"), read_t5(folder))
    assert decoding.decoder_start_token_id == 0
    assert decoding.eos_token_ids == (1, 25)
    assert decoding.pad_token_id == 0


def test_the_hash_is_of_what_a_build_reads_and_nothing_else(folder: Path) -> None:
    before = read_t5(folder).sha256
    (folder / "training_log.txt").write_text("loss 0.1")
    assert read_t5(folder).sha256 == before
    edit_config(folder, dropout_rate=0.2)
    assert read_t5(folder).sha256 != before


def test_weights_cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    assert refusal(folder) == (
        f"{file}: has {len(whole) - 100} bytes, but its header promises {len(whole)}. Copy it again."
    )


@pytest.mark.parametrize("length", [0, 5, 100])
def test_weights_cut_short_within_the_header(folder: Path, length: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    assert refusal(folder) == f"{file}: is cut short within its header, at {length} bytes. Copy it again."


def test_weights_that_are_something_else(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", 4) + b"PK\x03\x04")
    assert refusal(folder) == f"{file}: is not a safetensors file: its header is not JSON."


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert refusal(folder) == (
        f"{folder / 'model.safetensors'}: does not exist. "
        "Save the model with `save_pretrained(…)`, which writes safetensors."
    )


def test_a_shard_that_only_the_index_knows(folder: Path) -> None:
    index = {"weight_map": {"shared.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refusal(folder) == (
        f"{folder / 'model-00002-of-00002.safetensors'}: does not exist, but the index names it. "
        "Copy the whole checkpoint again."
    )


def test_another_architecture(folder: Path) -> None:
    edit_config(folder, architectures=["PegasusXForConditionalGeneration"])
    assert refusal(folder) == (
        f'{folder / "config.json"}: architectures: got ["PegasusXForConditionalGeneration"], allowed for '
        "text2text-generation is T5ForConditionalGeneration, MT5ForConditionalGeneration, "
        "UMT5ForConditionalGeneration, BartForConditionalGeneration, MBartForConditionalGeneration, MarianMTModel, "
        "PegasusForConditionalGeneration, M2M100ForConditionalGeneration. By its name "
        "PegasusForConditionalGeneration is the nearest. docs/families.md says how to add one."
    )


def test_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert refusal(folder) == f"{folder / 'config.json'}: does not exist. Copy the whole checkpoint again."


def test_a_config_that_is_not_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    assert refusal(folder) == (
        f"{folder / 'config.json'}: is not valid JSON: "
        "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."
    )


def test_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert refusal(folder) == (
        f"{folder / 'tokenizer.json'}: does not exist. "
        "Save the model's fast tokenizer there: AutoTokenizer's `save_pretrained` writes it."
    )


def test_a_tokenizer_that_is_none(folder: Path) -> None:
    file = folder / "tokenizer.json"
    file.write_text("{}")
    assert refusal(folder).startswith(f"{file}: cannot be used (Exception: ")
    assert refusal(folder).endswith("). Save or copy it again.")


def test_a_token_without_an_embedding(folder: Path) -> None:
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"]["z"] = 30
    file.write_text(json.dumps(tokenizer))
    assert refusal(folder) == (
        f"{file}: token 'z' has the id 30, but config.json says vocab_size 30. Save model and tokenizer together again."
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"d_model": "32"}, 'config.json: d_model: got "32". Input should be a valid integer.'),
        ({"num_heads": 0}, "config.json: num_heads: got 0. Input should be greater than or equal to 1."),
        (
            {"d_model": 16},
            ": its weight 'shared.weight' has the shape [30, 32], but config.json asks for [30, 16]. "
            "Save the model again.",
        ),
        (
            {"num_layers": 3},
            ": its files hold no weight 'encoder.block.2.layer.0.SelfAttention.q.weight', which config.json asks for. "
            "Save the model again.",
        ),
        (
            {"num_layers": 1},
            ": config.json has no place for its weight 'encoder.block.1.layer.0.SelfAttention.k.weight'. "
            "Save the model again.",
        ),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_configuration_that_is_not_the_weights(folder: Path, changes: dict[str, Any], told: str) -> None:
    edit_config(folder, **changes)
    assert refusal(folder).removeprefix(str(folder)).removeprefix("/") == told


def test_a_configuration_nested_too_deeply(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)
    assert refusal(folder) == f"{folder / 'config.json'}: is not valid JSON: it is nested too deeply."


def test_a_header_that_describes_no_tensors(folder: Path) -> None:
    file = folder / "model.safetensors"
    header = json.dumps({"shared.weight": {"dtype": "F32"}}).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header)
    assert refusal(folder).startswith(f"{file}: is not a safetensors file (")
    assert refusal(folder).endswith("). Copy it again.")


def test_an_index_that_names_no_files(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"shared.weight": "../../elsewhere.safetensors"}}))
    assert refusal(folder) == (
        f"{index}: weight_map: names files other than safetensors files of its folder. Copy it again."
    )


def test_quantised_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    content = file.read_bytes()
    at = content.index(b'"F32"')
    file.write_bytes(content[:at] + b'"I32"' + content[at + 5 :])
    assert refusal(folder).endswith("is of type I32. A build takes F64, F32, F16, BF16.")


def test_no_end_of_sequence(folder: Path) -> None:
    edit_config(folder, eos_token_id=None)
    (folder / "generation_config.json").unlink(missing_ok=True)
    with pytest.raises(UsageError) as caught:
        settings(T5, OnnxRuntimeTarget(runtime="onnxruntime"), read_t5(folder))
    assert str(caught.value) == (
        f"{folder / 'config.json'}: eos_token_id: got null, but decoding needs a token id (an integer)."
    )


def test_no_folder(tiny_workload: WorkloadFolder, tmp_path: Path) -> None:
    shutil.rmtree(tiny_workload.path / "checkpoint")
    with pytest.raises(UsageError) as caught:
        resolve(tiny_workload, tmp_path)
    assert str(caught.value) == (
        f"{tiny_workload.file}: model.checkpoint: got './checkpoint', but there is no folder "
        f"{tiny_workload.path / 'checkpoint'}. Allowed: a folder (begins with ./, ../ or /), an s3:// URI of a folder "
        "or of a .tar.gz, or a model id of the Hugging Face hub."
    )
