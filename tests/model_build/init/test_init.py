"""`init` writes folders that build without an edit, with the checkpoint's own token limit."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import model_build.__main__ as command_line
from model_build.init import model_table
from model_build.plan import plan
from tests import checkpoints
from tests.model_build.init.conftest import Init, copy_of, write_csv
from workloads import TextClassification, TextToText, load_workload

Capture = pytest.CaptureFixture[str]


def test_a_classifier_with_labelled_rows(init: Init, brought: Path, root: Path, tmp_path: Path) -> None:
    labels = ["Negative", "neutral", "2"]  # in another case, in its own spelling, and by its number
    rows = [{"id": i, "review": text, "label": labels[i % 3]} for i, text in enumerate(checkpoints.texts(30))]
    folder = init(brought / "bert_classifier", "--examples", write_csv(tmp_path / "reviews.csv", rows))
    workload = folder.workload
    assert isinstance(workload.model, TextClassification)
    assert workload.model.labels == ("negative", "neutral", "positive")
    assert workload.model.max_input_tokens == 66
    assert workload.metrics == ("accuracy", "macro_f1")
    assert [example.label for example in folder.evaluation()[:3]] == ["negative", "neutral", "positive"]
    assert folder.payloads() == [{"text": row["review"]} for row in rows]
    assert set(workload.targets) == {"cpu", "cpu-int8", "inf1", "inf2", "tensorrt"}
    for target in workload.targets:
        plan(folder, target, root)


@pytest.mark.parametrize(("rows", "int8"), [(16, "openvino"), (15, "onnxruntime")])
def test_an_encoder_of_base_size_gets_openvino_and_for_int8_if_it_can_calibrate(
    rows: int, int8: str, init: Init, brought: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_table, "BASE_WIDTH", 1)
    file = tmp_path / "queries.txt"
    file.write_text("\n".join(checkpoints.texts(rows)), "utf-8")
    targets = init(brought / "bert_classifier", "--examples", file).workload.targets
    assert (targets["cpu"].runtime, targets["cpu-int8"].runtime) == ("openvino", int8)


def test_rows_without_labels_are_labelled_by_the_original(init: Init, brought: Path, tmp_path: Path) -> None:
    file = tmp_path / "queries.txt"
    file.write_text("\n".join(checkpoints.texts(20)), "utf-8")
    folder = init(brought / "bert_classifier", "--examples", file, "--target", "cpu")
    assert folder.workload.quality == {"min_agreement": 0.98}
    assert folder.workload.metrics == ("agreement",)
    assert set(folder.workload.targets) == {"cpu"}
    assert {example.label for example in folder.evaluation()} <= set(checkpoints.SENTIMENTS.values())
    assert "The 20 rows of evaluation.jsonl have no labels of yours." in folder.file.read_text("utf-8")


def test_a_generator_names_the_reason_against_inferentia(init: Init, brought: Path, tmp_path: Path) -> None:
    pairs = "\n".join(f"{text}\t{text[::-1]}" for text in checkpoints.texts(12))
    (tmp_path / "pairs.txt").write_text(pairs, "utf-8")
    folder = init(brought / "t5", "--examples", tmp_path / "pairs.txt")
    assert isinstance(folder.workload.model, TextToText)
    assert set(folder.workload.targets) == {"cpu", "cpu-int8", "tensorrt"}
    assert set(folder.workload.quality) == {"min_exact_match"}  # no text is its own label
    written = " ".join(folder.file.read_text("utf-8").replace("\n#", "").split())
    assert (
        "No [targets.inf1]: 'neuron' is not built for text2text-generation. A decoder with a cache has no plain trace, "
        "and no static graph for Neuron. Allowed: onnxruntime, cuda, tensorrt. "
    ) in written


def test_the_five_decisions_and_the_next_three_commands(init: Init, brought: Path, capsys: Capture) -> None:
    options = ("--min", "agreement=0.9", "--percentile", "P99", "--latency-ms", 25, "--peak-invocations-per-minute", 90)
    objective = init(brought / "bert_classifier", "--json", *options).workload.latency_objective
    assert (objective.percentile, objective.model_latency_ms) == ("P99", 25.0)
    assert objective.peak_invocations_per_minute == 90
    out, err = capsys.readouterr()
    assert json.loads(out)["next"] == [
        "python -m model_build build mine --target cpu",
        "cdk deploy MineStack",
        "python -m inference_recommender run mine --job advanced --traffic quick",
    ]
    assert err == (
        "Warning: --examples: none given, so evaluation.jsonl and payloads.jsonl have a few made-up sentences in "
        "English. Replace them with real requests before you rely on a figure.\n"
    )


def test_a_gate_that_cannot_fail_is_a_warning(init: Init, brought: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "pairs.txt").write_text("abc\tdef\n")
    init(brought / "t5", "--examples", tmp_path / "pairs.txt", "--target", "cpu")
    assert (
        "Warning: exact_match is at least 0, so this gate cannot fail. The checkpoint reaches 0.0000. Set "
        "--min exact_match=VALUE.\n"
    ) in capsys.readouterr().err


def test_nothing_is_overwritten_without_the_option(init: Init, brought: Path, root: Path, capsys: Capture) -> None:
    folder = init(brought / "bert_classifier", "--target", "cpu")
    (folder.path / "notes.txt").write_text("mine")
    folder.file.write_text("edited")
    arguments = ["init", "mine", "--from", str(brought / "bert_classifier"), "--target", "cpu"]
    capsys.readouterr()
    assert command_line.main(arguments) == 2
    assert capsys.readouterr().err == (
        f"{folder.path} exists and was not changed. Give another name, or add --overwrite.\n"
    )
    assert folder.file.read_text() == "edited"
    assert command_line.main([*arguments, "--overwrite"]) == 0
    assert load_workload("mine", root / "workloads").workload.name == "mine"
    assert (folder.path / "notes.txt").read_text() == "mine"


def test_ctrl_c_leaves_nothing(brought: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("model_build.init.new_workload.plan", interrupted)  # all files are written by then
    assert command_line.main(["init", "mine", "--from", str(brought / "bert_classifier")]) == 130
    assert capsys.readouterr().err.endswith("Interrupted: no incomplete files remain.\n")
    assert list((root / "workloads").iterdir()) == list((root / "build").iterdir()) == []


def test_labels_that_the_checkpoint_does_not_name(
    init: Init, refusal: Callable[..., str], tmp_path: Path, root: Path
) -> None:
    checkpoints.bert_classifier(tmp_path / "bare", id2label={0: "LABEL_0", 1: "LABEL_1"})
    file = write_csv(tmp_path / "rows.csv", [{"text": "abc", "label": "bad"}, {"text": "abd", "label": "good"}])
    assert refusal(tmp_path / "bare", "--examples", file) == (
        f"{file}:2: the label 'bad' is none of the checkpoint's: LABEL_0, LABEL_1. config.json names none: give the "
        "names with --labels, in the order of the head's outputs."
    )
    folder = init(tmp_path / "bare", "--examples", file, "--target", "cpu", "--labels", "bad", "good")
    assert [example.label for example in folder.evaluation()] == ["bad", "good"]
    plan(folder, "cpu", root)


def test_a_pickle_of_more_than_weights_is_not_read(refusal: Callable[..., str], brought: Path, tmp_path: Path) -> None:
    folder = copy_of(brought / "bert_classifier", tmp_path / "older")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Path("x")}, protocol=2))
    assert refusal(folder) == (
        f"{folder / 'pytorch_model.bin'}: contains more than tensors, which might run code, and was not read. "
        "Save the model with `save_pretrained(…)`, which writes safetensors."
    )


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
