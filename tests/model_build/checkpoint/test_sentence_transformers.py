"""The files that sentence-transformers keeps beside a checkpoint are read as each of its versions meant them.

sentence_transformers.json has, by version and model, the JSON files of `model.save(folder)` of a seeded BERT with
max_seq_length 64: SentenceTransformer with Pooling of every mode, with Normalize, Dense and prompts, and CrossEncoder
with each activation. Versions 2 and 3 ran with transformers 4.57.6.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from model_build.checkpoint import sentence_transformers
from model_build.checkpoint.sentence_transformers import EMBEDDING, RERANKER, Pooled
from tests.builders import message_of
from workloads import FeatureExtraction, TextRanking, UsageError

RECORDED = Path(__file__).with_name("sentence_transformers.json")
SAVED: dict[str, dict[str, dict[str, Any]]] = json.loads(RECORDED.read_text("utf-8"))
LONGEST = 64
WAYS = {"mean": "mean", "cls": "cls", "max": "max", "last": "last", "normalized": "mean"}
RERANKERS = {"reranker": "sigmoid", "sigmoid": "sigmoid", "identity": "none"}
"""The functions that the recorded rerankers put their scores through, in the words of workload.toml."""
TRACED = {version for version in SAVED if version >= "4"}
"""The versions that write into a reranker's files what it is."""


def cases(names: Collection[str], versions: Collection[str] = SAVED) -> list[Any]:
    return [pytest.param(version, name, id=f"{version}-{name}") for version in sorted(versions) for name in names]


@pytest.fixture
def folder(tmp_path: Path, version: str, name: str) -> Path:
    return written(tmp_path, SAVED[version][name])


def written(folder: Path, files: dict[str, Any]) -> Path:
    for file, content in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(json.dumps(content))
    return folder


def config(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def embedding(**keys: Any) -> FeatureExtraction:
    return FeatureExtraction(task="feature-extraction", checkpoint="./checkpoint", max_input_tokens=16, **keys)


@pytest.mark.parametrize(("version", "name"), cases(WAYS))
def test_an_embedding_is_pooled_and_cut_as_it_was_saved(folder: Path, name: str) -> None:
    assert sentence_transformers.kind(folder, config(folder)) == EMBEDDING
    assert sentence_transformers.pooled(folder) == Pooled(pooling=WAYS[name], normalize=name == "normalized")
    assert sentence_transformers.trained_length(folder) == LONGEST
    assert list(sentence_transformers.done_before(folder)) == []


NOT_BUILT = {
    "dense": "modules.json: has the module Dense, which is not built. Built: Transformer, Pooling, Normalize.",
    "weighted": "1_Pooling/config.json: pools by weightedmean, which is not built. Built: mean, cls, max, lasttoken.",
}


@pytest.mark.parametrize(("version", "name"), cases(NOT_BUILT))
def test_a_module_or_a_pooling_that_is_not_built_is_refused(folder: Path, name: str) -> None:
    assert message_of(UsageError, sentence_transformers.pooled, folder) == f"{folder}/{NOT_BUILT[name]}"


PROMPTS = {
    "prompted": 'sentence-transformers puts "query: " before each text of this model. Nothing here does: let the '
    "examples and every request begin with it.",
    "with prompts": 'This model has prompts for sentence-transformers to put before a text: "query: " (query). Nothing '
    "here does: let the examples and every request begin with theirs.",
}


@pytest.mark.parametrize(("version", "name"), cases(PROMPTS))
def test_prompts_are_reported_and_must_be_pooled(folder: Path, name: str) -> None:
    assert list(sentence_transformers.done_before(folder)) == [PROMPTS[name]]
    file = folder / "1_Pooling" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"include_prompt": False}))
    assert message_of(UsageError, list, sentence_transformers.done_before(folder)) == (
        f"{file}: include_prompt is false, which is not built: the tokens of a prompt are pooled with the others. Save "
        "the model without its prompts, or with include_prompt."
    )


@pytest.mark.parametrize(("version", "name"), cases(RERANKERS, versions=TRACED))
def test_a_reranker_has_its_saved_activation(folder: Path, name: str) -> None:
    assert sentence_transformers.kind(folder, config(folder)) == RERANKER
    assert sentence_transformers.activation(folder, config(folder)) == RERANKERS[name]


@pytest.mark.parametrize(("version", "name"), cases(RERANKERS, versions=SAVED.keys() - TRACED))
def test_versions_2_and_3_tell_a_reranker_by_a_key_that_a_later_transformers_drops(folder: Path) -> None:
    """Recorded with transformers 4.57, config.json has no trace of the library; published models have the key."""
    assert sentence_transformers.kind(folder, config(folder)) is None
    assert sentence_transformers.activation(folder, config(folder)) is None
    published = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
    assert sentence_transformers.kind(folder, published) == RERANKER
    assert sentence_transformers.activation(folder, published) == "none"


REFUSALS: dict[str, tuple[str, str]] = {
    "config.json": (
        '{"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}',
        "scores go through torch.nn.modules.activation.Tanh, which is not built. Built: Sigmoid, Identity.",
    ),
    "config_sentence_transformers.json": (
        '{"model_type": "SparseEncoder"}',
        'model_type: got "SparseEncoder". Served: SentenceTransformer, CrossEncoder.',
    ),
    "modules.json": ('[{"type": 1, "idx": 0}, {}]', "is no list of modules with a type each. Copy it again."),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_reranker_that_is_not_served_is_refused(tmp_path: Path, name: str) -> None:
    content, message = REFUSALS[name]
    written(tmp_path, {"config.json": {}})
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError) as caught:
        [read(tmp_path, config(tmp_path)) for read in (sentence_transformers.kind, sentence_transformers.activation)]
    assert str(caught.value) == f"{tmp_path / name}: {message}"


@pytest.mark.parametrize(("version", "name"), cases(["mean", "normalized"]))
def test_a_build_refuses_another_pooling_and_reports_another_length(folder: Path, name: str) -> None:
    assert message_of(UsageError, sentence_transformers.check, folder, embedding(pooling="cls")) == (
        f"{folder / '1_Pooling/config.json'}: the model was trained to pool by mean, but model.pooling in "
        'workload.toml is "cls". Say pooling = "mean" there.'
    )
    as_saved = embedding(pooling="mean", normalize=name == "normalized")
    sentence_transformers.check(folder, as_saved)
    assert list(sentence_transformers.differences(folder, config(folder), as_saved)) == []
    other = embedding(normalize=name != "normalized")
    sentence_transformers.check(folder, other)
    ours, theirs = ("false", "true") if name == "normalized" else ("true", "false")
    assert list(sentence_transformers.differences(folder, config(folder), other)) == [
        f"model.normalize is {ours}, and by {folder / 'modules.json'} it is {theirs}: embeddings differ in their "
        "length from sentence-transformers'."
    ]


@pytest.mark.parametrize(("version", "name"), cases(["identity"], versions=TRACED))
def test_a_build_reports_another_activation(folder: Path) -> None:
    model = TextRanking(task="text-ranking", checkpoint="./checkpoint", max_input_tokens=16)
    sentence_transformers.check(folder, model)
    assert list(sentence_transformers.differences(folder, config(folder), model)) == [
        'model.activation is "sigmoid", and by sentence-transformers\' files it is "none": the order of texts is the '
        "same, their scores are not."
    ]
