"""`init` takes a checkpoint from a folder that sentence-transformers saved, from S3 and from the hub.

The clients are the real ones: S3 is moto's in this process, and the hub a server on loopback.
"""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import torch
from moto import mock_aws
from safetensors.torch import load_file

import model_build.__main__ as command_line
from model_build.plan import plan
from tests import checkpoints
from tests.hugging_face_hub import COMMIT, Hub, hugging_face_hub
from tests.model_build.checkpoint.test_sentence_transformers import SAVED, TRACED
from tests.model_build.init.conftest import Init
from workloads import FeatureExtraction, TextRanking, WorkloadFolder, load_workload

Capture = pytest.CaptureFixture[str]
NEWEST = max(SAVED)


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder and a reranker with one layer. Not to be changed."""
    folder = tmp_path_factory.mktemp("brought")
    checkpoints.encoder(folder / "encoder", num_hidden_layers=1)
    checkpoints.reranker(folder / "reranker", num_hidden_layers=1)
    return folder


@pytest.fixture
def init(root: Path) -> Init:
    """Runs `init mine` for one target and returns the folder that it wrote, which can be planned."""

    def run(source: object, *options: object) -> WorkloadFolder:
        arguments = ["init", "mine", "--from", str(source), "--target", "cpu", "--overwrite", *map(str, options)]
        assert command_line.main(arguments) == 0
        folder = load_workload("mine", root / "workloads")
        plan(folder, "cpu", root)
        return folder

    return run


def saved_by(version: str, name: str, encoder: Path, folder: Path) -> Path:
    """Copies a checkpoint and adds the files that a version of sentence-transformers wrote for another."""
    shutil.copytree(encoder, folder)
    for file, content in SAVED[version][name].items():
        (folder / file).parent.mkdir(exist_ok=True)
        known = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        (folder / file).write_text(json.dumps({**known, **content} if isinstance(content, dict) else content))
    return folder


@pytest.mark.parametrize("version", SAVED)
def test_an_embedding_is_as_sentence_transformers_saved_it(
    init: Init, brought: Path, tmp_path: Path, capsys: Capture, version: str
) -> None:
    folder = init(saved_by(version, "prompted", brought / "encoder", tmp_path / "brought"))
    assert isinstance(folder.workload.model, FeatureExtraction)
    assert (folder.workload.model.pooling, folder.workload.model.normalize) == ("mean", False)
    assert (
        'Warning: sentence-transformers puts "query: " before each text of this model. Nothing here does: let the '
        "examples and every request begin with it.\n"
    ) in capsys.readouterr().err


@pytest.mark.parametrize("version", sorted(TRACED))
def test_a_reranker_is_as_sentence_transformers_saved_it(
    init: Init, brought: Path, tmp_path: Path, version: str
) -> None:
    folder = init(saved_by(version, "identity", brought / "reranker", tmp_path / "brought"))
    assert isinstance(folder.workload.model, TextRanking)
    assert folder.workload.model.activation == "none"


def test_a_build_of_a_workload_by_hand_is_held_to_the_checkpoints_own_files(
    init: Init, root: Path, brought: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = init(saved_by(NEWEST, "mean", brought / "encoder", tmp_path / "brought"))
    written = folder.file.read_text()
    folder.file.write_text(written.replace("normalize = false", "normalize = true"))
    capsys.readouterr()
    assert command_line.main(["plan", "mine", "--target", "cpu", "--json"]) == 0
    assert capsys.readouterr().err == (
        f"Warning: {folder.file}: model.normalize is true, and by {folder.path / 'checkpoint/modules.json'} it is "
        "false: embeddings differ in their length from sentence-transformers'.\n"
    )
    folder.file.write_text(written.replace('pooling = "mean"', 'pooling = "max"'))
    assert command_line.main(["plan", "mine", "--target", "cpu"]) == 2
    assert capsys.readouterr().err == (
        f"{folder.path / 'checkpoint/1_Pooling/config.json'}: the model was trained to pool by mean, but model.pooling "
        'in workload.toml is "max". Say pooling = "mean" there.\n'
    )


def older(folder: Path, copy: Path) -> Path:
    """Copies a checkpoint as older versions of transformers saved one: a pickle, a vocabulary and unused files."""
    shutil.copytree(folder, copy)
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    pieces = json.loads((copy / "tokenizer.json").read_text())["model"]["vocab"]
    (copy / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    (copy / "tokenizer.json").unlink()
    (copy / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    for name in ("tf_model.h5", "training_args.bin", "onnx.onnx", "rust_model.ot"):
        (copy / name).write_bytes(b"not read")
    return copy


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hugging_face_hub(tmp_path / "hub-cache") as hub:
        yield hub


def test_a_model_of_the_hub_stays_there_at_its_commit(
    init: Init, hub: Hub, root: Path, brought: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("team/model", saved_by(NEWEST, "cls", brought / "encoder", tmp_path / "brought"))
    folder = init("team/model")
    assert isinstance(folder.workload.model, FeatureExtraction)
    assert folder.workload.model.pooling == "cls"
    assert folder.workload.model.checkpoint == f"team/model@{COMMIT}"
    assert not (folder.path / "checkpoint").exists()
    before = plan(folder, "cpu", root).checkpoint.sha256
    changed = hub.add("team/model", brought / "reranker", commit=COMMIT[::-1])
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert plan(folder, "cpu", root).checkpoint.sha256 == before
    assert init("team/model").workload.model.checkpoint == f"team/model@{COMMIT}", "the cache's, without a network"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    assert init("team/model").workload.model.checkpoint == f"team/model@{changed.commit}"


def test_older_files_of_the_hub_are_converted_and_copied(init: Init, hub: Hub, brought: Path, tmp_path: Path) -> None:
    hub.add("team/model", older(brought / "reranker", tmp_path / "older"))
    folder = init("team/model")
    assert folder.workload.model.checkpoint == "./checkpoint"
    assert f"copied from team/model@{COMMIT}" in folder.file.read_text()
    assert sorted(hub.sent) == ["config.json", "pytorch_model.bin", "tokenizer_config.json", "vocab.txt"]
    new = load_file(folder.path / "checkpoint" / "model.safetensors")
    assert all(torch.equal(new[name], each) for name, each in load_file(brought / "reranker/model.safetensors").items())


def test_a_model_that_neither_a_folder_nor_the_hub_has(hub: Hub, root: Path, capsys: Capture) -> None:
    assert command_line.main(["init", "mine", "--from", "my-model"]) == 3
    assert capsys.readouterr().err == (
        "--from: there is no folder my-model. The checkpoint 'my-model' is not on the Hugging Face hub, or is private. "
        "Check the id; for a private model set HF_TOKEN to a token of an account that may read it, or log in with "
        "`hf auth login`.\n"
    )
    assert list((root / "workloads").iterdir()) == []


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        client = boto3.client("s3")
        client.create_bucket(Bucket="models")
        yield client


def test_a_folder_and_an_archive_in_s3_stay_there(
    init: Init, s3: Any, root: Path, brought: Path, tmp_path: Path
) -> None:
    source = saved_by(NEWEST, "cls", brought / "encoder", tmp_path / "brought")
    for file in filter(Path.is_file, source.rglob("*")):
        s3.upload_file(str(file), "models", f"v1/{file.relative_to(source)}")
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as packed:
        packed.add(source, ".")
    s3.upload_file(str(tmp_path / "model.tar.gz"), "models", "job/output/model.tar.gz")
    digests = set()
    for uri in ("s3://models/v1", "s3://models/job/output/model.tar.gz"):
        folder = init(uri)
        assert folder.workload.model.checkpoint == uri
        assert isinstance(folder.workload.model, FeatureExtraction)
        assert folder.workload.model.pooling == "cls"
        digests.add(plan(folder, "cpu", root).checkpoint.sha256)
    assert len(digests) == 1
