"""Payloads are counted by the workload's own tokenizer, and a recommendation states their lengths."""

from pathlib import Path

import pytest

from inference_recommender import payload_lengths
from inference_recommender.payload_lengths import PayloadTokenizer, built_tokenizer, known_lengths, token_counts
from inference_recommender.report.candidates import lengths_text
from workloads import TextClassification, UsageError, load_workload

CHECKPOINTS = {"spellcheck": "spellcheck", "duplicates": "product_bert"}


def tokenizer_of(name: str) -> PayloadTokenizer:
    folder = load_workload(name)
    return PayloadTokenizer(folder.path.parent / CHECKPOINTS[name] / "checkpoint/tokenizer.json", folder.workload)


def test_a_row_is_counted_as_the_model_reads_it() -> None:
    assert tokenizer_of("spellcheck").count([{"text": "waterprof jacket red"}]) == [9]  # with </s>
    pair = {"title": "Kennel", "brand": "", "other_title": "kennel", "other_brand": "Petoria"}
    longer, shorter = tokenizer_of("duplicates").count([pair, {**pair, "other_brand": ""}])
    assert longer > shorter > 3  # [CLS], two [SEP] and a word each


def test_a_model_that_truncates_reads_at_most_its_limit() -> None:
    folder = load_workload("text_classification")
    file = folder.path / "checkpoint/tokenizer.json"
    rows = [{"text": "good " * 600}]
    assert PayloadTokenizer(file, folder.workload).count(rows)[0] > 512
    assert isinstance(folder.workload.model, TextClassification)
    model = folder.workload.model.model_copy(update={"truncation": True})
    truncating = folder.workload.model_copy(update={"model": model})
    assert PayloadTokenizer(file, truncating).count(rows) == [512]


def test_a_recommendation_states_its_payload_lengths() -> None:
    assert token_counts([*range(1, 101)]).p99 == 99
    lengths = payload_lengths.payload_lengths(tokenizer_of("spellcheck"), load_workload("spellcheck").payloads())
    assert lengths_text(lengths) == ("Payload length: 11 tokens at P50, 19 at P99, 20 at most (workload limit 64).")


def test_a_build_without_a_tokenizer_gives_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_lengths, "ROOT", tmp_path)
    folder, warnings = load_workload("spellcheck"), list[str]()
    repository = tmp_path / "build/spellcheck/tensorrt/repository"
    reason = (
        f"{repository} has no tokenizer.json, so payload lengths are unknown. Run `python -m model_build build "
        "spellcheck --target tensorrt` here. A model that tokenizes with a TorchScript module has none."
    )
    with pytest.raises(UsageError) as refused:
        built_tokenizer(folder)
    assert str(refused.value) == reason
    assert known_lengths(folder, warnings.append) is None
    assert warnings == [f"The recommendation will not state payload lengths. {reason}"]
    (repository / "spellcheck/1").mkdir(parents=True)
    (repository / "spellcheck/1/tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(UsageError, match=r"tokenizer\.json: cannot be read as a tokenizer: .*Build spellcheck again\."):
        built_tokenizer(folder)
