"""`init` writes folders that build as they are, asks only what the files leave open, and refuses in one sentence."""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import model_build.__main__ as command_line
from model_build.init.command_line import ask
from model_build.plan import plan
from tests import checkpoints
from tests.model_build.init.conftest import Init, copy_of, write_csv, write_lines
from workloads import QuestionAnswering, TextClassification, TextToText, load_workload

Capture = pytest.CaptureFixture[str]


def test_a_classifier_with_labelled_rows(init: Init, brought: Path, root: Path, tmp_path: Path) -> None:
    labels = ["Negative", "neutral", "2"]  # in another case, as it is, and by its number
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


def test_rows_without_labels_are_labelled_by_the_original(init: Init, brought: Path, tmp_path: Path) -> None:
    file = tmp_path / "queries.txt"
    file.write_text("\n".join(checkpoints.texts(20)), "utf-8")
    folder = init(brought / "bert_classifier", "--examples", file, "--target", "cpu")
    assert folder.workload.quality == {"min_agreement": 0.98}
    assert folder.workload.metrics == ("agreement",)
    assert set(folder.workload.targets) == {"cpu"}
    assert {example.label for example in folder.evaluation()} <= set(checkpoints.SENTIMENTS.values())
    assert "The 20 rows of evaluation.jsonl have no labels of yours." in folder.file.read_text("utf-8")


def test_questions_as_squad_has_them(init: Init, brought: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": str(i), "question": "who is it", "context": text, "answers": {"text": [text.split()[0]]}}
        for i, text in enumerate(checkpoints.texts(10))
    ]
    folder = init(brought / "bert_reader", "--examples", write_lines(tmp_path / "squad.jsonl", rows))
    assert isinstance(folder.workload.model, QuestionAnswering)
    assert folder.evaluation()[0].label == rows[0]["context"].split()[0]


def test_a_generator_says_why_it_cannot_go_to_inferentia(init: Init, brought: Path, tmp_path: Path) -> None:
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
        "English. Put real requests there before you believe a figure.\n"
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--percentile", "95"), "--percentile: got '95'; write P95."),
        (("--percentile", "p99.9"), "--percentile: got 'p99.9'; write P99.9."),
        (("--percentile", "fast"), "--percentile: got 'fast'; write P95."),
        (("--latency-ms", "-5"), "--latency-ms: got -5; write a number of milliseconds above 0."),
        (("--latency-ms", "nan"), "--latency-ms: got nan; write a number of milliseconds above 0."),
        (("--peak-invocations-per-minute", "0"), "--peak-invocations-per-minute: got 0; write 1 or more."),
    ],
)
def test_a_wrong_objective_names_the_option(
    refusal: Callable[..., str], brought: Path, options: tuple[str, ...], problem: str
) -> None:
    assert refusal(brought / "bert_classifier", *options) == problem


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--traget", "cpu"), "unrecognized arguments: --traget cpu. Did you mean --target?"),
        (("--task", "summarization"), "argument --task: got 'summarization'; write text2text-generation. Allowed: "),
    ],
)
def test_a_wrong_option_prints_the_usage_of_init(capsys: Capture, options: tuple[str, ...], told: str) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["init", "mine", "--from", "model", *options])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: python -m model_build init [-h] --from SOURCE")
    assert told in said


def test_a_gate_that_cannot_fail_is_a_warning(init: Init, brought: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "pairs.txt").write_text("abc\tdef\n")
    init(brought / "t5", "--examples", tmp_path / "pairs.txt", "--target", "cpu")
    assert (
        "Warning: exact_match is at least 0, so this gate cannot fail. The checkpoint reaches 0.0000. --min "
        "exact_match=VALUE sets another.\n"
    ) in capsys.readouterr().err


