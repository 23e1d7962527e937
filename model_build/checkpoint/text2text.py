"""Reads the configuration of an encoder–decoder and checks that it is built.

In: the folder of a checkpoint. Out: config.json with defaults, under T5's names where the families differ
(`num_decoder_layers`, `num_heads`, `d_kv`: those of the decoder), the token ids that decoding needs, and under
`generation` the keys of generation_config.json. Checkpoints from before that file have its keys in config.json.
"""

import json
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from model_build.checkpoint.files import ConfigKeys, Epsilon, Size, broken, known, read_json
from workloads import TextToText

CLASSES = {
    "t5": ("T5ForConditionalGeneration", "T5, T5 v1.1, Flan-T5"),
    "mt5": ("MT5ForConditionalGeneration", "mT5"),
    "umt5": ("UMT5ForConditionalGeneration", "umT5"),
    "bart": ("BartForConditionalGeneration", "BART"),
    "mbart": ("MBartForConditionalGeneration", "mBART"),
    "marian": ("MarianMTModel", "Marian"),
    "pegasus": ("PegasusForConditionalGeneration", "Pegasus"),
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100, NLLB"),
}
"""The families that are built, by `model_type`: the class in `architectures`, and the name that people use."""
FAMILIES = {kind: architecture for kind, (architecture, _) in CLASSES.items()}
NAMES = {kind: name for kind, (_, name) in CLASSES.items()}
TOKEN_IDS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
"""The keys that decoding takes from generation_config.json, if it exists."""
Activation = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


class T5(ConfigKeys):
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


class Bart(ConfigKeys):
    vocab_size: Size
    d_model: Size
    encoder_layers: Size
    decoder_layers: Size
    encoder_attention_heads: Size
    decoder_attention_heads: Size
    encoder_ffn_dim: Size
    decoder_ffn_dim: Size
    max_position_embeddings: Size
    activation_function: Activation = "gelu"
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> Self:
        for heads in (self.encoder_attention_heads, self.decoder_attention_heads):
            if self.d_model % heads:
                raise ValueError(f"d_model {self.d_model} is no multiple of {heads} heads.")
        return self


def read_text2text(folder: Path) -> dict[str, Any]:
    """Returns config.json as this module describes it. Raises `UsageError`."""
    file = folder / "config.json"
    config = read_json(file)
    kind = _model_type(file, config)
    read = _t5(file, config) if kind.endswith("t5") else _bart(file, config)
    generation_file = folder / "generation_config.json"
    generation = read_json(generation_file) if generation_file.exists() else config
    generation = {key: value for key, value in generation.items() if value is not None}
    ids = {key: generation[key] for key in TOKEN_IDS if key in generation}
    return {**config, **read, **ids, "model_type": kind, "generation": generation}


def check_positions(file: Path, config: Mapping[str, Any], model: TextToText) -> None:
    """Checks that the model has positions for the workload's lengths. Raises `UsageError`."""
    positions = config.get("max_position_embeddings")
    if config["model_type"].endswith("t5") or config["model_type"] == "m2m_100":  # computed as far as they are needed
        return
    for key in ("max_input_tokens", "max_output_tokens"):
        if getattr(model, key) > positions:
            raise broken(
                file,
                f"max_position_embeddings: got {positions}, but model.{key} in workload.toml is "
                f"{getattr(model, key)}. Lower it, or take a model of longer texts.",
            )


def _model_type(file: Path, config: Mapping[str, Any]) -> str:
    """Returns the family that the architecture is of; transformers would load by `model_type`."""
    named = config.get("architectures") or []
    kind = next((kind for kind, name in FAMILIES.items() if isinstance(named, list) and name in named), None)
    if kind is None:
        given = str(named[0]) if isinstance(named, list) and named else ""
        nearest = max(FAMILIES.values(), key=lambda name: SequenceMatcher(None, given.lower(), name.lower()).ratio())
        raise broken(
            file,
            f"architectures: got {json.dumps(named)}, allowed for text2text-generation is "
            f"{', '.join(FAMILIES.values())}. By its name {nearest} is the nearest. docs/families.md says how to add "
            "one.",
        )
    if config.get("model_type", kind) != kind:
        raise broken(
            file,
            f"model_type: got {json.dumps(config['model_type'])}, but architectures says {FAMILIES[kind]}, "
            f"which is '{kind}'. Save the model again.",
        )
    return kind


def _t5(file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    read = known(T5, file, config)
    return read | {"num_decoder_layers": read["num_decoder_layers"] or read["num_layers"]}


def _bart(file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    read = known(Bart, file, config)
    if not read["share_encoder_decoder_embeddings"]:
        raise broken(
            file,
            "share_encoder_decoder_embeddings: got false, but a model with two vocabularies is not built. "
            "Allowed: one vocabulary for both languages.",
        )
    heads = read["decoder_attention_heads"]
    return read | {"num_decoder_layers": read["decoder_layers"], "num_heads": heads, "d_kv": read["d_model"] // heads}
