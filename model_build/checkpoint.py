"""Finds or fetches the checkpoint that workload.toml names, checks that it is whole, and hashes it.

In: a folder, an s3:// URI, a hub id, or an architecture to be given random weights. Out: a frozen `Checkpoint`. Nothing
here loads weights: only the safetensors headers are read, to see that no file is cut short. boto3 and the hub's client
are imported only when they are needed.
"""

import hashlib
import json
import math
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from model_build.architectures import write_random
from model_build.neuron.saved_model import tensorflow_version
from workloads import (
    EncoderModel,
    Model,
    QuestionAnswering,
    RandomWeights,
    TextToText,
    Unavailable,
    UsageError,
    WorkloadFolder,
    file_sha256,
)

# Files that a build reads; anything else in the folder (a training log, an optimiser) is neither fetched nor hashed.
PATTERNS = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)
ARCHITECTURES = {
    "text2text-generation": "T5ForConditionalGeneration",
    "text-classification": "BertForSequenceClassification",
    "text-pair-scoring": "BertForPairScoring",
    "question-answering": "BertForQuestionAnswering",
}
"""The architecture in config.json, by task. BertForPairScoring is this project's: BERT, a classifier and a scorer."""
BACKBONE = "BertModel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A checkpoint on this machine. `encoder` is where its encoder and tokenizer lie: for a head alone, elsewhere."""

    folder: Path
    encoder: Path
    config: dict[str, Any]
    encoder_config: dict[str, Any]
    sha256: str
    tensorflow_version: str | None = None
    """Version of the TensorFlow that wrote a SavedModel, which has no config.json; otherwise None."""

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
        """Number of parameters in all safetensors files."""
        return sum(math.prod(tensor["shape"]) for file in self.weights for tensor in _header(file).values())


def resolve(workload: WorkloadFolder, cache: Path) -> Checkpoint:
    """Returns the workload's checkpoint; a remote or random one is put into `cache`.

    Raises `UsageError` where it is missing or broken, or `Unavailable` where it cannot be fetched.
    """
    model = workload.workload.model
    folder = _locate(workload, "checkpoint", model.checkpoint, cache)
    backbone = None if isinstance(model, TextToText) else model.backbone
    encoder = folder if backbone is None else _locate(workload, "backbone", backbone, cache)
    return read(folder, encoder, model)


def read(folder: Path, encoder: Path, model: Model) -> Checkpoint:
    """Checks the files of a local checkpoint against the workload's [model]. Raises `UsageError`."""
    if not isinstance(model, TextToText) and model.framework == "tensorflow":
        return _saved_model(folder)
    config = encoder_config = _config(folder, ARCHITECTURES[model.task])
    check_weights(folder)
    digest = _sha256(folder)
    if encoder != folder:
        encoder_config = _config(encoder, BACKBONE)
        check_weights(encoder)
        digest = hashlib.sha256(f"{digest}{_sha256(encoder)}".encode()).hexdigest()
    if not (encoder / "tokenizer.json").exists():
        raise broken(
            encoder / "tokenizer.json",
            "does not exist. Save the model's fast tokenizer there: AutoTokenizer's `save_pretrained` writes it.",
        )
    if not isinstance(model, TextToText):
        _check_encoder(folder, config, encoder, encoder_config, model)
    return Checkpoint(folder=folder, encoder=encoder, config=config, encoder_config=encoder_config, sha256=digest)


def _saved_model(folder: Path) -> Checkpoint:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    version = tensorflow_version(folder)
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(folder).as_posix()}\0{file_sha256(file)}".encode())
    return Checkpoint(
        folder=folder,
        encoder=folder,
        config={},
        encoder_config={},
        sha256=digest.hexdigest(),
        tensorflow_version=version,
    )


def _locate(workload: WorkloadFolder, key: str, name: str | RandomWeights, cache: Path) -> Path:
    if isinstance(name, RandomWeights):
        return write_random(name, workload.workload.model, cache)
    if name.startswith(("./", "../", "/")):
        folder = (workload.path / name).resolve()
        if not folder.is_dir():
            raise UsageError(
                f"{workload.file}: model.{key}: got '{name}', but there is no folder {folder}. "
                "Allowed: a folder (begins with ./, ../ or /), an s3:// URI of a folder, or a model id of the "
                "Hugging Face hub."
            )
        return folder
    fetch = fetch_from_s3 if name.startswith("s3://") else fetch_from_hub
    return fetch(name, cache)


def _config(folder: Path, architecture: str) -> dict[str, Any]:
    config = _json(folder / "config.json")
    if architecture not in (architectures := config.get("architectures") or []):
        raise broken(
            folder / "config.json", f"architectures: got {json.dumps(architectures)}, allowed is {architecture}."
        )
    generation = folder / "generation_config.json"
    return {**config, **_json(generation)} if generation.exists() else config


