"""Makes a tokenizer.json where transformers has no fast tokenizer of the family: of a Marian's files or an M2M100's.

In: a checkpoint's folder. Out: a folder below the cache with links to all its files, tokenizer.json and a
tokenizer_config.json that names it. SentencePiece itself is not needed.
"""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_build.checkpoint import m2m100, marian
from model_build.checkpoint.files import loading
from workloads import file_sha256

CONFIG = "tokenizer_config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    name: str
    files: tuple[str, ...]
    """The files that a tokenizer is made of, SentencePiece's first."""
    tokenizer: Callable[[Path], Any]


KINDS = (
    Kind(name="marian", files=(marian.SOURCE, marian.VOCABULARY), tokenizer=marian.tokenizer),
    Kind(name="m2m100", files=(m2m100.MODEL, m2m100.VOCABULARY), tokenizer=m2m100.tokenizer),
)


def prepared(folder: Path, cache: Path) -> Path:
    """Returns the folder itself where it has a tokenizer.json, or files that are not converted. Raises `UsageError`."""
    kind = _kind_of(folder)
    if kind is None or (folder / "tokenizer.json").exists():
        return folder
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != CONFIG)
    facts = [
        str(folder),
        *(file.name for file in files),
        *(file_sha256(folder / name) for name in (*kind.files, CONFIG) if (folder / name).exists()),
    ]
    made = cache / f"{kind.name}-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}"
    if made.exists():
        return made
    cache.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: another process may be at the same.
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        half = Path(scratch) / made.name
        half.mkdir()
        _write(kind, folder, half)
        for file in files:
            (half / file.name).symlink_to(file)
        with contextlib.suppress(OSError):  # the other was first
            half.rename(made)
    return made


def _kind_of(folder: Path) -> Kind | None:
    """Returns how a folder's files become a tokenizer.json, or None where they are of no such family."""
    return next((kind for kind in KINDS if all((folder / name).exists() for name in kind.files)), None)


def _write(kind: Kind, source: Path, folder: Path) -> None:
    """Writes tokenizer.json, and a tokenizer_config.json that names it, into `folder`. Raises `UsageError`."""
    with loading(source / kind.files[0]):
        made = kind.tokenizer(source)
    made.save(str(folder / "tokenizer.json"))
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    (folder / CONFIG).write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}))
