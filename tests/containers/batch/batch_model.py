"""A model small enough to start at once, in the folder that the build would make, and rows for it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.containers.encoder.encoder_miniature import CLASSIFICATION, LETTERS, PAIR_SCORING, make_folder

SETTINGS = replace(
    PAIR_SCORING,
    segments=(("title", "brand"), ("other_title", "other_brand")),
    inputs=CLASSIFICATION.inputs,
    max_input_tokens=40,
    threads=4,
    pad_to=(),
)


def write_model(folder: Path, labels: tuple[str, ...] = PAIR_SCORING.labels) -> Path:
    return make_folder(folder, replace(SETTINGS, labels=labels), "model.onnx")


def row(number: int) -> dict[str, Any]:
    """Lengths go up and down, so that no batch is as the rows come."""
    title = LETTERS[number % 7 : number % 7 + 3 + number * 7 % 13]
    return {"id": number, "title": title, "brand": "acme", "other_title": title[::-1], "other_brand": str(number % 10)}


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file
