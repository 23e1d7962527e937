"""Request bodies, their archive, and payload lengths by the workload's own tokenizer."""

import io
import json
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from inference_recommender import payload_lengths
from inference_recommender.payload_lengths import PayloadTokenizer, built_tokenizer, known_lengths, token_counts
from inference_recommender.payloads import (
    answer,
    check_payloads,
    header_size,
    payload_archive,
    request_bodies,
    request_body,
    row_of,
)
from inference_recommender.report.candidates import lengths_text
from tests.builders import message_of
from workloads import LatencyObjective, TextClassification, UsageError, load_workload


def objective(rows: int, form: str = "json") -> LatencyObjective:
    document = {"percentile": "P99", "model_latency_ms": 50, "peak_invocations_per_minute": 600}
    return LatencyObjective.model_validate({**document, "rows_per_invocation": rows, "payload_format": form})


def test_the_archive_has_a_file_per_payload_and_is_reproducible() -> None:
    rows = [{"text": text} for text in ("runing sheos", "café", "a")]
    archive = payload_archive(rows)
    assert archive == payload_archive(rows)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as stream:
        bodies = [file.read() for member in stream if (file := stream.extractfile(member))]
    assert bodies == [request_body(row) for row in rows]


def test_requests_of_several_rows_have_every_row_in_one_and_the_last_is_filled_up_from_the_first() -> None:
    rows = [{"question": f"q{number}", "context": f"c{number}"} for number in range(5)]
    bodies = [json.loads(body)["inputs"] for body in request_bodies(rows, objective(2))]
    assert [[tensor["data"] for tensor in body] for body in bodies] == [
        [["q0", "q1"], ["c0", "c1"]],
        [["q2", "q3"], ["c2", "c3"]],
        [["q4", "q0"], ["c4", "c0"]],
    ]
    assert {tuple(tensor["shape"]) for body in bodies for tensor in body} == {(2, 1)}
    (more_than_there_are,) = request_bodies(rows[:2], objective(5))
    assert json.loads(more_than_there_are)["inputs"][0]["data"] == ["q0", "q1", "q0", "q1", "q0"]


def test_binary_requests_have_headers_of_one_size_which_the_content_type_of_all_of_them_names() -> None:
    rows = [{"question": "q" * length, "context": "é"} for length in (1, 32, 5_000)]
    binary = objective(2, "binary")
    size = header_size(tuple(rows[0]), binary)
    for body, texts in zip(request_bodies(rows, binary), ([1, 32], [5_000, 1]), strict=True):
        header = json.loads(body[:size])
        assert [tensor["shape"] for tensor in header["inputs"]] == [[2, 1], [2, 1]]
        assert header["parameters"] == {"binary_data_output": True}
        sent = b"".join(struct.pack("<I", each) + b"q" * each for each in texts)
        assert body[size:] == sent + (struct.pack("<I", 2) + "é".encode()) * 2
    assert header_size(tuple(rows[0]), objective(2)) is None


def test_a_request_of_several_rows_that_no_endpoint_takes_is_named() -> None:
    rows = [{"text": "a"}, {"text": "b"}, {"text": "c" * 4_000_000}, {"text": "d" * 4_000_000}]
    check_payloads("spellcheck", rows)
    assert message_of(UsageError, check_payloads, "spellcheck", rows, objective(2)) == (
        "workloads/spellcheck/payloads.jsonl: request 2 of 2 rows is 8,000,076 bytes. Allowed: 6,291,456 at most, as "
        "InvokeEndpoint takes."
    )


def test_an_answer_is_the_text_and_the_other_outputs_with_their_names() -> None:
    text = np.array([[b"running shoes"]], object)
    assert answer({"CORRECTED": text}) == "running shoes"
    score = np.array([[0.1]], np.float32)
    assert answer({"SCORE": score, "LABEL": text}) == "running shoes, score 0.1"
    assert answer({"SCORE": score}) == "0.1"
    assert (
        answer({"LABELS": text, "SCORES": np.array([[0.25, 0.5]], np.float32)}) == "running shoes, scores [0.25, 0.5]"
    )
    assert answer({"EMBEDDING": np.arange(384.0)[None]}) == "[0, 1, 2, 3, … of 384]"


def test_what_a_person_types_is_the_only_field_or_a_json_object_of_all() -> None:
    assert row_of("runing sheos", ["text"]) == {"text": "runing sheos"}
    assert row_of('{"context": "b", "question": "a"}', ["question", "context"]) == {"question": "a", "context": "b"}


@pytest.mark.parametrize("typed", ["How tall?", "[1]", '{"question": "a"}', '{"question": "a", "context": 2}'])
def test_a_row_of_several_fields_must_be_whole(typed: str) -> None:
    assert message_of(UsageError, row_of, typed, ["question", "context"]) == (
        f'TEXT: got \'{typed}\', but this model has several fields: give {{"question": "…", "context": "…"}}.'
    )


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
    assert message_of(UsageError, built_tokenizer, folder) == reason
    assert known_lengths(folder, warnings.append) is None
    assert warnings == [f"The recommendation will not state payload lengths. {reason}"]
    (repository / "spellcheck/1").mkdir(parents=True)
    (repository / "spellcheck/1/tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(UsageError, match=r"tokenizer\.json: cannot be read as a tokenizer: .*Build spellcheck again\."):
        built_tokenizer(folder)