def _check_encoder(
    folder: Path, config: dict[str, Any], encoder: Path, encoder_config: dict[str, Any], model: EncoderModel
) -> None:
    """Checks that the head has the workload's labels, and the encoder enough positions for its longest input."""
    positions = encoder_config.get("max_position_embeddings", 0)
    if model.max_input_tokens > positions:
        raise broken(
            encoder / "config.json",
            f"max_position_embeddings: got {positions}, but model.max_input_tokens in workload.toml is "
            f"{model.max_input_tokens}. Lower it, or take a model of longer inputs.",
        )
    if isinstance(model, QuestionAnswering):
        return
    named = config.get("id2label") or {}
    labels = tuple(named.get(str(index)) for index in range(len(named)))
    if labels != model.labels:
        raise broken(
            folder / "config.json",
            f"id2label: the head answers {json.dumps(labels)}, but model.labels in workload.toml is "
            f"{json.dumps(model.labels)}. Write the head's labels there, in its order.",
        )


def check_weights(folder: Path) -> None:
    """Checks that all safetensors files are there and as long as their headers promise."""
    files = sorted(folder.glob("*.safetensors"))
    for index in folder.glob("*.safetensors.index.json"):
        files = sorted({*files, *(folder / name for name in _json(index)["weight_map"].values())})
    if not files:
        raise broken(
            folder / "model.safetensors",
            "does not exist. Save the model with `save_pretrained(…)`, which writes safetensors.",
        )
    for file in files:
        _check_length(file)


def _check_length(file: Path) -> None:
    if not file.exists():
        raise broken(file, "does not exist, but the index names it. Copy the whole checkpoint again.")
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(8)
        header_size = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if size < 8 + header_size:
            raise broken(file, f"is cut short within its header, at {size} bytes. Copy it again.")
    ends = [entry["data_offsets"][1] for entry in _header(file).values()]
    if size != (promised := 8 + header_size + max(ends, default=0)):
        raise broken(file, f"has {size} bytes, but its header promises {promised}. Copy it again.")


def _header(file: Path) -> dict[str, Any]:
    """Returns the type, shape and place of each tensor of a safetensors file, by name."""
    with file.open("rb") as stream:
        size = struct.unpack("<Q", stream.read(8))[0]
        try:
            header = json.loads(stream.read(size))
        except ValueError:
            raise broken(file, "is not a safetensors file: its header is not JSON.") from None
    return {name: tensor for name, tensor in header.items() if name != "__metadata__"}


def fetch_from_hub(name: str, cache: Path) -> Path:
    """Downloads a snapshot of a hub repository into the hub client's own cache."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(PATTERNS)))
    except Exception as error:  # The client raises its own, httpx's and the system's errors.
        raise _unreachable(
            name, _first_line(error), "Check the id, the network, and for a private model HF_TOKEN."
        ) from error


def fetch_from_s3(uri: str, cache: Path, client: Any = None) -> Path:
    """Downloads the files right below an s3:// folder, anew each time, so that they are never out of date."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    parts = urlsplit(uri)
    prefix = parts.path.strip("/") + "/"
    folder = cache / hashlib.sha256(uri.encode()).hexdigest()[:16]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        s3 = client or boto3.client("s3")
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=parts.netloc, Prefix=prefix)
        keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        for key in keys:
            file = Path(key.removeprefix(prefix))
            if len(file.parts) == 1 and any(file.match(pattern) for pattern in PATTERNS):
                s3.download_file(parts.netloc, key, str(folder / file))
    except (BotoCoreError, ClientError) as error:
        raise _unreachable(
            uri, _first_line(error), "Check the URI and your AWS credentials, or start `python -m local_aws`."
        ) from error
    if not any(folder.iterdir()):
        raise _unreachable(uri, "there is no file of a checkpoint under it", "Check the URI.")
    return folder


def broken(file: Path, problem: str) -> UsageError:
    """The error for a file that is missing, truncated or not of the kind a build can take."""
    return UsageError(f"{file}: {problem}")


def _unreachable(checkpoint: str, reason: str, advice: str) -> Unavailable:
    return Unavailable(f"The checkpoint '{checkpoint}' cannot be fetched: {reason}. {advice}")


def _json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise broken(file, "does not exist. Copy the whole checkpoint again.") from None
    except ValueError as error:
        raise broken(file, f"is not valid JSON: {error}.") from None
    if not isinstance(document, dict):
        raise broken(file, "is not a JSON object.")
    return document


def _sha256(folder: Path) -> str:
    """Hashes the names and bytes of the files that a build reads."""
    digest = hashlib.sha256()
    for file in sorted({file for pattern in PATTERNS for file in folder.glob(pattern)}):
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        digest.update(bytes.fromhex(file_sha256(file)))
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
