"""Reads a T5's config.json and generation_config.json, and holds them to what the export and the serving code need.

Keys that neither reads are transformers' own: it refuses a wrong one when it loads the original.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from model_build.checkpoint.files import broken, read_json
from workloads.document import Document

ARCHITECTURE = "T5ForConditionalGeneration"
TOKEN_IDS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
"""The keys that decoding takes from generation_config.json, where it is there."""

Size = Annotated[int, Field(ge=1, le=2**24)]
Epsilon = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class Known(Document):
    """Those keys of a config.json that are read; there are many others."""

    model_config = ConfigDict(extra="ignore")


class T5(Known):
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


def read_t5(folder: Path) -> dict[str, Any]:
    """Returns config.json of a T5. Raises `UsageError`."""
    file = folder / "config.json"
    config = read_json(file)
    named = config.get("architectures") or []
    if not isinstance(named, list) or ARCHITECTURE not in named:
        raise broken(file, f"architectures: got {json.dumps(named)}, allowed is {ARCHITECTURE}.")
    return check_t5(folder, config)


def check_t5(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Returns the config with defaults, and with the token ids of generation_config.json. Raises `UsageError`."""
    read = known(T5, folder / "config.json", config)
    read["num_decoder_layers"] = read["num_decoder_layers"] or read["num_layers"]
    generation = folder / "generation_config.json"
    ids = read_json(generation) if generation.exists() else {}
    return {**config, **read, **{key: ids[key] for key in TOKEN_IDS if key in ids}}


def known(kind: type[Known], file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of `kind`, with their defaults. Raises `InvalidDocument` or `UsageError`."""
    try:
        return kind.from_table(file, {key: config[key] for key in kind.model_fields if key in config}).model_dump()
    except RecursionError:
        raise broken(file, "is nested too deeply.") from None
