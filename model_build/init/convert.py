"""Converts older files of a checkpoint: pytorch_model.bin to safetensors, a slow tokenizer's to tokenizer.json.

A .bin file is a pickle, which may run code when it is read; `weights_only` reads only tensors and plain values.
"""

import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

from model_build.checkpoint import broken, loading
from model_build.checkpoint.files import read_json
from workloads import Unavailable, UsageError

WEIGHTS = ("pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json")
VOCABULARIES = ("vocab.txt", "vocab.json", "merges.txt", "*.model", "*.spm", "*.bpe", "added_tokens.json")
"""Files of slow tokenizers, which transformers converts."""


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