def test_nothing_is_overwritten_without_being_asked(init: Init, brought: Path, root: Path, capsys: Capture) -> None:
    folder = init(brought / "bert_classifier", "--target", "cpu")
    (folder.path / "notes.txt").write_text("mine")
    folder.file.write_text("edited")
    arguments = ["init", "mine", "--from", str(brought / "bert_classifier"), "--target", "cpu"]
    capsys.readouterr()
    assert command_line.main(arguments) == 2
    assert capsys.readouterr().err == (
        f"{folder.path} is there already, and was left as it is. Give another name, or say --overwrite.\n"
    )
    assert folder.file.read_text() == "edited"
    assert command_line.main([*arguments, "--overwrite"]) == 0
    assert load_workload("mine", root / "workloads").workload.name == "mine"
    assert (folder.path / "notes.txt").read_text() == "mine"


def test_ctrl_c_leaves_nothing(brought: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("model_build.init.folder.plan", interrupted)  # all files are written by then
    assert command_line.main(["init", "mine", "--from", str(brought / "bert_classifier")]) == 130
    assert capsys.readouterr().err.endswith("Interrupted: nothing half-made was left.\n")
    assert list((root / "workloads").iterdir()) == list((root / "build").iterdir()) == []


def test_a_hyphen_in_the_name(refusal: Callable[..., str], brought: Path) -> None:
    assert refusal(brought / "bert_classifier", name="My-Model") == (
        "NAME: got 'My-Model', but a workload's name begins with a small letter, and small letters, digits and "
        "underscores follow, 31 at most. Say my_model."
    )


def test_no_folder(refusal: Callable[..., str], tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere") == (
        f"--from: there is no folder {tmp_path / 'nowhere'}. Allowed: a folder, an s3:// URI of a folder or of a "
        ".tar.gz, or a model id of the Hugging Face hub."
    )


def test_an_unknown_label_is_told_at_its_line(refusal: Callable[..., str], brought: Path, tmp_path: Path) -> None:
    rows = [{"text": "abc", "label": "negative"}, {"text": "abd", "label": "good"}]
    file = write_csv(tmp_path / "rows.csv", rows)
    assert refusal(brought / "bert_classifier", "--examples", file) == (
        f"{file}:3: the label 'good' is none of the checkpoint's: negative, neutral, positive. Correct it, or leave "
        "all labels out: the original's own answers are then the labels."
    )


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


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("empty.csv", b"text,label\n", "--examples {file}: has no examples. Give a CSV with a header, JSON lines, or a "
         "text a line."),
        ("latin.txt", "schön\n".encode("latin-1"), "{file}:1: is not UTF-8: byte 0xf6 in 'sch�n'. Save the file as "
         "UTF-8, as `iconv -f WINDOWS-1252 -t UTF-8` does for one of Western Europe."),
        ("wide.txt", "schön\n".encode("utf-16"), "{file}: is UTF-16. Save it as UTF-8, as `iconv -f UTF-16 -t UTF-8` "
         "does."),
        ("blank.csv", b"text,label\nabc,neutral\n ,neutral\n", "{file}:3: text is empty. Remove the example, or give "
         "it a text."),
        ("half.csv", b"text,label\nabc,neutral\nabd,\n", "{file}:3: has no label, and {file}:2 has one. Label all "
         "examples, or none."),
        ("odd.jsonl", b'{"text": "abc"}\n{"text": \n', "{file}:2: is not valid JSON: Expecting value: line 1 column 10 "
         '(char 9). Write one object a line, as {{"text": "…"}}.'),
        ("wide.csv", b"a,b,c,label\n1,2,3,neutral\n", "--examples {file}: has the columns a, b, c, label, and the task "
         "takes one text or 2 texts. Name the columns of the texts, each with --text-column, and of the label with "
         "--label-column; plain text has tabs between."),
    ],
)  # fmt: skip
def test_examples_that_cannot_be_read(
    refusal: Callable[..., str], brought: Path, tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert refusal(brought / "bert_classifier", "--examples", file) == problem.format(file=file)


def test_an_unknown_architecture_names_the_nearest(refusal: Callable[..., str], brought: Path, tmp_path: Path) -> None:
    changes = {"model_type": "robertina", "architectures": ["RobertinaForSequenceClassification"]}
    folder = copy_of(brought / "bert_classifier", tmp_path / "other", **changes)
    said = refusal(folder)
    assert said.startswith(f'{folder / "config.json"}: model_type: got "robertina", which is no family of encoders')
    assert "By its name RoBERTa is the nearest. docs/families.md says how to add one." in said


def test_a_decoder_alone(refusal: Callable[..., str], brought: Path, tmp_path: Path) -> None:
    folder = copy_of(brought / "bert_classifier", tmp_path / "other", architectures=["GPT2LMHeadModel"])
    assert refusal(folder) == (
        f"{folder / 'config.json'}: architectures: GPT2LMHeadModel is a decoder alone, which writes on from a prompt, "
        "and nothing here serves one. Served: encoders, and encoders with a decoder (docs/families.md)."
    )


def test_a_task_that_cannot_be_told_is_asked_for(refusal: Callable[..., str], brought: Path, tmp_path: Path) -> None:
    folder = copy_of(brought / "bert_classifier", tmp_path / "one", id2label={"0": "LABEL_0"})
    assert refusal(folder) == (
        f"{folder / 'config.json'}: the head has one output and no problem_type, so it may rank texts (text-ranking) "
        "or estimate a number (text-classification). Say --task text-ranking or --task text-classification."
    )


@pytest.mark.parametrize("answers", ["text-classification\n", "what?\ntext-classification\n"])
def test_on_a_terminal_a_person_is_asked(monkeypatch: pytest.MonkeyPatch, capsys: Capture, answers: str) -> None:
    terminal = io.StringIO(answers)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert ask("It may be two things.", ("text-ranking", "text-classification")) == "text-classification"
    assert capsys.readouterr().err.startswith("\nIt may be two things.\nWhich? text-ranking / text-classification: ")


def test_no_class_is_named(refusal: Callable[..., str], brought: Path, tmp_path: Path) -> None:
    folder = copy_of(brought / "bert_classifier", tmp_path / "other", architectures=None)
    assert refusal(folder) == (
        f"{folder / 'config.json'}: architectures: got null, but it names the model's class, as in "
        '["BertForSequenceClassification"]. Save the model with `save_pretrained(…)`, which writes it.'
    )


def test_no_tokenizer(refusal: Callable[..., str], brought: Path, tmp_path: Path) -> None:
    folder = copy_of(brought / "bert_classifier", tmp_path / "other")
    (folder / "tokenizer.json").unlink()
    assert refusal(folder) == (
        f"{folder / 'tokenizer.json'}: does not exist, nor does what one is made from (vocab.txt, vocab.json, "
        "merges.txt, *.model, *.spm, *.bpe, added_tokens.json). Save the model's tokenizer there: AutoTokenizer's "
        "`save_pretrained` writes it."
    )


def test_older_files_are_converted(init: Init, brought: Path, tmp_path: Path, root: Path) -> None:
    """A pickle of weights and WordPiece's vocabulary give the answers of safetensors and tokenizer.json."""
    folder = copy_of(brought / "bert_classifier", tmp_path / "older")
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (tmp_path / "texts.txt").write_text("\n".join(checkpoints.texts(20)), "utf-8")
    options = ("--examples", tmp_path / "texts.txt", "--target", "cpu")
    converted = init(folder, *options).evaluation()
    assert converted == init(brought / "bert_classifier", *options, "--overwrite").evaluation()


def test_a_pickle_of_more_than_weights_is_not_read(refusal: Callable[..., str], brought: Path, tmp_path: Path) -> None:
    folder = copy_of(brought / "bert_classifier", tmp_path / "older")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Path("x")}, protocol=2))
    assert refusal(folder) == (
        f"{folder / 'pytorch_model.bin'}: holds more than tensors, which might run code, and was not read. Save the "
        "model with `save_pretrained(…)`, which writes safetensors."
    )
