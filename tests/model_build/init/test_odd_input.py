"""Checkpoints and examples of other tools: `init` reads them correctly, or names the fix."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomllib
import torch
from safetensors.torch import load_file, save_file

import model_build.__main__ as command_line
from model_build.plan import plan
from tests import checkpoints
from tests.model_build.init.conftest import Init, copy_of
from tests.model_build.miniatures.tiny_families import make_checkpoint
from workloads import FeatureExtraction

Capture = pytest.CaptureFixture[str]
Refusal = Callable[..., str]


@pytest.fixture
def classifier(brought: Path) -> Path:
    return brought / "bert_classifier"


def file_of(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


@pytest.mark.parametrize(
    ("name", "content", "asked", "labels"),
    [
        pytest.param("a.csv", b'\xef\xbb\xbfText;Label\r\n"good; \xf0\x9f\x99\x82";  Positive \r\nbad;negative\r\n',
                     ["good; 🙂", "bad"], ["positive", "negative"], id="a spreadsheet's CSV: BOM and semicolons"),
        pytest.param("a.csv", b",text,label\n0,good,positive\n1,bad,negative\n",
                     ["good", "bad"], ["positive", "negative"], id="the index of pandas"),
        pytest.param("a.csv", b'text,label\n"a ""quoted""\nword",neutral\n\nb,neutral\n',
                     ['a "quoted"\nword', "b"], ["neutral", "neutral"], id="a line feed in a cell, an empty line"),
        pytest.param("a.tsv", b"text\tlabel\ngood, really\tpositive\n",
                     ["good, really"], ["positive"], id="one example"),
        pytest.param("a.jsonl", b'\xef\xbb\xbf{"text": "a", "label": "neutral"}\n\n{"text": "a", "label": "positive"}',
                     ["a", "a"], ["neutral", "positive"], id="a text twice, with two labels"),
    ],
)  # fmt: skip
def test_examples_are_read_as_they_were_meant(
    init: Init, classifier: Path, tmp_path: Path, name: str, content: bytes, asked: list[str], labels: list[str]
) -> None:
    folder = init(classifier, "--examples", file_of(tmp_path, name, content), "--target", "cpu")
    assert [example.row["text"] for example in folder.evaluation()] == asked
    assert [example.label for example in folder.evaluation()] == labels
    assert [row["text"] for row in folder.payloads()] == asked


def test_unused_columns_are_a_warning(init: Init, classifier: Path, tmp_path: Path, capsys: Capture) -> None:
    file = file_of(tmp_path, "a.csv", "text,author,stars\ngood,Ann,5\n")
    assert init(classifier, "--examples", file, "--target", "cpu").payloads() == [{"text": "good"}]
    assert capsys.readouterr().err == (
        "Warning: --examples: not used: author, stars. --text-column and --label-column name other columns.\n"
    )


@pytest.mark.parametrize(
    ("content", "options", "column", "labels"),
    [
        ("body,queue,id\ngood,Positive,1\nbad,negative,2\n", (), "queue", ["positive", "negative"]),
        ("text,label,queue\ngood,9,positive\nbad,8,negative\n", (), "queue", ["positive", "negative"]),
        ("text,label,guess\ngood,positive,neutral\nbad,negative,neutral\n", (), "label", ["positive", "negative"]),
        ("text,a,b\ngood,positive,neutral\n", ("--label-column", "b"), "b", ["neutral"]),
    ],
)
def test_a_column_that_holds_only_the_models_labels_is_the_label_column(
    init: Init,
    classifier: Path,
    tmp_path: Path,
    capsys: Capture,
    content: str,
    options: tuple[str, ...],
    column: str,
    labels: list[str],
) -> None:
    folder = init(classifier, "--examples", file_of(tmp_path, "a.csv", content), "--target", "cpu", *options)
    assert [example.label for example in folder.evaluation()] == labels
    assert folder.workload.metrics == ("accuracy", "macro_f1")
    assert f"{len(labels)} rows, labels: the column '{column}'; at least accuracy" in capsys.readouterr().out


def test_several_labels_in_a_cell_are_recognised(init: Init, brought: Path, tmp_path: Path) -> None:
    folder = copy_of(brought / "bert_classifier", tmp_path / "several", problem_type="multi_label_classification")
    file = file_of(tmp_path, "a.csv", "body,topics\ngood,positive; neutral\nbad,negative\n")
    rows = init(folder, "--examples", file, "--target", "cpu").evaluation()
    assert [set(example.labels) for example in rows] == [{"positive", "neutral"}, {"negative"}]


def test_squads_list_of_answers_becomes_the_first_answer(init: Init, brought: Path, tmp_path: Path) -> None:
    row = {"id": "7", "question": "who", "context": "abc def", "answers": {"text": ["def", "abc"], "answer_start": [4]}}
    file = file_of(tmp_path, "squad.jsonl", json.dumps(row))
    folder = init(brought / "bert_reader", "--examples", file, "--target", "cpu")
    assert [example.label for example in folder.evaluation()] == ["def"]
    assert folder.payloads() == [{"question": "who", "context": "abc def"}]


@pytest.mark.parametrize("mode", ["cls", "max"])
def test_the_pooling_is_read_without_modules_json(init: Init, tmp_path: Path, mode: str) -> None:
    checkpoints.encoder(tmp_path / "model", num_hidden_layers=1)
    (tmp_path / "model/1_Pooling").mkdir()
    key = {"cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}[mode]
    file_of(tmp_path / "model/1_Pooling", "config.json", json.dumps({key: True, "word_embedding_dimension": 32}))
    model = init(tmp_path / "model", "--target", "cpu").workload.model
    assert isinstance(model, FeatureExtraction)
    assert (model.pooling, model.normalize) == (mode, True)


def test_nomics_own_spelling_of_its_config_is_refused_with_the_way_to_convert_it(
    refusal: Refusal, tmp_path: Path
) -> None:
    make_checkpoint(tmp_path / "model", "nomic_bert", "feature-extraction")
    folder = copy_of(tmp_path / "model", tmp_path / "own", position_embedding_type="rotary")
    assert refusal(folder, "--target", "cpu") == (
        f'{folder / "config.json"}: position_embedding_type: got "rotary", which is not built. NomicBERT is read in '
        "the spelling of transformers' own NomicBertConfig, without trust_remote_code: load the model so, and save it "
        "with `save_pretrained(…)`."
    )


def sharded(source: Path, folder: Path) -> Path:
    """Copies a checkpoint with its weights in two files and half precision."""
    copy_of(source, folder)
    weights = {name: each.to(torch.bfloat16) for name, each in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, own in parts.items():
        save_file({name: weights[name] for name in own}, folder / file, metadata={"format": "pt"})
    index = {"weight_map": {name: file for file, own in parts.items() for name in own}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_weights_in_parts_and_half_precision_answer_as_whole_ones(
    init: Init, classifier: Path, root: Path, tmp_path: Path
) -> None:
    examples = file_of(tmp_path, "a.txt", "\n".join(checkpoints.texts(12)))
    folder = init(sharded(classifier, tmp_path / "odd"), "--examples", examples, "--target", "cpu")
    plan(folder, "cpu", root)
    whole = init(classifier, "--examples", examples, "--target", "cpu", "--overwrite")
    assert folder.evaluation() == whole.evaluation()


def test_a_tokenizer_that_does_not_end_is_refused(
    refusal: Refusal, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_build.checkpoint.tokenizer.LIMIT_S", 0.5)
    folder = copy_of(classifier, tmp_path / "endless")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [grow] * 8}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert refusal(folder) == (
        f"{folder / 'tokenizer.json'}: does not tokenise a text of 100 characters within 0.5 s. Save or copy it again."
    )


CASES = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES["options"], ids=lambda case: " ".join(case["arguments"]))
def test_a_wrong_option_prints_the_usage(capsys: pytest.CaptureFixture[str], case: dict[str, Any]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["init", "mine", "--from", "model", *case["arguments"]])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("usage: python -m model_build init [-h] --from SOURCE")
    assert error.endswith(f"python -m model_build init: error: {case['message']}\n")


@pytest.mark.parametrize("case", CASES["examples"], ids=lambda case: case["name"])
def test_a_wrong_file_of_examples(
    refusal: Callable[..., str], brought: Path, tmp_path: Path, case: dict[str, str]
) -> None:
    file = tmp_path / case["name"]
    file.write_bytes(case["content"].encode(case.get("encoding", "utf-8")))
    message = refusal(brought / "bert_classifier", "--examples", file)
    assert message == case["message"].replace("{file}", str(file))


@pytest.mark.parametrize("case", CASES["checkpoints"], ids=lambda case: str(case.get("config") or case["without"]))
def test_a_wrong_checkpoint(refusal: Callable[..., str], brought: Path, tmp_path: Path, case: dict[str, Any]) -> None:
    folder = copy_of(brought / "bert_classifier", tmp_path / "other", **case.get("config", {}))
    for name in case.get("without", ()):
        (folder / name).unlink()
    assert refusal(folder) == case["message"].replace("{folder}", str(folder))


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--percentile", "95", "percentile: got \"95\". String should match pattern '^P\\d{1,2}(\\.\\d{1,2})?$'."),
        ("--latency-ms", "-5", "model_latency_ms: got -5.0. Input should be greater than 0."),
        (
            "--peak-invocations-per-minute",
            "0",
            "peak_invocations_per_minute: got 0. Input should be greater than or equal to 1.",
        ),
    ],
)
def test_a_wrong_objective(refusal: Callable[..., str], brought: Path, option: str, value: str, problem: str) -> None:
    assert refusal(brought / "bert_classifier", option, value) == f"[objective]: {problem}"


def test_a_wrong_name_or_source(refusal: Callable[..., str], brought: Path, tmp_path: Path) -> None:
    assert refusal(brought / "bert_classifier", name="My-Model") == (
        "NAME: got 'My-Model', but a workload's name begins with a small letter, and small letters, digits and "
        "underscores follow, 31 at most. Say my_model."
    )
    assert refusal(tmp_path / "nowhere") == (
        f"--from: there is no folder {tmp_path / 'nowhere'}. Allowed: a folder, an s3:// URI of a folder or of a "
        ".tar.gz, or a model id of the Hugging Face hub."
    )
