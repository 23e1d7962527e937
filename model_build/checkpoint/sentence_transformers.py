"""Reads the files of sentence-transformers beside a checkpoint: pooling, a score's activation, prompts.

modules.json                       the modules of a model, in order, by their classes
1_Pooling/config.json              pooling_mode_mean_tokens = true and so on; from version 6 on pooling_mode = "mean"
sentence_bert_config.json          the length it was trained with, and whether texts become lower-case; up to version 5
config_sentence_transformers.json  prompts; from version 5 on the kind of model; from 6 on a reranker's activation
config.json                        a reranker's activation in older versions

tests/model_build/checkpoint/test_sentence_transformers.py has files of the versions 2 to 6.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_build.checkpoint.files import broken, read_json
from workloads import FeatureExtraction, Model, TextRanking

MODULES, POOLING = "modules.json", "1_Pooling/config.json"
TEXTS, MODEL = "sentence_bert_config.json", "config_sentence_transformers.json"
FILES = (MODULES, POOLING, TEXTS, MODEL)
EMBEDDING, RERANKER = "SentenceTransformer", "CrossEncoder"
"""The kinds of models that are served, by their classes."""
OLDER_RERANKERS = ("sentence_transformers", "sbert_ce_default_activation_function")
"""Keys of config.json by which a reranker is known that was saved before version 6."""
BUILT = {EMBEDDING: ("Transformer", "Pooling", "Normalize"), RERANKER: ("Transformer",)}
"""The modules that a model of each kind may consist of."""
POOLINGS = {"mean": "mean", "cls": "cls", "max": "max", "lasttoken": "last"}
"""The values of model.pooling by sentence-transformers' names."""
NO_LIST = "is no list of modules with a type each. Copy it again."
NO_LIMIT = 10**9
"""From here on a length means that none is set: transformers writes 10^30."""
ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "none"}
"""The values of model.activation by torch's classes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooled:
    """How an embedding is made of the vectors of its tokens, in the words of workload.toml."""

    pooling: str
    normalize: bool | None
    """None without modules.json, which would name a Normalize module."""


def kind(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Returns `EMBEDDING`, `RERANKER`, or None where the model was not saved by sentence-transformers.

    Raises `UsageError` for one of its models that is neither. `config` is what config.json says.
    """
    name = _model(folder).get("model_type")
    if name is None:
        if (folder / MODULES).exists():
            return EMBEDDING
        return RERANKER if any(key in config for key in OLDER_RERANKERS) else None
    if name not in BUILT:
        raise broken(folder / MODEL, f"model_type: got {json.dumps(name)}. Served: {', '.join(BUILT)}.")
    return str(name)


def pooled(folder: Path) -> Pooled | None:
    """Returns how an embedding is made; None without sentence-transformers' files.

    Raises `UsageError` for a module or a pooling that is not built.
    """
    file, has_modules = folder / POOLING, (folder / MODULES).exists()
    if not has_modules and not file.exists():
        return None
    kinds = _modules(folder, EMBEDDING) if has_modules else []
    config = read_json(file)
    modes = config.get("pooling_mode") or [
        key.removeprefix("pooling_mode_").removesuffix("s").removesuffix("_token")
        for key, on in config.items()
        if on is True and key.startswith("pooling_mode_")
    ]
    modes = [modes] if isinstance(modes, str) else [str(mode) for mode in modes]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        names = " and ".join(modes) or "no known mode"
        raise broken(file, f"pools by {names}, which is not built. Built: {', '.join(POOLINGS)}.")
    return Pooled(pooling=POOLINGS[modes[0]], normalize="Normalize" in kinds if has_modules else None)


