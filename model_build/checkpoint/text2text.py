"""Holds an encoder–decoder's files to what its export and the serving code compute with.

In: the folder of a checkpoint. Out: config.json with defaults, under T5's names where the families differ
(`num_decoder_layers`, `num_heads`, `d_kv`: those of the decoder), the token ids that decoding needs, and under
`generation` what generation_config.json asks for. Checkpoints from before that file have its keys in config.json.
"""

import json
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from model_build.checkpoint.architectures import Shapes, t5_weights
from model_build.checkpoint.config import ConfigKeys, Epsilon, Size, known
from model_build.checkpoint.files import broken, read_json
from model_build.checkpoint.weights import TIED_IN_T5, Stored, check_weights, stored, stored_in_t5
from workloads import TextToText

FAMILIES = {
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
    "m2m_100": "M2M100ForConditionalGeneration",
}
"""The architectures that are built, by `model_type`."""
NAMES = {
    "t5": "T5, T5 v1.1, Flan-T5",
    "mt5": "mT5",
    "umt5": "umT5",
    "bart": "BART",
    "mbart": "mBART",
    "marian": "Marian",
    "pegasus": "Pegasus",
    "m2m_100": "M2M100, NLLB",
}
"""The names that people know them by."""
TOKEN_IDS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
"""The keys that decoding takes from generation_config.json, where it is there."""
NORM_FIRST = ("mbart", "pegasus", "m2m_100")
LEARNED_POSITIONS = ("bart", "mbart")
COMPUTED = ("embed_positions", "final_logits_bias", "encoder.version", "decoder.version")
"""Parts of the names of what a BART may hold beside its weights: sinusoids, a bias that may be missing, a version."""

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
    """Returns config.json as this module says. Raises `UsageError`."""
    file = folder / "config.json"
    config = read_json(file)
    kind = _model_type(file, config)
    read = _t5(file, config) if kind.endswith("t5") else _bart(file, config)
    generation = _generation(folder, config)
    ids = {key: generation[key] for key in TOKEN_IDS if key in generation}
    return {**config, **read, **ids, "model_type": kind, "generation": generation}


def check_text2text(folder: Path, files: Iterable[Path], config: Mapping[str, Any], model: TextToText) -> None:
    """Checks that weights and lengths are those of the configuration. Raises `UsageError`."""
    if config["model_type"].endswith("t5"):
        check_weights(folder, stored_in_t5(files, tied=config["tie_word_embeddings"]), t5_weights(config))
        return
    held, wanted = _stored_in_bart(files), list(bart_weights(config))
    computed = {name for name in held if any(part in name for part in COMPUTED)} - {name for name, _, _ in wanted}
    check_weights(folder, {name: tensor for name, tensor in held.items() if name not in computed}, iter(wanted))
    positions = config["max_position_embeddings"]
    # M2M100's positions are computed as far as they are needed.
    for key in ("max_input_tokens", "max_output_tokens") if config["model_type"] != "m2m_100" else ():
        if getattr(model, key) > positions:
            raise broken(
                folder / "config.json",
                f"max_position_embeddings: got {positions}, but model.{key} in workload.toml is "
                f"{getattr(model, key)}. Lower it, or take a model of longer texts.",
            )


def bart_weights(config: Mapping[str, Any]) -> Shapes:
    """Yields the weights of BART and its kin for a config.json, with deviations that keep activations of order one."""
    wide, kind = config["d_model"], config["model_type"]

    def linear(name: str, out: int, into: int) -> Shapes:
        yield f"{name}.weight", (out, into), into**-0.5
        yield f"{name}.bias", (out,), 0.02

    def norm(name: str) -> Shapes:
        yield f"{name}.weight", (wide,), 0
        yield f"{name}.bias", (wide,), 0.02

    yield "shared.weight", (config["vocab_size"], wide), wide**-0.5 if config["scale_embedding"] else 1.0
    for stack, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        if kind in LEARNED_POSITIONS:
            yield f"{stack}.embed_positions.weight", (config["max_position_embeddings"] + 2, wide), 0.02
            yield from norm(f"{stack}.layernorm_embedding")
        inner = config[f"{stack}_ffn_dim"]
        for index in range(config[f"{stack}_layers"]):
            layer = f"{stack}.layers.{index}"
            for attention in attentions:
                for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
                    yield from linear(f"{layer}.{attention}.{part}", wide, wide)
                yield from norm(f"{layer}.{attention}_layer_norm")
            yield from linear(f"{layer}.fc1", inner, wide)
            yield from linear(f"{layer}.fc2", wide, inner)
            yield from norm(f"{layer}.final_layer_norm")
        if kind in NORM_FIRST:
            yield from norm(f"{stack}.layer_norm")


def _nearest(named: object) -> str:
    """Returns the class that is built whose name is most like the first of `architectures`."""
    given = str(named[0]) if isinstance(named, list) and named else ""
    return max(FAMILIES.values(), key=lambda name: SequenceMatcher(None, given.lower(), name.lower()).ratio())


def _model_type(file: Path, config: Mapping[str, Any]) -> str:
    """Returns the family that the architecture is of; transformers would load by `model_type`."""
    named = config.get("architectures") or []
    kind = next((kind for kind, name in FAMILIES.items() if isinstance(named, list) and name in named), None)
    if kind is None:
        raise broken(
            file,
            f"architectures: got {json.dumps(named)}, allowed for text2text-generation is "
            f"{', '.join(FAMILIES.values())}. By its name {_nearest(named)} is the nearest. docs/families.md says "
            "how to add one.",
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
    read["num_decoder_layers"] = read["num_decoder_layers"] or read["num_layers"]
    return read


def _bart(file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    read = known(Bart, file, config)
    if not read["share_encoder_decoder_embeddings"]:
        raise broken(
            file,
            "share_encoder_decoder_embeddings: got false, but a model with two vocabularies is not built. "
            "Allowed: one vocabulary for both languages.",
        )
    heads = read["decoder_attention_heads"]
    return read | {
        "num_decoder_layers": read["decoder_layers"],
        "num_heads": heads,
        "d_kv": read["d_model"] // heads,
    }


def _generation(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys that say something; config.json's own only where there is no generation_config.json."""
    file = folder / "generation_config.json"
    asked = read_json(file) if file.exists() else config
    return {key: value for key, value in asked.items() if value is not None}


def _stored_in_bart(files: Iterable[Path]) -> dict[str, Stored]:
    """Returns all weights by the names within BartModel; of tied embeddings, one."""
    tensors = {name.removeprefix("model."): tensor for file in files for name, tensor in stored(file).items()}
    copies = [tensors.pop(name) for name in sorted(TIED_IN_T5 & tensors.keys())]
    if copies and "shared.weight" not in tensors:
        tensors["shared.weight"] = copies[0]
    return tensors
