"""Fetches the checkpoint that --from names, and copies it into the workload's folder if necessary.

A remote build uploads only what lies below workloads/, so a local checkpoint is copied. A checkpoint in S3 or on the
hub stays there, unless a file has to be converted: pytorch_model.bin to safetensors, a slow tokenizer's files to
tokenizer.json. A .bin file is a pickle, which may run code; `weights_only` reads only tensors and plain values.
"""

import json
import pickle
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_build.checkpoint import broken, loading, sentencepiece
from model_build.checkpoint.architectures import named_labels
from model_build.checkpoint.fetch import PATTERNS, fetch_from_hub, fetch_from_s3
from model_build.checkpoint.files import read_json
from model_build.init.checkpoint_facts import CheckpointFacts
from workloads import Unavailable, UsageError

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
COPY = "./checkpoint"
"""The value of model.checkpoint for a copy."""
WEIGHTS = ("pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json")
VOCABULARIES = ("vocab.txt", "vocab.json", "merges.txt", "*.model", "*.spm", "*.bpe", "added_tokens.json")
"""Files of slow tokenizers, which transformers converts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """A checkpoint's files on this machine."""

    folder: Path
    copied: bool
    """Whether they have to be copied into the workload's folder."""
    origin: str
    """Their origin, as model.checkpoint names it; for the hub with the commit."""


def fetch(source: str, cache: Path) -> Fetched:
    """Returns the folder with the checkpoint's files, with a tokenizer.json, as a build makes it.

    Raises `UsageError` if there is no such folder, and `Unavailable` if the checkpoint cannot be fetched.
    """
    if source.startswith("s3://"):
        return _fetched(source, fetch_from_s3, cache)
    folder = Path(source).expanduser()
    if folder.is_dir():
        return Fetched(folder=sentencepiece.prepared(folder.resolve(), cache), copied=True, origin=source)
    if source.startswith((".", "/", "~")) or not HUB_ID.fullmatch(source):
        raise UsageError(
            f"--from: there is no folder {source}. Allowed: a folder, an s3:// URI of a folder or of a .tar.gz, or a "
            "model id of the Hugging Face hub."
        )
    try:
        return _fetched(source, fetch_from_hub, cache)
    except Unavailable as error:
        raise Unavailable(f"--from: there is no folder {source}. {error}") from error


def _fetched(source: str, fetch: Callable[..., Path], cache: Path) -> Fetched:
    """Fetches the files that a build reads, and older formats only if one of them is missing."""
    folder = sentencepiece.prepared(fetched := fetch(source, cache), cache)
    older = (*(WEIGHTS if lacks_weights(folder) else ()), *(VOCABULARIES if lacks_tokenizer(folder) else ()))
    if older:
        folder = sentencepiece.prepared(fetched := fetch(source, cache, patterns=(*PATTERNS, *older)), cache)
    origin = f"{source.partition('@')[0]}@{fetched.name}" if fetch is fetch_from_hub else source
    return Fetched(folder=folder, copied=bool(older), origin=origin)


def names_its_labels(facts: CheckpointFacts) -> bool:
    """Returns True if config.json has the labels as workload.toml will have them."""
    named = facts.config.get("id2label") or {}
    return not facts.labels or tuple(named.get(str(index)) for index in range(len(named))) == facts.labels


def copy(source: Path, folder: Path, facts: CheckpointFacts) -> None:
    """Copies the files that a build reads to a new folder, older ones converted, with the labels in config.json."""
    folder.mkdir()
    for file in sorted({file for pattern in PATTERNS for file in source.glob(pattern)}):
        place = folder / file.relative_to(source)
        place.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, place)
    if lacks_weights(source):
        write_weights(source, folder)
    if lacks_tokenizer(source):
        write_tokenizer(source, folder)
    if not names_its_labels(facts):
        config = {**facts.config, **named_labels(facts.labels)}
        (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")


def lacks_weights(folder: Path) -> bool:
    return not any(folder.glob("*.safetensors"))


def lacks_tokenizer(folder: Path) -> bool:
    return not (folder / "tokenizer.json").exists()


def write_weights(source: Path, folder: Path) -> None:
    """Writes `source`'s pytorch_model.bin, or the parts of it, as `folder`'s model.safetensors. Raises `UsageError`."""
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    for file in _parts(source):
        tensors |= _tensors(file)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _parts(source: Path) -> list[Path]:
    index, whole = source / "pytorch_model.bin.index.json", source / "pytorch_model.bin"
    if index.exists():
        return [source / Path(str(name)).name for name in sorted(set(read_json(index).get("weight_map", {}).values()))]
    if whole.exists():
        return [whole]
    raise broken(
        source / "model.safetensors",
        "does not exist, and neither does pytorch_model.bin. Save the model with `save_pretrained(…)`.",
    )


def _tensors(file: Path) -> dict[str, Any]:
    import torch

    with loading(file):
        try:
            held = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise broken(
                file,
                "contains more than tensors, which might run code, and was not read. Save the model with "
                "`save_pretrained(…)`, which writes safetensors.",
            ) from error
        # Tied weights share memory, which safetensors rejects: each gets its own.
        return {name: value.contiguous().clone() for name, value in held.items() if isinstance(value, torch.Tensor)}


def write_tokenizer(source: Path, folder: Path) -> None:
    """Writes tokenizer.json for a slow tokenizer's files, as transformers converts them. Raises `UsageError`."""
    if not any(any(source.glob(pattern)) for pattern in VOCABULARIES):
        raise broken(
            source / "tokenizer.json",
            f"does not exist, and neither does a vocabulary to convert ({', '.join(VOCABULARIES)}). Save the model's "
            "tokenizer there: AutoTokenizer's `save_pretrained` writes it.",
        )
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as scratch:
        try:
            with loading(source):
                AutoTokenizer.from_pretrained(source, local_files_only=True).save_pretrained(scratch)
        except (ImportError, UsageError) as error:
            if package := next((name for name in ("sentencepiece", "tiktoken") if name in str(error).lower()), None):
                raise Unavailable(
                    f"{source}: its tokenizer is read with the Python package {package}, which is not installed. "
                    f"Install it with `pip install {package} protobuf`, or save tokenizer.json there."
                ) from error
            raise
        made = Path(scratch) / "tokenizer.json"
        if not made.exists():
            raise broken(source, "its tokenizer has no fast form in transformers, which serving needs: tokenizer.json.")
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            if (Path(scratch) / name).exists():
                shutil.copyfile(Path(scratch) / name, folder / name)
