"""`init` takes the checkpoint's own token limit, and says what serving does with longer requests."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model_build.init.conftest import Init, copy_of
from workloads import TextClassification

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    file = tmp_path / "texts.txt"
    file.write_text("abc def\nghi\n")
    return file


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, 66),
        ({"tokenizer_config.json": {"model_max_length": 60}}, 60),
        ({"tokenizer_config.json": {"model_max_length": 10**30}}, 66),
        ({"tokenizer_config.json": {"model_max_length": 50}, "sentence_bert_config.json": {"max_seq_length": 48}}, 48),
    ],
)
def test_the_limit_is_the_smallest_that_the_checkpoint_names(
    init: Init, brought: Path, tmp_path: Path, texts: Path, files: dict[str, dict[str, int]], limit: int
) -> None:
    folder = copy_of(brought / "bert_classifier", tmp_path / "model")
    for name, keys in files.items():
        known = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        (folder / name).write_text(json.dumps(known | keys))
    model = init(folder, "--examples", texts, "--target", "cpu").workload.model
    assert model.max_input_tokens == limit


def test_an_option_lowers_the_limit_and_longer_examples_are_truncated(
    init: Init, brought: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "texts.txt").write_text("abc\nabcdefghijkl\n")
    options = ("--examples", tmp_path / "texts.txt", "--target", "cpu", "--max-input-tokens", 8)
    model = init(brought / "bert_classifier", *options).workload.model
    assert isinstance(model, TextClassification)
    assert (model.max_input_tokens, model.truncation) == (8, True)
    assert "Longer requests are truncated (model.truncation = true); the checkpoint's limit is 66 tokens.\n" in (
        capsys.readouterr().out
    )


def test_a_reader_reads_longer_contexts_in_windows(init: Init, brought: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "texts.jsonl").write_text(json.dumps({"question": "who", "context": "a " * 80, "answer": "a"}))
    init(brought / "bert_reader", "--examples", tmp_path / "texts.jsonl", "--target", "cpu")
    assert "Longer requests are read in windows (model.stride = 16); the checkpoint's limit is 66 tokens.\n" in (
        capsys.readouterr().out
    )


def test_without_a_limit_the_examples_give_it(init: Init, brought: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "texts.txt").write_text("abc\tabc\nghi\tghi\n")
    model = init(brought / "t5", "--examples", tmp_path / "texts.txt", "--target", "cpu").workload.model
    assert model.max_input_tokens == 16
    assert "Longer requests are rejected; the checkpoint names no limit.\n" in capsys.readouterr().out


@pytest.mark.parametrize("asked", [0, 67])
def test_a_limit_beyond_the_positions_is_refused(
    refusal: Callable[..., str], brought: Path, texts: Path, asked: int
) -> None:
    assert refusal(brought / "bert_classifier", "--examples", texts, "--max-input-tokens", asked) == (
        f"--max-input-tokens: got {asked}. Allowed: 1 to 66, the checkpoint's positions."
    )
