"""The data and checkpoints of the committed workloads: files load, rows are unique, and rows fit the model."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from workloads import WorkloadFolder, load_workload, workload_names
from workloads.folder import ROOT
from workloads.model import TextToText
from workloads.train import main

NAMES = workload_names(ROOT / "workloads")
MAX_CHECKPOINT_BYTES = 10e6


def tokenizer_of(workload: WorkloadFolder) -> Tokenizer:
    model = workload.workload.model
    location = getattr(model, "backbone", None) or model.checkpoint
    return Tokenizer.from_file(str(workload.path / location / "tokenizer.json"))


def texts_of(workload: WorkloadFolder, row: dict[str, str]) -> list[str]:
    segments = getattr(workload.workload.model, "segments", (("text",),))
    return [" ".join(row[field] for field in fields) for fields in segments]


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_examples_are_unique_and_fit_the_model(name: str) -> None:
    workload = load_workload(name)
    rows = [dict(example.row) for example in workload.evaluation()]
    tokenizer = tokenizer_of(workload)

    assert len(rows) >= 600
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    lengths = [len(tokenizer.encode(*texts_of(workload, row)).ids) for row in rows]
    assert max(lengths) <= workload.workload.model.max_input_tokens


@pytest.mark.parametrize("name", NAMES)
def test_payloads_are_unique_and_fit_the_model(name: str) -> None:
    workload = load_workload(name)
    rows = [dict(row) for row in workload.payloads()]
    tokenizer = tokenizer_of(workload)
    unknown = tokenizer.token_to_id("<unk>" if isinstance(workload.workload.model, TextToText) else "[UNK]")

    assert len({tuple(row.values()) for row in rows}) == len(rows) == 256
    encodings = [tokenizer.encode(*texts_of(workload, row)) for row in rows]
    assert max(len(encoding.ids) for encoding in encodings) <= workload.workload.model.max_input_tokens
    assert not any(unknown in encoding.ids for encoding in encodings)


@pytest.mark.parametrize("name", [*NAMES, "product_bert"])
def test_a_checkpoint_is_small_and_names_no_path_of_the_machine_that_trained_it(name: str) -> None:
    folder = ROOT / "workloads" / name / "checkpoint"
    assert sum(file.stat().st_size for file in folder.iterdir()) < MAX_CHECKPOINT_BYTES
    assert "_name_or_path" not in (folder / "config.json").read_text("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_can_be_trained_on_the_examples(name: str, tmp_path: Path) -> None:
    assert main([name, "--output", str(tmp_path), "--steps", "2"]) == 0

    committed = {file.name for file in (ROOT / "workloads" / name / "checkpoint").iterdir()}
    assert {file.name for file in tmp_path.iterdir()} == committed
