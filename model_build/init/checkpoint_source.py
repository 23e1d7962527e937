"""Fetches the checkpoint that --from names, and copies it into the workload's folder if necessary.

A remote build uploads only what lies below workloads/, so a local checkpoint is copied. A checkpoint in S3 or on the
hub stays there, unless a file has to be converted.
"""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from model_build.checkpoint import sentencepiece
from model_build.checkpoint.fetch import PATTERNS, fetch_from_hub, fetch_from_s3
from model_build.init import convert
from model_build.init.checkpoint_facts import CheckpointFacts
from workloads import Unavailable, UsageError

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
COPY = "./checkpoint"
"""The value of model.checkpoint for a copy."""


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
    older = (
        *(convert.WEIGHTS if convert.lacks_weights(folder) else ()),
        *(convert.VOCABULARIES if convert.lacks_tokenizer(folder) else ()),
    )
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
    if convert.lacks_weights(source):
        convert.write_weights(source, folder)
    if convert.lacks_tokenizer(source):
        convert.write_tokenizer(source, folder)
    if not names_its_labels(facts):
        named = {str(index): label for index, label in enumerate(facts.labels)}
        ids = {label: index for index, label in enumerate(facts.labels)}
        config = {**facts.config, "id2label": named, "label2id": ids}
        (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")
