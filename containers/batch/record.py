"""Runs rows through a model on this machine's hardware and writes its outputs, for the parity gate on another machine.

  python -m containers.batch.record --model FOLDER|ARCHIVE --input FILE --output FILE

For a model for Neuron: on an inf1 or inf2 instance, in the container that serves it. The places may be s3:// addresses.
The file is `encoder.goldens.RecordedOutputs`: the model's sha256, and each row's encoding with the model's outputs.
`python -m model_build verify WORKLOAD --target TARGET --outputs FILE` compares them with the original and records the
report. The rows are those of evaluation.jsonl, in order.

Exit codes: 0 done; 2 a row or an argument is wrong; 3 no model, no device, or the cores fail; 70 internal error.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..container_errors import ContainerError, exit_code_of, parser_of
from ..encoder import goldens
from ..encoder.engines import load_engine
from ..encoder.goldens import Golden, RecordedOutputs
from ..encoder.predictor import Predictor, by_window
from ..encoder.preprocess import Preprocessor
from ..encoder.row import Refusal
from ..encoder.settings import Settings
from ..encoder.tensors import padded_length, windows
from . import archive
from .answering import find_model
from .source import find
from .storage import write_to


def record(folder: Path, lines: Sequence[str], name: str) -> RecordedOutputs:
    """Returns the outputs of the model in `folder` for each row. Raises `ContainerError` if it cannot read a row."""
    model = find_model(folder)
    preprocessor = Preprocessor.load(model.preprocessing)
    predictor = Predictor(preprocessor, load_engine.load(model.graphs, preprocessor.settings))
    goldens.check(predictor.engine, predictor.settings, model.graphs)
    recorded: list[Golden] = []
    for number, line in enumerate(_rows(lines, name), 1):
        for code in preprocessor.encode(_texts(line, predictor.settings)):
            if isinstance(code, Refusal):
                raise ContainerError(f"--input {name}: row {number} {code.message}.")
            for window in (replace(each, more=()) for each in windows([code])):
                [outputs] = by_window(predictor.run([window]), [window])
                numbers = {name: output.reshape(-1).tolist() for name, output in outputs.items()}
                length = padded_length(len(window), predictor.settings.pad_to)
                recorded.append(Golden(number, length, window.token_ids, window.type_ids, numbers))
    return RecordedOutputs(archive.model_sha256(folder), recorded)


def _rows(lines: Sequence[str], name: str) -> "list[Mapping[str, Any]]":
    try:
        rows = [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise ContainerError(f"--input {name}: is not JSON, one row a line ({error}).") from None
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise ContainerError(f"--input {name}: has no rows, or lines that are not JSON objects.")
    return rows


def _texts(row: "Mapping[str, Any]", settings: Settings) -> "list[Mapping[str, Any]]":
    """Returns the rows to run for a line: itself, and the other text of a pair of embeddings."""
    other = row.get("other")
    if settings.task != "feature-extraction" or not isinstance(other, str):
        return [row]
    first, *rest = (field for segment in settings.segments for field in segment)
    return [row, {first: other, **dict.fromkeys(rest, "")}]


def main(arguments: "Sequence[str] | None" = None) -> int:
    parser = parser_of(f"{__package__}.record", __doc__)
    parser.add_argument("--model", required=True, help="a built model's folder or .tar.gz, on disk or s3://")
    parser.add_argument("--input", required=True, help="evaluation.jsonl, on disk or s3://")
    parser.add_argument("--output", required=True, help="the file to write, on disk or s3://")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder, _ = archive.as_folder(options.model, Path(scratch))
        [(name, file), *others] = find(options.input, Path(scratch)).items()
        if others:
            raise ContainerError(f"--input {options.input}: has {len(others) + 1} files. Give one.")
        recorded = record(folder, file.read_text("utf-8").splitlines(), name)
    write_to(options.output, recorded.to_json().encode())
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
