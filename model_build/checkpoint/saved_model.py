"""Reads the version of TensorFlow that wrote a SavedModel, without TensorFlow.

saved_model.pb is a protobuf: SavedModel.meta_graphs (field 2) → MetaGraphDef.meta_info_def (1) →
MetaInfoDef.tensorflow_version (5). Source: tensorflow/core/protobuf/saved_model.proto and meta_graph.proto.
"""

from __future__ import annotations

from pathlib import Path

from workloads import UsageError

PATH_TO_VERSION = (2, 1, 5)


def tensorflow_version(folder: Path) -> str:
    """Returns the version of the TensorFlow that wrote it. Raises `UsageError`."""
    for name in ("saved_model.pb", "tokenizer.json"):
        if not (folder / name).is_file():
            raise _broken(folder, f"has no {name}")
    message: bytes | None = (folder / "saved_model.pb").read_bytes()
    try:
        for number in PATH_TO_VERSION:
            message = _field(message or b"", number)
        if message:
            return message.decode()
    except (IndexError, ValueError):
        pass
    raise _broken(folder, "has a saved_model.pb that says no TensorFlow version")


def _broken(folder: Path, problem: str) -> UsageError:
    return UsageError(
        f'model.checkpoint: {folder} {problem}. framework = "tensorflow" takes a folder with saved_model.pb and '
        "tokenizer.json."
    )


def _field(message: bytes, wanted: int) -> bytes | None:
    """Returns the first field of that number; all that are asked for hold bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        match key & 7:
            case 0:
                _, place = _varint(message, place)
            case 1:
                place += 8
            case 2:
                length, place = _varint(message, place)
                if key >> 3 == wanted:
                    return message[place : place + length]
                place += length
            case 5:
                place += 4
            case other:
                raise ValueError(f"wire type {other}")
    return None


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
