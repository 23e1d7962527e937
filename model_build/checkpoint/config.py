"""Reads config.json and generation_config.json, and holds them to what the export and the serving code compute with.

Keys that neither reads are transformers' own: it refuses a wrong one when it loads the original.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from model_build.checkpoint.files import broken, read_json
from workloads import EncoderModel, QuestionAnswering
from workloads.document import Document

ARCHITECTURES = {
    "text2text-generation": "T5ForConditionalGeneration",
    "text-classification": "BertForSequenceClassification",
    "text-pair-scoring": "BertForPairScoring",
    "question-answering": "BertForQuestionAnswering",
}
"""The architecture in config.json, by task. BertForPairScoring is this project's: BERT, a classifier and a scorer."""
BACKBONE = "BertModel"
TOKEN_IDS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
"""The keys that decoding takes from generation_config.json, where it is there."""

Size = Annotated[int, Field(ge=1, le=2**24)]
Epsilon = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class _Known(Document):
    """Those keys of a config.json that are read; there are many others."""

    model_config = ConfigDict(extra="ignore")


class T5(_Known):
    vocab_size: Size
    d_model: Size
    d_kv: Size
    d_ff: Size
    num_layers: Size
    num_decoder_layers: Size | None = None
    num_heads: Size
    feed_forward_proj: Annotated[str, Field(pattern=r"^(gated-)?[a-z0-9_]+$")] = "relu"
    layer_norm_epsilon: Epsilon = 1e-6
    relative_attention_num_buckets: Annotated[int, Field(ge=4, le=2**24)] = 32
    relative_attention_max_distance: Size = 128
    tie_word_embeddings: bool = True


class Bert(_Known):
    vocab_size: Size
    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    intermediate_size: Size
    max_position_embeddings: Size
    type_vocab_size: Size = 2
    layer_norm_eps: Epsilon
    hidden_act: Literal["gelu", "gelu_new", "gelu_pytorch_tanh"]
    pad_token_id: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _heads_share_the_hidden_size(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is no multiple of {self.num_attention_heads} heads.")
        if self.pad_token_id is not None and self.pad_token_id >= self.vocab_size:
            raise ValueError(f"pad_token_id {self.pad_token_id} is not within vocab_size {self.vocab_size}.")
        return self


def read_config(folder: Path, task: str) -> dict[str, Any]:
    """Returns config.json of a model that does `task`. Raises `UsageError`."""
    return _read(folder, ARCHITECTURES[task])


def read_backbone(folder: Path) -> dict[str, Any]:
    """Returns config.json of an encoder without a head. Raises `UsageError`."""
    return _read(folder, BACKBONE)


def _read(folder: Path, architecture: str) -> dict[str, Any]:
    file = folder / "config.json"
    config = read_json(file)
    named = config.get("architectures") or []
    if not isinstance(named, list) or architecture not in named:
        raise broken(file, f"architectures: got {json.dumps(named)}, allowed is {architecture}.")
    return config


def check_t5(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Returns the config with defaults, and with the token ids of generation_config.json. Raises `UsageError`."""
    known = _known(T5, folder / "config.json", config)
    known["num_decoder_layers"] = known["num_decoder_layers"] or known["num_layers"]
    generation = folder / "generation_config.json"
    ids = read_json(generation) if generation.exists() else {}
    return {**config, **known, **{key: ids[key] for key in TOKEN_IDS if key in ids}}


def check_bert(
    folder: Path, config: dict[str, Any], encoder: Path, encoder_config: dict[str, Any], model: EncoderModel
) -> dict[str, Any]:
    """Returns the encoder's config with defaults. Raises `UsageError` where it, its positions or the head's labels are
    not those that the workload needs.
    """
    known = _known(Bert, encoder / "config.json", encoder_config)
    positions = known["max_position_embeddings"]
    if model.max_input_tokens > positions:
        raise broken(
            encoder / "config.json",
            f"max_position_embeddings: got {positions}, but model.max_input_tokens in workload.toml is "
            f"{model.max_input_tokens}. Lower it, or take a model of longer inputs.",
        )
    if not isinstance(model, QuestionAnswering):
        _check_labels(folder / "config.json", config.get("id2label") or {}, model.labels)
    return {**encoder_config, **known}


def _known(kind: type[_Known], file: Path, config: dict[str, Any]) -> dict[str, Any]:
    try:
        return kind.from_table(file, {key: config[key] for key in kind.model_fields if key in config}).model_dump()
    except RecursionError:
        raise broken(file, "is nested too deeply.") from None


def _check_labels(file: Path, named: Any, wanted: tuple[str, ...]) -> None:
    if not isinstance(named, dict):
        raise broken(file, f"id2label: got {json.dumps(named)}, but it is an object of labels by number.")
    labels = tuple(named.get(str(index)) for index in range(len(named)))
    if labels != wanted:
        raise broken(
            file,
            f"id2label: the head answers {json.dumps(labels)}, but model.labels in workload.toml is "
            f"{json.dumps(wanted)}. Write the head's labels there, in its order.",
        )
