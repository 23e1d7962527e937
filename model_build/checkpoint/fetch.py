"""Fetches a checkpoint from S3 or from the Hugging Face hub. Their clients are imported only when they are needed.

In S3 it is a folder, or a .tar.gz of a SageMaker training job. On the hub it is the id of a model, optionally with @
and a branch, a tag or a commit.
"""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from containers import archive_reader
from model_build.checkpoint import sentence_transformers
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
    *sentence_transformers.FILES,
)
ARCHIVES = (".tar.gz", ".tgz")


def fetch_from_hub(name: str, cache: Path, patterns: Sequence[str] = PATTERNS) -> Path:
    """Downloads a snapshot of a hub repository into the hub client's own cache; its folder is named by the commit.

    Without a network, or with HF_HUB_OFFLINE, the cached files are used. Raises `Unavailable`.
    """
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    try:
        found = snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=list(patterns),
            # The client's * also stands for folders: other formats of the weights, and steps of a training.
            ignore_patterns=[f"*/{pattern}" for pattern in patterns if "*" in pattern],
        )
    except Exception as error:  # The client raises its own, its HTTP library's and the system's errors.
        raise Unavailable(f"The checkpoint '{name}' {_why_not_from_hub(error, repository, revision)}") from error
    return Path(found)


def _why_not_from_hub(error: Exception, repository: str, revision: str) -> str:
    from huggingface_hub import errors

    in_cache = "an earlier download of it, which would do," if not revision else "a download of that revision"
    match error:
        case errors.GatedRepoError():
            return (
                f"is gated on the Hugging Face hub. Ask for access on https://huggingface.co/{repository}, then set "
                "HF_TOKEN to a token of the account that was given it, or log in with `hf auth login`."
            )
        case errors.RevisionNotFoundError():
            return f"has no revision '{revision}' on the Hugging Face hub. Name a branch, a tag or a commit behind @."
        case errors.HfHubHTTPError() if (
            error.response.status_code == 401 and "authorization" in error.response.request.headers
        ):
            return (
                "cannot be fetched: the Hugging Face hub does not take the token. Set HF_TOKEN to one that is valid, "
                "or log in again with `hf auth login`."
            )
        case errors.HfHubHTTPError() if error.response.status_code in (401, 404):
            return (
                "is not on the Hugging Face hub, or is private. Check the id; for a private model set HF_TOKEN to a "
                "token of an account that may read it, or log in with `hf auth login`."
            )
        case errors.LocalEntryNotFoundError() if isinstance(error.__cause__, errors.OfflineModeIsEnabled):
            return (
                f"cannot be fetched: HF_HUB_OFFLINE is set, and {in_cache} is not whole in the cache of the hub's "
                "client. Unset it, or download the model once with a network."
            )
        case errors.LocalEntryNotFoundError():
            return (
                f"cannot be fetched: the Hugging Face hub does not answer ({_reason(error.__cause__ or error)}), and "
                f"{in_cache} is not whole in the cache of its client. Check the network and HF_ENDPOINT."
            )
    return f"cannot be fetched: {_reason(error)}. Check the id, the network, and for a private model HF_TOKEN."


def _reason(error: BaseException) -> str:
    """Returns the type of an error and the first line of its message."""
    line = first_line(error)
    return line if line == type(error).__name__ else f"{type(error).__name__}: {line}"


def fetch_from_s3(uri: str, cache: Path, client: Any = None, patterns: Sequence[str] = PATTERNS) -> Path:
    """Downloads the files below an s3:// folder, or of an archive, anew each time, so that they are never out of date.

    Raises `Unavailable`.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = uri.removeprefix("s3://").partition("/")
    folder = cache / hashlib.sha256(uri.encode()).hexdigest()[:16]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        s3 = client or boto3.client("s3")
        if key.endswith(ARCHIVES):
            _download_archive(s3, bucket, key, folder, patterns)
        else:
            _download_folder(s3, bucket, key.strip("/"), folder, patterns)
    except (BotoCoreError, ClientError) as error:
        problem = f"{first_line(error)}. Check the URI and your AWS credentials, or start `python -m local_aws`."
    except archive_reader.ArchiveRefused as refused:
        problem = f"{refused}. Pack it and upload it again."
    else:
        if any(folder.iterdir()):
            return folder
        where = "in" if key.endswith(ARCHIVES) else "under"
        problem = f"there is no file of a checkpoint {where} it. Check the URI."
    raise Unavailable(f"The checkpoint '{uri}' cannot be fetched: {problem}")


def _download_folder(s3: Any, bucket: str, key: str, folder: Path, patterns: Sequence[str]) -> None:
    prefix = f"{key}/" if key else ""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    names = [item["Key"].removeprefix(prefix) for page in pages for item in page.get("Contents", [])]
    for name in names:
        if _matches(PurePosixPath(name), patterns):
            (folder / name).parent.mkdir(exist_ok=True)
            s3.download_file(bucket, f"{prefix}{name}", str(folder / name))


def _download_archive(s3: Any, bucket: str, key: str, folder: Path, patterns: Sequence[str]) -> None:
    """Takes those files of an archive that lie as patterns say from its config.json, wherever in it that is."""
    with TemporaryDirectory(prefix=".unpacking-", dir=folder.parent) as scratch:
        archive, unpacked = Path(scratch, "archive"), Path(scratch, "unpacked")
        s3.download_file(bucket, key, str(archive))
        with archive.open("rb") as stream:
            archive_reader.unpack(stream, unpacked)
        configs = sorted(unpacked.rglob("config.json"), key=lambda file: len(file.parts))
        base = configs[0].parent if configs else unpacked
        for file in sorted(base.rglob("*")):
            name = file.relative_to(base)
            if file.is_file() and _matches(PurePosixPath(name), patterns):
                (folder / name).parent.mkdir(exist_ok=True)
                file.rename(folder / name)


def _matches(name: PurePosixPath, patterns: Sequence[str]) -> bool:
    """Whether a file lies where a pattern says, and not in a folder below."""
    if ".." in name.parts or name.is_absolute():
        return False
    return any(name.match(pattern) and len(name.parts) == len(PurePosixPath(pattern).parts) for pattern in patterns)
