"""Checks safetensors files by their headers: every file is whole, every weight is there, in its shape.

A file is 8 bytes of header length (little-endian), a JSON header, and the data. The header has for each tensor its
type, its shape and where it begins and ends in the data. Source: https://github.com/huggingface/safetensors#format. The
numbers themselves are not read.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from model_build.checkpoint.architectures import Shapes
from model_build.checkpoint.families import Family
from model_build.checkpoint.files import broken, first_line, read_json

FLOATS = ("F64", "F32", "F16", "BF16")
"""The types that a weight may have. Others are of quantised models, which a build does not take."""
TIED_IN_T5 = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}
"""Copies of `shared.weight` that a checkpoint may hold, or hold in its place, where the embeddings are tied."""
USELESS = {
    "embeddings.position_ids",
    "pooler.dense.weight",
    "pooler.dense.bias",
    "unused.pooler.dense.weight",
    "unused.pooler.dense.bias",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
}
"""The weights that published checkpoints hold beside those of their task; transformers does not load them, either."""


class Stored(NamedTuple):
    """A tensor in a file."""

    dtype: str
    shape: tuple[int, ...]


def check_files(folder: Path) -> None:
    """Checks that all safetensors files are there and as their headers promise. Raises `UsageError`."""
    files = set(folder.glob("*.safetensors"))
    for index in folder.glob("*.safetensors.index.json"):
        files |= {folder / name for name in _named_files(index)}
    if not files:
        raise broken(
            folder / "model.safetensors",
            "does not exist. Save the model with `save_pretrained(…)`, which writes safetensors.",
        )
    for file in sorted(files):
        if not file.exists():
            raise broken(file, "does not exist, but the index names it. Copy the whole checkpoint again.")
        stored(file)


def check_weights(folder: Path, held: Mapping[str, Stored], wanted: Shapes) -> None:
    """Checks that the files hold the weights that config.json asks for and no others. Raises `UsageError`."""
    left = held.keys() - USELESS
    for name, shape, _ in wanted:
        if name not in held:
            raise broken(
                folder, f"its files hold no weight '{name}', which config.json asks for. Save the model again."
            )
        if held[name].shape != shape:
            raise broken(
                folder,
                f"its weight '{name}' has the shape {list(held[name].shape)}, but config.json asks for "
                f"{list(shape)}. Save the model again.",
            )
        if held[name].dtype not in FLOATS:
            raise broken(
                folder,
                f"its weight '{name}' is of type {held[name].dtype}. A build takes {', '.join(FLOATS)}.",
            )
        left.discard(name)
    if left:
        raise broken(folder, f"config.json has no place for its weight '{min(left)}'. Save the model again.")


def stored_in_encoder(files: Iterable[Path], family: Family, task: str) -> dict[str, Stored]:
    """Returns the weights that a task reads, by BertModel's own names; for embeddings only those of the encoder."""
    tensors = {name: tensor for file in files for name, tensor in stored(file).items()}
    return {family.plain_name(name): tensors[name] for name in family.read_for(task, tensors)}


def stored_in_t5(files: Iterable[Path], *, tied: bool) -> dict[str, Stored]:
    """Returns all weights; of tied embeddings, one."""
    tensors = {name: tensor for file in files for name, tensor in stored(file).items()}
    if tied:
        copies = [tensors.pop(name) for name in sorted(TIED_IN_T5 & tensors.keys())]
        tensors |= {"shared.weight": copies[0]} if copies and "shared.weight" not in tensors else {}
    return tensors


def stored(file: Path) -> dict[str, Stored]:
    """Returns the tensors of a file. Raises `UsageError` where safetensors refuses the file, with the reason."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118 - not a mapping
            return {name: Stored(each.get_dtype(), tuple(each.get_shape())) for name, each in slices.items()}
    except SafetensorError as error:
        raise broken(
            file, _damage(file) or f"is not a safetensors file ({first_line(error)}). Copy it again."
        ) from error


def _damage(file: Path) -> str | None:
    """Returns the damage of a bad copy as a sentence, or None for other damage."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(8)
        header_size = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if size < 8 + header_size:
            return f"is cut short within its header, at {size} bytes. Copy it again."
        text = stream.read(header_size)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        return "is not a safetensors file: its header is not JSON."
    try:
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
        promised = 8 + header_size + max(ends, default=0)
    except (AttributeError, LookupError, TypeError):
        return None
    return f"has {size} bytes, but its header promises {promised}. Copy it again." if size != promised else None


def _named_files(index: Path) -> set[str]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(
        isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors") for name in names.values()
    ):
        raise broken(index, "weight_map: names files other than safetensors files of its folder. Copy it again.")
    return set(names.values())
