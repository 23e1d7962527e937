"""Runs rows through a model on this machine's hardware and writes the numbers it gives, for the parity gate elsewhere.

  python -m containers.batch.record --model FOLDER|ARCHIVE --input FILE --output FILE

For a model for Neuron: on an inf1 or inf2 instance, in the container that serves it. The places may be s3:// addresses.
What it writes is `encoder.goldens.Recorded`: the model's sha256, and each row's encoding with the model's outputs.
`python -m model_build verify WORKLOAD --target TARGET --outputs FILE` compares them with the original, where that can
run, and records the report. Rows are those of evaluation.jsonl, in its order.

Exit codes: 0 done; 2 a row or an argument is wrong; 3 no model, no device, or the cores are refused; 70 unforeseen.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..encoder import goldens, load_engine
from ..encoder.goldens import Golden, Recorded
from ..encoder.predictor import Predictor
from ..encoder.preprocess import Preprocessor
from ..encoder.row import Refusal
from ..encoder.settings import Settings
from ..encoder.tensors import Encoding, padded_length, windows
from ..errors import ContainerError, exit_code_of
from . import archive
from .predictor import find_model
from .source import find
from .storage import write_to

BATCHES = 16
"""Compiled batches that are run at once."""


def record(folder: Path, lines: Sequence[str], name: str) -> Recorded:
    """Returns what the model in `folder` gives for each row. Raises `ContainerError` for a row that it cannot read."""
    model = find_model(folder)
    preprocessor = Preprocessor.load(model.preprocessing)
    predictor = Predictor(preprocessor, load_engine.load(model.graphs, preprocessor.settings))
    goldens.check(predictor.engine, predictor.settings, model.graphs)
    lines_of_rows = enumerate(_rows(lines, name), 1)
    asked = [(number, row) for number, given in lines_of_rows for row in _asked(given, predictor.settings)]
    codes = preprocessor.encode([row for _, row in asked])
    read = [
        (number, replace(window, more=()))
        for (number, _), code in zip(asked, codes, strict=True)
        for window in windows([_good(code, number, name)])
    ]
    encodings = [encoding for _, encoding in read]
    recorded: dict[int, Golden] = {}
    for length, rows in _by_length(encodings, predictor.settings.pad_to).items():
        for start in range(0, len(rows), BATCHES * model.batch_rows):
            batch = rows[start : start + BATCHES * model.batch_rows]
            given = predictor.outputs([encodings[index] for index in batch])
            recorded |= {
                index: _recorded(read[index][0], length, encodings[index], outputs)
                for index, outputs in zip(batch, given, strict=True)
            }
    return Recorded(archive.model_sha256(folder), [recorded[index] for index in range(len(encodings))])


def _by_length(encodings: Sequence[Encoding], pad_to: Sequence[int]) -> "dict[int, list[int]]":
    """Returns the places of the rows that each graph is for: a batch runs on the graph of its longest row."""
    found: dict[int, list[int]] = {}
    for index, encoding in enumerate(encodings):
        found.setdefault(padded_length(len(encoding), pad_to), []).append(index)
    return found


def _recorded(row: int, length: int, encoding: Encoding, outputs: "Mapping[str, Any]") -> Golden:
    return Golden(
        row=row,
        length=length,
        token_ids=encoding.token_ids,
        type_ids=encoding.type_ids,
        outputs={name: output.reshape(-1).tolist() for name, output in outputs.items()},
    )


def _rows(lines: Sequence[str], name: str) -> "list[Mapping[str, Any]]":
    try:
        rows = [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise ContainerError(f"--input {name}: is not JSON, one row a line ({error}).") from None
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise ContainerError(f"--input {name}: holds no rows, or lines that are no objects of fields.")
    return rows


def _asked(row: "Mapping[str, Any]", settings: Settings) -> "list[Mapping[str, Any]]":
    """Returns the rows that are asked for a line: itself, and of a pair of embeddings the other text's."""
    other = row.get("other")
    if settings.task != "feature-extraction" or not isinstance(other, str):
        return [row]
    first, *rest = (field for segment in settings.segments for field in segment)
    return [row, {first: other, **dict.fromkeys(rest, "")}]


def _good(code: "Encoding | Refusal", row: int, name: str) -> Encoding:
    if isinstance(code, Refusal):
        raise ContainerError(f"--input {name}: row {row} {code.message}.")
    return code


def main(arguments: "Sequence[str] | None" = None) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, help="a built model's folder or .tar.gz, on disk or s3://")
    parser.add_argument("--input", required=True, help="evaluation.jsonl, on disk or s3://")
    parser.add_argument("--output", required=True, help="the file to write, on disk or s3://")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = archive.as_folder(options.model, Path(scratch))
        [(name, file), *others] = find(options.input, Path(scratch)).items()
        if others:
            raise ContainerError(f"--input {options.input}: holds {len(others) + 1} files. Name one.")
        recorded = record(folder, file.read_text("utf-8").splitlines(), name)
    write_to(options.output, recorded.to_json().encode())
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
