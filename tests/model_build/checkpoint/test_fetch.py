"""Checkpoints come from S3 or from the hub with the files that a build reads, or an error gives the reason.

The clients are the real ones; S3 is moto's in this process, and the hub a server on loopback.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from inference_recommender.payloads import tar_gz
from model_build.checkpoint.fetch import fetch_from_hub, fetch_from_s3
from tests.builders import failure_of, message_of
from tests.hugging_face_hub import COMMIT, Hub, hugging_face_hub
from workloads import Unavailable

FILES = {
    "config.json": b'{"model_type": "bert"}',
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "modules.json": b"[]",
    "1_Pooling/config.json": b'{"pooling_mode": "mean"}',
}
NOT_READ = {
    "README.md": b"a card",
    "pytorch_model.bin": b"a pickle",
    "tf_model.h5": b"tensorflow",
    "flax_model.msgpack": b"flax",
    "onnx/model.onnx": b"onnx",
    "checkpoint-500/model.safetensors": b"half-trained",
    "checkpoint-500/config.json": b"{}",
    "training_args.bin": b"a pickle",
    "vocab.txt": b"[PAD]",
}


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="models")
        yield client


@pytest.fixture
def s3(client: Any) -> Iterator[Any]:
    """A client of an account with one empty bucket: models."""
    yield client
    for held in client.list_objects_v2(Bucket="models").get("Contents", []):
        client.delete_object(Bucket="models", Key=held["Key"])


@pytest.mark.parametrize("prefix", ["spelling/v1/", "", "odd?name#1/"])
def test_only_the_files_of_a_build_are_fetched_from_an_s3_folder(s3: Any, tmp_path: Path, prefix: str) -> None:
    for name, content in (FILES | NOT_READ).items():
        s3.put_object(Bucket="models", Key=f"{prefix}{name}", Body=content)
    assert files_of(fetch_from_s3(f"s3://models/{prefix}".rstrip("/"), tmp_path, s3)) == FILES


@pytest.mark.parametrize("base", ["", "./", "model/"])
def test_only_the_files_of_a_build_are_unpacked_from_an_archive_in_s3(s3: Any, tmp_path: Path, base: str) -> None:
    """An archive of `tar -czf` and one of a training job have their files at the top, others in a folder."""
    archive = tar_gz({f"{base}{name}": content for name, content in (FILES | NOT_READ).items()})
    s3.put_object(Bucket="models", Key="job/output/model.tar.gz", Body=archive)
    assert files_of(fetch_from_s3("s3://models/job/output/model.tar.gz", tmp_path, s3)) == FILES
    assert len(list(tmp_path.iterdir())) == 1, "the archive is not kept"


ARCHIVES = {
    "cut.tar.gz": (tar_gz({"config.json": bytes(range(256)) * 99})[:-300], "its gzip stream ends early. Pack it and"),
    "text.tar.gz": (b"a text", "it is not gzip. Pack it and"),
    "out.tar.gz": (
        tar_gz({"config.json": b"{}", "../config.json": b"{}"}),
        "'../config.json' could lead out of the folder. Pack it and",
    ),
}
CREDENTIALS = "Check the URI and your AWS credentials, or start `python -m local_aws`."
MISSING = {
    "s3://models/other.tgz": "there is no file of a checkpoint in it. Check the URI.",
    "s3://models/nothing": "there is no file of a checkpoint under it. Check the URI.",
    "s3://no-such-bucket/model": "An error occurred (NoSuchBucket) when calling the ListObjectsV2 operation: The "
    f"specified bucket does not exist. {CREDENTIALS}",
    "s3://models/gone.tar.gz": "An error occurred (404) when calling the HeadObject operation: Not Found. "
    f"{CREDENTIALS}",
}
S3_REFUSALS = {f"s3://models/{key}": f"{why} upload it again." for key, (_, why) in ARCHIVES.items()} | MISSING


@pytest.mark.parametrize("uri", S3_REFUSALS)
def test_a_missing_or_invalid_object_in_s3_is_refused_and_leaves_no_files(s3: Any, tmp_path: Path, uri: str) -> None:
    for key, (body, _) in ARCHIVES.items():
        s3.put_object(Bucket="models", Key=key, Body=body)
    s3.put_object(Bucket="models", Key="other.tgz", Body=tar_gz({"logs.txt": b""}))
    message = f"The checkpoint '{uri}' cannot be fetched: {S3_REFUSALS[uri]}"
    assert failure_of(Unavailable, fetch_from_s3, uri, tmp_path / "cache", s3) == (message, 3)
    assert files_of(tmp_path) == {}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    for name, content in (FILES | NOT_READ).items():
        (tmp_path / "pushed" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pushed" / name).write_bytes(content)
    with hugging_face_hub(tmp_path / "hub-cache") as hub:
        hub.add("team/model", tmp_path / "pushed")
        yield hub


def test_only_the_files_of_a_build_come_from_the_hub_at_its_commit(hub: Hub, tmp_path: Path) -> None:
    folder = fetch_from_hub("team/model", tmp_path)
    assert files_of(folder) == FILES
    assert sorted(hub.sent) == sorted(FILES)
    assert folder.name == COMMIT


def test_a_commit_that_was_downloaded_is_not_asked_for_again(hub: Hub, tmp_path: Path) -> None:
    """The model that `init` wrote down builds without a network, also after the repository has changed."""
    folder = fetch_from_hub("team/model", tmp_path)
    del hub.repositories["team/model"]
    assert fetch_from_hub(f"team/model@{COMMIT}", tmp_path) == folder


NOT_FOUND = (
    "is not on the Hugging Face hub, or is private. Check the id; for a private model set HF_TOKEN to a token of an "
    "account that may read it, or log in with `hf auth login`."
)
GATED = (
    "is gated on the Hugging Face hub. Ask for access on https://huggingface.co/team/model, then set HF_TOKEN to a "
    "token of the account that was given it, or log in with `hf auth login`."
)
INVALID_TOKEN = (
    "cannot be fetched: the Hugging Face hub does not take the token. Set HF_TOKEN to one that is valid, or log in "
    "again with `hf auth login`."
)
REVISION = "has no revision 'v2' on the Hugging Face hub. Name a branch, a tag or a commit behind @."


@pytest.mark.parametrize(
    ("name", "gated", "token", "reason"),
    [
        ("team/model@v2", False, "hf_ours", REVISION),
        ("team/modle", False, "", NOT_FOUND),
        ("team/model", False, "", NOT_FOUND),
        ("team/model", False, "hf_theirs", NOT_FOUND),
        ("team/model", True, "", GATED),
        ("team/model", True, "hf_theirs", GATED),
        ("team/model", False, "hf_last_year", INVALID_TOKEN),
    ],
)
def test_a_model_that_the_hub_does_not_send_is_explained(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, gated: bool, token: str, reason: str
) -> None:
    repository = hub.repositories["team/model"]
    repository.gated, repository.tokens = gated, {"hf_ours"}
    hub.expired.add("hf_last_year")
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    assert failure_of(Unavailable, fetch_from_hub, name, tmp_path) == (f"The checkpoint '{name}' {reason}", 3)
    monkeypatch.setenv("HF_TOKEN", "hf_ours")
    assert files_of(fetch_from_hub("team/model", tmp_path)) == FILES
    assert hub.tokens_at_cdn == []


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        (
            "HF_HUB_OFFLINE",
            True,
            "HF_HUB_OFFLINE is set, and an earlier download of it, which would do, is not whole in the cache of the "
            "hub's client. Unset it, or download the model once with a network.",
        ),
        (
            "ENDPOINT",
            "http://127.0.0.1:9",
            "the Hugging Face hub does not answer (ConnectError: [Errno 111] Connection refused), and an earlier "
            "download of it, which would do, is not whole in the cache of its client. Check the network and "
            "HF_ENDPOINT.",
        ),
    ],
)
def test_without_the_hub_a_build_uses_the_downloaded_files(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: Any, reason: str
) -> None:
    folder = fetch_from_hub("team/model", tmp_path)
    monkeypatch.setattr(f"huggingface_hub.constants.{setting}", value)
    assert fetch_from_hub("team/model", tmp_path) == folder
    message = message_of(Unavailable, fetch_from_hub, "team/other", tmp_path)
    assert message == f"The checkpoint 'team/other' cannot be fetched: {reason}"
