"""Fetches the checkpoint that --from names, and copies it into the workload's folder with the labels that it lacks.

A remote build takes along what lies below workloads/ and nothing else, so a local checkpoint is copied. One in S3 or on
the hub stays there, unless something in it has to be written.
"""

import json
import re
import shutil
from pathlib import Path

from model_build.checkpoint.fetch import PATTERNS, fetch_from_hub, fetch_from_s3
from model_build.init import convert
from model_build.init.found import Found
from workloads import UsageError

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
READ = (*PATTERNS, *convert.VOCABULARIES, "modules.json", "1_Pooling/config.json", "sentence_bert_config.json")
"""All that is looked at, but for weights that have to be converted."""
COPY = "./checkpoint"
"""The value of model.checkpoint for a copy."""


def fetch(source: str, cache: Path) -> tuple[Path, bool]:
    """Returns the folder with the checkpoint's files, and whether they have to be copied to stay there.

    Raises `UsageError` where there is no such folder, and `Unavailable` where the checkpoint cannot be fetched.
    """
    if source.startswith("s3://"):
        found = fetch_from_s3(source, cache, patterns=READ)
        if convert.lacks_weights(found):
            found = fetch_from_s3(source, cache, patterns=(*READ, *convert.WEIGHTS))
        return found, _has_to_be_converted(found)
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder.resolve(), True
    if source.startswith((".", "/", "~")) or not HUB_ID.fullmatch(source):
        raise UsageError(
            f"--from: there is no folder {source}. Allowed: a folder, an s3:// URI of a folder, or a model id of the "
            "Hugging Face hub."
        )
    found = fetch_from_hub(source, cache, READ)
    if convert.lacks_weights(found):
        found = fetch_from_hub(source, cache, (*READ, *convert.WEIGHTS))
    return found, _has_to_be_converted(found)


def _has_to_be_converted(folder: Path) -> bool:
    return convert.lacks_weights(folder) or convert.lacks_tokenizer(folder)


def names_its_labels(found: Found) -> bool:
    """Tells whether config.json has the labels as workload.toml will have them."""
    named = found.config.get("id2label") or {}
    return not found.labels or tuple(named.get(str(index)) for index in range(len(named))) == found.labels


def copy(source: Path, folder: Path, found: Found) -> None:
    """Copies the files that a build reads to a new folder, older ones converted, with the labels in config.json."""
    folder.mkdir()
    for file in sorted({file for pattern in PATTERNS for file in source.glob(pattern)}):
        shutil.copyfile(file, folder / file.name)
    if convert.lacks_weights(source):
        convert.write_weights(source, folder)
    if convert.lacks_tokenizer(source):
        convert.write_tokenizer(source, folder)
    if not names_its_labels(found):
        named = {str(index): label for index, label in enumerate(found.labels)}
        ids = {label: index for index, label in enumerate(found.labels)}
        config = {**found.config, "id2label": named, "label2id": ids}
        (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")
