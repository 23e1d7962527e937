"""Finds the checkpoint that workload.toml names, checks that it is whole, and hashes it.

In: a folder, an s3:// URI, a hub id, or an architecture to be given random weights. Out: a frozen `Checkpoint`. Nothing
here loads weights: only the safetensors headers are read.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model_build.checkpoint import sentence_transformers, sentencepiece
from model_build.checkpoint.architectures import bert_weights, write_random
from model_build.checkpoint.encoder_config import read_encoder
from model_build.checkpoint.families import Family
from model_build.checkpoint.fetch import PATTERNS, fetch_from_hub, fetch_from_s3
from model_build.checkpoint.files import broken
from model_build.checkpoint.text2text import check_positions, read_text2text
from model_build.checkpoint.tokenizer import check_tokenizer, padding_token
from model_build.checkpoint.weights import check_files, check_weights, stored, stored_in_encoder
from workloads import Model, RandomWeights, TextToText, UsageError, WorkloadFolder, file_sha256

FOLDERS = ("./", "../", "/")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A checkpoint on this machine. `encoder` is the folder of its encoder and tokenizer, another one for a head."""

    folder: Path
    encoder: Path
    config: dict[str, Any]
    encoder_config: dict[str, Any]
    sha256: str
    family: Family | None = None
    """The family of an encoder; None of a text2text model and of a TorchScript file, of which nothing is known."""
    torchscript: Path | None = None
    """The TorchScript file that is the whole model, beside which is only the tokenizer; None for weights."""
    preprocess: Path | None = None
    """The TorchScript module that tokenises; None for the tokenizer."""

    @property
    def tokenizer(self) -> Path:
        return self.encoder / "tokenizer.json"

    @property
    def weights(self) -> list[Path]:
        """All safetensors files, the encoder's first."""
        return [
            file
            for folder in dict.fromkeys((self.encoder, self.folder))
            for file in sorted(folder.glob("*.safetensors"))
        ]

    @property
    def weight_count(self) -> int:
        """Number of parameters in all safetensors files; of a TorchScript file, as many as it has room for in fp32."""
        if self.torchscript is not None:
            return self.torchscript.stat().st_size // 4
        return sum(math.prod(tensor.shape) for file in self.weights for tensor in stored(file).values())


def resolve(workload: WorkloadFolder, cache: Path) -> Checkpoint:
    """Returns the workload's checkpoint; a remote or random one is put into `cache`.

    Raises `UsageError` where it is missing or broken, or `Unavailable` where it cannot be fetched.
    """
    model = workload.workload.model
    if (torchscript := torchscript_file(workload)) is not None:
        checkpoint = _read_torchscript(torchscript, model)
    else:
        folder = _locate(workload, "checkpoint", model.checkpoint, cache)
        if isinstance(model, TextToText):
            folder = sentencepiece.prepared(folder, cache)
        backbone = None if isinstance(model, TextToText) else model.backbone
        encoder = folder if backbone is None else _locate(workload, "backbone", backbone, cache)
        checkpoint = read(folder, encoder, model)
    if isinstance(model, TextToText) or model.preprocess is None:
        return checkpoint
    file = (workload.path / model.preprocess).resolve()
    if not file.is_file():
        raise broken(file, "does not exist. model.preprocess names it.")
    digest = hashlib.sha256(f"{checkpoint.sha256}{file_sha256(file)}".encode()).hexdigest()
    return replace(checkpoint, preprocess=file, sha256=digest)


def read(folder: Path, encoder: Path, model: Model) -> Checkpoint:
    """Checks the files of a local checkpoint against the workload's [model]. Raises `UsageError`.

    The weights of a family that transformers computes are checked when transformers loads them (`load_pretrained`).
    """
    family = None
    if isinstance(model, TextToText):
        config = own = read_text2text(folder)
        check_positions(folder / "config.json", config, model)
    else:
        config, own, family = read_encoder(folder, encoder, model)
        sentence_transformers.check(folder, model)
    check_files(folder)
    digest = _sha256(folder)
    if encoder != folder:
        check_files(encoder)
        digest = hashlib.sha256(f"{digest}{_sha256(encoder)}".encode()).hexdigest()
    checkpoint = Checkpoint(
        folder=folder, encoder=encoder, config=config, encoder_config=own, sha256=digest, family=family
    )
    segments = 1
    if not isinstance(model, TextToText):
        segments = len(model.segments)
        if family is not None and family.own_network:
            held = stored_in_encoder(checkpoint.weights, family, model.task)
            wanted = bert_weights(own, model.task, model.head_size)
            check_weights(folder, held, ((name.removeprefix("bert."), shape, _) for name, shape, _ in wanted))
    check_tokenizer(checkpoint.tokenizer, own["vocab_size"], segments)
    return checkpoint


def torchscript_file(workload: WorkloadFolder) -> Path | None:
    """Returns the TorchScript file that the workload names as its checkpoint, or None where it names another."""
    name = workload.workload.model.checkpoint
    if isinstance(name, str) and name.startswith(FOLDERS) and name.endswith(".pt"):
        return (workload.path / name).resolve()
    return None


def _read_torchscript(file: Path, model: Model) -> Checkpoint:
    """Checks that the file exists, with a tokenizer in its folder. Raises `UsageError`."""
    if not file.is_file():
        raise broken(file, "does not exist. model.checkpoint names it as a TorchScript file.")
    tokenizer = file.with_name("tokenizer.json")
    check_tokenizer(tokenizer, segments=1 if isinstance(model, TextToText) else len(model.segments))
    digest = hashlib.sha256(f"{file_sha256(file)}{file_sha256(tokenizer)}".encode()).hexdigest()
    config = {"pad_token_id": padding_token(tokenizer)}
    folder = file.parent
    return Checkpoint(
        folder=folder, encoder=folder, config=config, encoder_config=config, sha256=digest, torchscript=file
    )


def _locate(workload: WorkloadFolder, key: str, name: str | RandomWeights, cache: Path) -> Path:
    if isinstance(name, RandomWeights):
        return write_random(name, workload.workload.model, cache)
    if name.startswith(FOLDERS):
        folder = (workload.path / name).resolve()
        if not folder.is_dir():
            raise UsageError(
                f"{workload.file}: model.{key}: got '{name}', but there is no folder {folder}. "
                "Allowed: a folder (begins with ./, ../ or /), an s3:// URI of a folder or of a "
                ".tar.gz, or a model id of the Hugging Face hub."
            )
        return folder
    fetch = fetch_from_s3 if name.startswith("s3://") else fetch_from_hub
    return fetch(name, cache)


def _sha256(folder: Path) -> str:
    """Hashes the names and bytes of the files that a build reads."""
    digest = hashlib.sha256()
    for file in sorted({file for pattern in PATTERNS for file in folder.glob(pattern)}):
        digest.update(f"{file.relative_to(folder)}\0{file.stat().st_size}\0".encode())
        digest.update(bytes.fromhex(file_sha256(file)))
    return digest.hexdigest()
