"""Reads the config.json of an encoder with a head, and checks it against the built families and workload.toml.

Keys that are not read here are transformers' own: it refuses a wrong one when it loads the original.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from model_build.checkpoint.families import Family, check_head, family_of
from model_build.checkpoint.files import ConfigKeys, Epsilon, Size, broken, known, loading, read_json
from workloads import EncoderModel, UsageError
from workloads.model import ModelInput

Activation = Literal["gelu", "gelu_python", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish"]
UNNAMED = re.compile(r"LABEL_\d+")
"""transformers' names of unnamed labels, which get the workload's names."""
REFUSED: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
    "pruned_heads": (None, {}),
    "use_task_id": (None, False),
    "quantization_config": (None,),
}
"""Keys that change what a network computes and are not built, with the values that change nothing."""


class BertKeys(ConfigKeys):
    vocab_size: Size
    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    intermediate_size: Size
    max_position_embeddings: Size
    type_vocab_size: Size = 2
    layer_norm_eps: Epsilon
    hidden_act: Activation
    pad_token_id: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _heads_share_the_hidden_size(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is no multiple of {self.num_attention_heads} heads.")
        if self.pad_token_id is not None and self.pad_token_id >= self.vocab_size:
            raise ValueError(f"pad_token_id {self.pad_token_id} is not within vocab_size {self.vocab_size}.")
        return self


class Roberta(BertKeys):
    pad_token_id: Annotated[int, Field(ge=0)] = 1  # positions are counted from it


class Electra(BertKeys):
    embedding_size: Size


class Albert(Electra):
    num_hidden_groups: Size = 1


class MpNet(BertKeys):
    type_vocab_size: Annotated[int, BeforeValidator(lambda _: 0)] = 0  # transformers ignores it
    pad_token_id: Literal[1] = 1  # positions are counted from it
    relative_attention_num_buckets: Size = 32


class Generic(ConfigKeys):
    """The keys that are read of a family that transformers computes."""

    vocab_size: Size
    max_position_embeddings: Size
    type_vocab_size: Annotated[int, Field(ge=0, le=2**24)] = 0
    pad_token_id: Annotated[int, Field(ge=0)] | None = None


KINDS: dict[str, type[ConfigKeys]] = {
    "bert": BertKeys,
    "roberta": Roberta,
    "xlm-roberta": Roberta,
    "camembert": Roberta,
    "data2vec-text": Roberta,
    "ernie": BertKeys,
    "electra": Electra,
    "albert": Albert,
    "mpnet": MpNet,
}
DISTILBERT = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
}
"""DistilBERT's keys with other names than BERT's."""


def read_encoder(folder: Path, encoder: Path, model: EncoderModel) -> tuple[dict[str, Any], dict[str, Any], Family]:
    """Returns config.json of the head and of the encoder, which has BERT's keys besides its own, and the family.

    Raises `UsageError` where it, its positions or the head's labels are not those that the workload needs.
    """
    file, encoder_file = folder / "config.json", encoder / "config.json"
    config = read_json(file)
    family = family_of(config, file)
    check_head(config, family, model.task, file)
    own = config if encoder == folder else _backbone(encoder_file, family)
    if refused := [key for key, harmless in REFUSED.items() if own.get(key) not in harmless]:
        spelling = (
            ""
            if family.own_network
            else f" {family.name} is read in the spelling of transformers' own {family.classes}Config, without "
            "trust_remote_code: load the model so, and save it with `save_pretrained(…)`."
        )
        raise broken(encoder_file, f"{refused[0]}: got {json.dumps(own[refused[0]])}, which is not built.{spelling}")
    if not family.own_network:
        read = own | _of_transformers(encoder_file)
    elif family.model_type == "distilbert":  # without token types, and with one epsilon for all norms
        renamed = {DISTILBERT.get(key, key): value for key, value in own.items()}
        fixed = {"type_vocab_size": 1, "layer_norm_eps": 1e-12}
        read = own | known(BertKeys, encoder_file, renamed | fixed) | {"type_vocab_size": 0}
    else:
        read = own | known(KINDS[family.model_type], encoder_file, own)
    _check_positions(encoder_file, family, read, model)
    _check_head_is_the_workloads(file, config, model)
    return config, read, family


def positions(family: Family, config: Mapping[str, Any]) -> int:
    """Returns the number of tokens for which there are positions."""
    first = config["pad_token_id"] + 1 if family.after_padding else 0
    return int(config["max_position_embeddings"]) - first


def _backbone(file: Path, family: Family) -> dict[str, Any]:
    """Returns the config.json of an encoder without a head."""
    config = read_json(file)
    named, allowed = config.get("architectures") or [], f"{family.classes}Model"
    if not isinstance(named, list) or allowed not in named:
        raise broken(file, f"architectures: got {json.dumps(named)}, allowed is {allowed}.")
    return config


def _of_transformers(file: Path) -> dict[str, Any]:
    """Returns the keys of a family that transformers computes, with defaults. Raises `UsageError`."""
    from transformers import AutoConfig

    with loading(file):
        whole = AutoConfig.from_pretrained(file.parent, local_files_only=True)
    named = {key: getattr(whole, key, None) for key in Generic.model_fields}
    return known(Generic, file, {key: value for key, value in named.items() if value is not None})


def _check_positions(file: Path, family: Family, config: Mapping[str, Any], model: EncoderModel) -> None:
    room = positions(family, config)
    if model.max_input_tokens <= room:
        return
    most = config["max_position_embeddings"]
    raise broken(
        file,
        f"max_position_embeddings: got {most}{f', room for {room} tokens' if room != most else ''}, but "
        f"model.max_input_tokens in workload.toml is {model.max_input_tokens}. Lower it, or take a model of longer "
        "inputs.",
    )


def _check_head_is_the_workloads(file: Path, config: Mapping[str, Any], model: EncoderModel) -> None:
    got = config.get("problem_type")
    wanted = getattr(model, "problem_type", "single_label_classification")
    if model.task == "text-classification" and got not in (None, wanted):
        raise broken(
            file,
            f"problem_type: got {json.dumps(got)}, but model.problem_type in workload.toml is {json.dumps(wanted)}.",
        )
    named, own = config.get("id2label"), getattr(model, "labels", ())
    if not own or named is None:
        return
    if not isinstance(named, dict):
        raise broken(file, f"id2label: got {json.dumps(named)}, but it is an object of labels by number.")
    labels = tuple(named.get(str(index)) for index in range(len(named)))
    unnamed = all(isinstance(label, str) and UNNAMED.fullmatch(label) for label in labels)
    if labels != own and not (unnamed and len(labels) == len(own)):
        raise broken(
            file,
            f"id2label: the head answers {json.dumps(labels)}, but model.labels in workload.toml is "
            f"{json.dumps(own)}. Write the head's labels there, in its order.",
        )


def inputs_for(model: EncoderModel, config: Mapping[str, Any], file: Path) -> tuple[ModelInput, ...]:
    """Returns the inputs of the network: a model without token types has none, where workload.toml leaves it open.

    Raises `UsageError` where it asks for them. `file` is that workload.toml.
    """
    if config["type_vocab_size"] > 1 or "token_type_ids" not in model.inputs:
        return model.inputs
    if model.inputs != type(model).model_fields["inputs"].default:
        raise UsageError(
            f"{file}: model.inputs: got {json.dumps(model.inputs)}, but the model knows no token types. Leave "
            "token_type_ids out."
        )
    return tuple(name for name in model.inputs if name != "token_type_ids")
