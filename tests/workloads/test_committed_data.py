"""The data and checkpoints of the committed workloads: files load, rows are unique, and rows fit the model."""

from functools import cache

import pytest
from tokenizers import Tokenizer

from workloads import Row, WorkloadFolder, load_workload, workload_names
from workloads.folder import ROOT
from workloads.model import TextToText

NAMES = workload_names(ROOT / "workloads")
MAX_CHECKPOINT_BYTES = 10e6


@cache
def tokenizer_of(workload: WorkloadFolder) -> Tokenizer:
    model = workload.workload.model
    location = getattr(model, "backbone", None) or model.checkpoint
    return Tokenizer.from_file(str(workload.path / str(location) / "tokenizer.json"))


def token_ids(workload: WorkloadFolder, row: Row) -> list[int]:
    segments = getattr(workload.workload.model, "segments", (("text",),))
    texts = [" ".join(row[field] for field in fields) for fields in segments]
    return tokenizer_of(workload).encode(texts[0], texts[1] if len(texts) > 1 else None).ids


@pytest.mark.parametrize("name", NAMES)
def test_examples_and_payloads_are_unique_and_fit_the_model(name: str) -> None:
    workload = load_workload(name)
    examples = [dict(example.row) for example in workload.evaluation()]
    payloads = [dict(row) for row in workload.payloads()]
    ids = [token_ids(workload, row) for row in (*examples, *payloads)]
    is_text2text = isinstance(workload.workload.model, TextToText)
    unknown = tokenizer_of(workload).token_to_id("<unk>" if is_text2text else "[UNK]")

    assert len({tuple(row.values()) for row in examples}) == len(examples) >= 600
    assert len({tuple(row.values()) for row in payloads}) == len(payloads) == 256
    assert max(map(len, ids)) <= workload.workload.model.max_input_tokens
    assert not any(unknown in row_ids for row_ids in ids[len(examples) :])


@pytest.mark.parametrize("name", [*NAMES, "product_bert"])
def test_a_checkpoint_is_small_and_names_no_path_of_the_machine_that_trained_it(name: str) -> None:
    folder = ROOT / "workloads" / name / "checkpoint"
    assert sum(file.stat().st_size for file in folder.iterdir()) < MAX_CHECKPOINT_BYTES
    assert "_name_or_path" not in (folder / "config.json").read_text("utf-8")
