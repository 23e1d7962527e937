"""Fetches a checkpoint from S3 or from the Hugging Face hub. Their clients are imported only when they are needed."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from model_build.checkpoint.files import first_line
from workloads import Unavailable

# Files that a build reads; anything else in the folder (a training log, an optimiser) is neither fetched nor hashed.
PATTERNS = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "sentencepiece.bpe.model",
    "source.spm",
    "vocab.json",
)


def fetch_from_hub(name: str, cache: Path, patterns: Sequence[str] = PATTERNS) -> Path:
    """Downloads a snapshot of a hub repository into the hub client's own cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError

    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except GatedRepoError as error:
        raise Unavailable(
            f"The checkpoint '{name}' is gated on the Hugging Face hub. Ask for access on "
            f"https://huggingface.co/{name}, then set HF_TOKEN to a token of the account that was given it."
        ) from error
    except Exception as error:  # The client raises its own, httpx's and the system's errors.
        raise _unreachable(
            name, first_line(error), "Check the id, the network, and for a private model HF_TOKEN."
        ) from error


def fetch_from_s3(uri: str, cache: Path, client: Any = None, patterns: Sequence[str] = PATTERNS) -> Path:
    """Downloads the files below an s3:// folder, anew each time, so that they are never out of date."""
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
            if any(file.match(pattern) and len(file.parts) == len(Path(pattern).parts) for pattern in patterns):
                (folder / file).parent.mkdir(exist_ok=True)
                s3.download_file(parts.netloc, key, str(folder / file))
    except (BotoCoreError, ClientError) as error:
        raise _unreachable(
            uri, first_line(error), "Check the URI and your AWS credentials, or start `python -m local_aws`."
        ) from error
    if not any(folder.iterdir()):
        raise _unreachable(uri, "there is no file of a checkpoint under it", "Check the URI.")
    return folder


def _unreachable(checkpoint: str, reason: str, advice: str) -> Unavailable:
    return Unavailable(f"The checkpoint '{checkpoint}' cannot be fetched: {reason}. {advice}")