def activation(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Returns the activation of a reranker's score, as a value of model.activation; None if no file has it.

    Raises `UsageError` for an activation or a module that is not built.
    """
    if (folder / MODULES).exists():
        _modules(folder, RERANKER)
    own = config.get("sentence_transformers")
    file, function = folder / MODEL, _model(folder).get("activation_fn")
    if function is None:
        file, function = folder / "config.json", own.get("activation_fn") if isinstance(own, dict) else None
    function = function or config.get("sbert_ce_default_activation_function")
    if function is None:
        return None
    name = str(function).rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise broken(file, f"scores go through {function}, which is not built. Built: {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]


def trained_length(folder: Path) -> int | None:
    """Returns the smaller of max_seq_length and the tokenizer's model_max_length; None if neither is set."""
    keys = {TEXTS: "max_seq_length", "tokenizer_config.json": "model_max_length"}
    limits = [read_json(folder / name).get(key) for name, key in keys.items() if (folder / name).exists()]
    return min((limit for limit in limits if isinstance(limit, int) and 0 < limit < NO_LIMIT), default=None)


def done_before(folder: Path) -> Iterator[str]:
    """Yields changes of sentence-transformers to every text that the built model does not make.

    Raises `UsageError` where the tokens of a prompt have no part in the pooling.
    """
    model = _model(folder)
    prompts, default = model.get("prompts"), model.get("default_prompt_name")
    used = {name: text for name, text in prompts.items() if text} if isinstance(prompts, dict) else {}
    pooling = read_json(folder / POOLING) if used and (folder / POOLING).exists() else {}
    if pooling.get("include_prompt") is False:
        raise broken(
            folder / POOLING,
            "include_prompt is false, which is not built: the tokens of a prompt are pooled with the others. Save the "
            "model without its prompts, or with include_prompt.",
        )
    if default in used:
        yield (
            f"sentence-transformers puts {_quoted(used[default])} before each text of this model. Nothing here does: "
            "let the examples and every request begin with it."
        )
    elif used:
        named = ", ".join(f"{_quoted(text)} ({name})" for name, text in used.items())
        yield (
            f"This model has prompts for sentence-transformers to put before a text: {named}. Nothing here does: let "
            "the examples and every request begin with theirs."
        )
    texts = folder / TEXTS
    if texts.exists() and read_json(texts).get("do_lower_case") is True:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        if tokenizer.encode("Great value").ids != tokenizer.encode("great value").ids:
            yield (
                "sentence-transformers makes each text of this model lower-case, and its tokenizer does not. Nothing "
                "here does: let the examples and every request be lower-case."
            )


def _quoted(text: object) -> str:
    return json.dumps(text, ensure_ascii=False)


def check(folder: Path, model: Model) -> None:
    """Raises `UsageError` for another pooling than the model was trained with."""
    if not isinstance(model, FeatureExtraction) or (trained := pooled(folder)) is None:
        return
    if trained.pooling != model.pooling:
        raise broken(
            folder / POOLING,
            f"the model was trained to pool by {trained.pooling}, but model.pooling in workload.toml is "
            f"{json.dumps(model.pooling)}. Say pooling = {json.dumps(trained.pooling)} there.",
        )


def differences(folder: Path, config: Mapping[str, Any], model: Model) -> Iterator[str]:
    """Yields where workload.toml differs from sentence-transformers and both can be built, as `model.KEY is …`."""
    trained = pooled(folder) if isinstance(model, FeatureExtraction) else None
    if isinstance(model, FeatureExtraction) and trained and trained.normalize not in (None, model.normalize):
        yield (
            f"model.normalize is {json.dumps(model.normalize)}, and by {folder / MODULES} it is "
            f"{json.dumps(trained.normalize)}: embeddings differ in their length from sentence-transformers'."
        )
    function = activation(folder, config) if isinstance(model, TextRanking) else None
    if isinstance(model, TextRanking) and function not in (None, model.activation):
        yield (
            f"model.activation is {json.dumps(model.activation)}, and by sentence-transformers' files it is "
            f"{json.dumps(function)}: the order of texts is the same, their scores are not."
        )


def _modules(folder: Path, kind: str) -> list[str]:
    """Returns the names of the classes in modules.json, in order. Raises `UsageError` for one that is not built."""
    file = folder / MODULES
    try:
        listed = json.loads(file.read_text("utf-8"))
        named = [str(each["type"]).rpartition(".")[2] for each in listed]
    except (ValueError, TypeError, LookupError) as error:
        raise broken(file, NO_LIST) from error
    if not isinstance(listed, list) or not listed:
        raise broken(file, NO_LIST)
    if other := [name for name in named if name not in BUILT[kind]]:
        raise broken(file, f"has the module {other[0]}, which is not built. Built: {', '.join(BUILT[kind])}.")
    return named


def _model(folder: Path) -> dict[str, Any]:
    file = folder / MODEL
    return read_json(file) if file.exists() else {}
