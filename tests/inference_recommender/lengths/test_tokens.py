"""Payloads are counted, cut and joined by the workload's own tokenizer, and a recommendation says how long they are."""

from pathlib import Path

import pytest

from inference_recommender.lengths import tokens
from inference_recommender.lengths.tokens import (
    PayloadTokenizer,
    built_tokenizer,
    known_lengths,
    payload_lengths,
    token_counts,
)
from inference_recommender.output import lengths_explained
from inference_recommender.report.lengths import lengths_table, shifts_table
from workloads import TextClassification, UsageError, load_workload

CHECKPOINTS = {"spellcheck": "spellcheck", "question_answering": "question_answering", "duplicates": "product_bert"}
"""The folder with the tokenizer of each workload."""


def tokenizer_of(name: str) -> PayloadTokenizer:
    folder = load_workload(name)
    return PayloadTokenizer.load(folder.path.parent / CHECKPOINTS[name] / "checkpoint/tokenizer.json", folder.workload)


def test_a_row_is_counted_as_the_model_reads_it() -> None:
    assert tokenizer_of("spellcheck").count([{"text": "waterprof jacket red"}]) == [9]  # with </s>
    pair = {"title": "Kennel", "brand": "", "other_title": "kennel", "other_brand": "Petoria"}
    alone = {**pair, "other_brand": ""}
    longer, shorter = tokenizer_of("duplicates").count([pair, alone])
    assert longer > shorter > 3  # [CLS], two [SEP] and a word each


@pytest.mark.parametrize(("name", "lengths"), [("spellcheck", (3, 17, 64)), ("question_answering", (40, 128))])
def test_requests_of_a_stated_length_are_made_of_real_ones(name: str, lengths: tuple[int, ...]) -> None:
    tokenizer, rows = tokenizer_of(name), load_workload(name).payloads()
    words = {word for row in rows for text in row.values() for word in text.split()}
    for length in lengths:
        made = [tokenizer.resized(rows, start, length) for start in range(5)]
        assert tokenizer.count(made) == [length] * 5
        assert all(set(text.split()[:-1]) <= words for row in made for text in row.values())  # the last may be cut


def test_a_row_is_not_cut_below_its_other_fields() -> None:
    tokenizer, rows = tokenizer_of("question_answering"), load_workload("question_answering").payloads()
    made = tokenizer.resized(rows, 0, 3)
    assert made["question"] == rows[0]["question"]
    assert made["context"] == "With"


def test_a_model_that_cuts_reads_no_more_than_its_limit() -> None:
    folder = load_workload("text_classification")
    file = folder.path / "checkpoint/tokenizer.json"
    rows = [{"text": "good " * 600}]
    assert PayloadTokenizer.load(file, folder.workload).count(rows)[0] > 512
    assert isinstance(folder.workload.model, TextClassification)
    model = folder.workload.model.model_copy(update={"truncation": True})
    cuts = folder.workload.model_copy(update={"model": model})
    assert PayloadTokenizer.load(file, cuts).count(rows) == [512]


def test_percentiles_are_counts_that_so_many_do_not_exceed() -> None:
    counts = token_counts([*range(1, 101)])
    assert (counts.mean, counts.p50, counts.p90, counts.p99, counts.maximum) == (50.5, 50, 90, 99, 100)
    assert token_counts([7]).p99 == 7


def test_a_recommendation_says_for_which_lengths_it_is() -> None:
    lengths = payload_lengths(tokenizer_of("spellcheck"), load_workload("spellcheck").payloads())
    assert lengths_explained(lengths) == (
        "Payload length: 11 tokens at P50, 19 at P99, 20 at most (workload limit 64)."
    )
    answered = lengths.model_copy(update={"output_tokens": token_counts([5, 6, 9])})
    assert lengths_explained(answered).endswith(" Answer length: 6 tokens at P50, 9 at P99, 9 at most.")
    table = lengths_table(answered)
    assert table is not None
    assert [(row["of"], row["p50"]) for row in table.rows] == [("requests", 11), ("answers", 6)]
    assert table.note == (
        "The recommendation is for payloads of these lengths, 256 of them; the model takes 64 tokens. What longer ones "
        "would cost, the command `lengths` measures."
    )
    assert shifts_table(lengths) is None
    assert lengths_table(None) is None


def test_a_build_without_a_tokenizer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "ROOT", tmp_path)
    folder, told = load_workload("spellcheck"), list[str]()
    repository = tmp_path / "build/spellcheck/tensorrt/repository"
    why = (
        f"{repository}: has no tokenizer.json, by which payloads are counted. Build it here: `python -m model_build "
        "build spellcheck --target tensorrt`; a model that tokenises with a TorchScript module has none."
    )
    with pytest.raises(UsageError) as refused:
        built_tokenizer(folder)
    assert str(refused.value) == why
    assert known_lengths(folder, told.append) is None
    assert told == [f"The recommendation will not say for which lengths of payloads it is. {why}"]
    (repository / "spellcheck/1").mkdir(parents=True)
    (repository / "spellcheck/1/tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(UsageError, match=r"tokenizer\.json: cannot be read as a tokenizer: .*Build spellcheck again\."):
        built_tokenizer(folder)
