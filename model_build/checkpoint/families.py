"""Knows the families of encoders that are built: their names in config.json, their weights' names, their heads. Pure.

A family whose layers are BERT's becomes our own network (`encoder/bert.py`): its configuration and its weights are read
under BERT's names. Any other is transformers' own module, which `encoder/wrapper.py` makes exportable.

To add a family that transformers has: a row in `FAMILIES` without `like_bert`, and a tiny configuration of it in
tests/model_build/miniatures/tiny_families.py, which holds every task of it to transformers' own answers.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from model_build.checkpoint.files import broken

HEADS: dict[str, tuple[str, ...]] = {
    "text-classification": ("ForSequenceClassification",),
    "text-ranking": ("ForSequenceClassification",),
    "text-pair-scoring": ("ForPairScoring",),
    "token-classification": ("ForTokenClassification",),
    "question-answering": ("ForQuestionAnswering",),
    "feature-extraction": ("Model", "ForMaskedLM", "ForPreTraining"),
}
"""The endings of the classes in config.json's `architectures` that can do a task. ForPairScoring is this project's own:
BERT with a classifier and a scorer. An embedding uses only the encoder, whatever its head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LikeBert:
    """How a family whose layers are BERT's differs from it."""

    renamed: tuple[tuple[str, str], ...] = ()
    """Regular expressions over the names of weights, and BERT's names for what they match; the first match holds."""
    pooler: str = "tanh"
    """The activation between the two products of the head on the first token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One family. `model_type` and the beginning of its `classes` are those of config.json."""

    model_type: str
    name: str
    classes: str
    prefix: str
    """The beginning of the encoder's weights' names in a model with a head."""
    like_bert: LikeBert | None = None
    after_padding: bool = False
    """Whether the first token's position is pad_token_id + 1 instead of 0."""

    lacks: tuple[str, ...] = ()
    """The tasks for which transformers has no class of the family."""
    fp32_alone: str | None = None
    """Why the quantiser would change nothing; None if it finds products to quantise."""

    @property
    def own_network(self) -> bool:
        """Tells whether the network is ours, or transformers'."""
        return self.like_bert is not None

    def architectures(self, task: str) -> list[str]:
        """Returns the classes that can do a task; empty where the family has none."""
        return [] if self.lacks_head(task) else [f"{self.classes}{ending}" for ending in HEADS[task]]

    def lacks_head(self, task: str) -> str | None:
        """Says why a task is not built of the family; None where it is."""
        if task == "text-pair-scoring" and self.model_type != "bert":
            return "text-pair-scoring is built only for BERT"
        return f"transformers has no class of this family for {task}" if task in self.lacks else None

    def read_for(self, task: str, names: Collection[str]) -> list[str]:
        """Returns those of the stored weights that a task reads: embeddings have no use for a head that is there."""
        own = [name for name in names if name.startswith(self.prefix)]
        return own if own and task == "feature-extraction" else list(names)

    def plain_name(self, name: str) -> str:
        """Returns the weight's name in BERT: whole models have a prefix, the oldest say gamma and beta in a norm."""
        assert self.like_bert is not None
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
        name = name.removeprefix(self.prefix)
        for pattern, bert in self.like_bert.renamed:
            name, count = re.subn(pattern, bert, name)
            if count:
                break
        return name


DENSE_IN_HEAD = (
    (r"^pooler\.", "unused.pooler."),  # of the encoder, which no head of the family reads
    (r"^classifier\.dense\.", "pooler.dense."),
    (r"^classifier\.out_proj\.", "classifier."),
)
"""The head of RoBERTa and ELECTRA has both products by its own name."""
ROBERTA = LikeBert(renamed=DENSE_IN_HEAD)
ELECTRA = LikeBert(renamed=DENSE_IN_HEAD, pooler="gelu")
DISTILBERT = LikeBert(
    renamed=(
        (r"^pre_classifier\.", "pooler.dense."),
        (r"^transformer\.layer\.(\d+)\.attention\.q_lin\.", r"encoder.layer.\1.attention.self.query."),
        (r"^transformer\.layer\.(\d+)\.attention\.k_lin\.", r"encoder.layer.\1.attention.self.key."),
        (r"^transformer\.layer\.(\d+)\.attention\.v_lin\.", r"encoder.layer.\1.attention.self.value."),
        (r"^transformer\.layer\.(\d+)\.attention\.out_lin\.", r"encoder.layer.\1.attention.output.dense."),
        (r"^transformer\.layer\.(\d+)\.sa_layer_norm\.", r"encoder.layer.\1.attention.output.LayerNorm."),
        (r"^transformer\.layer\.(\d+)\.ffn\.lin1\.", r"encoder.layer.\1.intermediate.dense."),
        (r"^transformer\.layer\.(\d+)\.ffn\.lin2\.", r"encoder.layer.\1.output.dense."),
        (r"^transformer\.layer\.(\d+)\.output_layer_norm\.", r"encoder.layer.\1.output.LayerNorm."),
    ),
    pooler="relu",
)

OF_ALBERT = r"^encoder\.albert_layer_groups\.(\d+)\.albert_layers\.0\."
ALBERT = LikeBert(
    renamed=(
        (r"^pooler\.(weight|bias)$", r"pooler.dense.\1"),
        (r"^encoder\.embedding_hidden_mapping_in\.", "embeddings_project."),
        (rf"{OF_ALBERT}attention\.(query|key|value)\.", r"encoder.layer.\1.attention.self.\2."),
        (rf"{OF_ALBERT}attention\.", r"encoder.layer.\1.attention.output."),
        (rf"{OF_ALBERT}ffn\.", r"encoder.layer.\1.intermediate.dense."),
        (rf"{OF_ALBERT}ffn_output\.", r"encoder.layer.\1.output.dense."),
        (rf"{OF_ALBERT}full_layer_layer_norm\.", r"encoder.layer.\1.output.LayerNorm."),
    )
)
MPNET = LikeBert(
    renamed=(
        *DENSE_IN_HEAD,
        (r"\.attention\.attn\.q\.", ".attention.self.query."),
        (r"\.attention\.attn\.k\.", ".attention.self.key."),
        (r"\.attention\.attn\.v\.", ".attention.self.value."),
        (r"\.attention\.attn\.o\.", ".attention.output.dense."),
        (r"\.attention\.LayerNorm\.", ".attention.output.LayerNorm."),
    )
)

NO_SPANS = ("question-answering",)
CONVOLUTIONS = "its layers are convolutions, and the quantiser takes products of matrices"


def _family(model_type: str, name: str, classes: str, prefix: str, **how: Any) -> tuple[str, Family]:
    return model_type, Family(model_type=model_type, name=name, classes=classes, prefix=f"{prefix}.", **how)


FAMILIES: dict[str, Family] = dict(
    (
        _family("bert", "BERT", "Bert", "bert", like_bert=LikeBert()),
        _family("roberta", "RoBERTa", "Roberta", "roberta", like_bert=ROBERTA, after_padding=True),
        _family("xlm-roberta", "XLM-RoBERTa", "XLMRoberta", "roberta", like_bert=ROBERTA, after_padding=True),
        _family("camembert", "CamemBERT", "Camembert", "roberta", like_bert=ROBERTA, after_padding=True),
        _family("distilbert", "DistilBERT", "DistilBert", "distilbert", like_bert=DISTILBERT),
        _family("electra", "ELECTRA", "Electra", "electra", like_bert=ELECTRA),
        _family("ernie", "ERNIE", "Ernie", "ernie", like_bert=LikeBert()),
        _family("data2vec-text", "Data2Vec", "Data2VecText", "data2vec_text", like_bert=ROBERTA, after_padding=True),
        _family("albert", "ALBERT", "Albert", "albert", like_bert=ALBERT),
        _family("mpnet", "MPNet", "MPNet", "mpnet", like_bert=MPNET, after_padding=True),
        _family("deberta", "DeBERTa", "Deberta", "deberta"),
        _family("deberta-v2", "DeBERTa-v2/v3", "DebertaV2", "deberta"),
        _family("modernbert", "ModernBERT", "ModernBert", "model"),
        _family("megatron-bert", "Megatron-BERT", "MegatronBert", "bert"),
        _family("rembert", "RemBERT", "RemBert", "rembert"),
        _family("roformer", "RoFormer", "RoFormer", "roformer"),
        _family("squeezebert", "SqueezeBERT", "SqueezeBert", "transformer", fp32_alone=CONVOLUTIONS),
        _family("mobilebert", "MobileBERT", "MobileBert", "mobilebert"),
        _family(
            "roberta-prelayernorm",
            "RoBERTa-PreLayerNorm",
            "RobertaPreLayerNorm",
            "roberta_prelayernorm",
            after_padding=True,
        ),
        _family("xlm-roberta-xl", "XLM-RoBERTa-XL", "XLMRobertaXL", "roberta", after_padding=True),
        _family("gte", "GTE", "Gte", "gte", lacks=NO_SPANS),
        _family("nomic_bert", "NomicBERT", "NomicBert", "nomic_bert", lacks=NO_SPANS),
        _family("eurobert", "EuroBERT", "EuroBert", "model", lacks=NO_SPANS),
    )
)
"""By config.json's `model_type`."""
NEIGHBOURS = "it mixes the padding into a text's answer, which then depends on what else is in its batch"
NOT_BUILT: dict[str, tuple[str, str]] = {
    "convbert": ("ConvBERT", NEIGHBOURS),
    "fnet": ("FNet", NEIGHBOURS),
    "nystromformer": ("Nyströmformer", "torch's exporter refuses its network"),
}
"""Families that were tried and are refused, by `model_type`: the name, and why."""


def family_of(config: Mapping[str, Any], file: Path) -> Family:
    """Returns the family of a config.json, which is `file`. Raises `UsageError` where it is none that is built.

    A file without a `model_type`, such as that of a separate head, is recognised by its class.
    """
    kind, classes = config.get("model_type"), _classes(config)
    if kind is None:
        for family in sorted(FAMILIES.values(), key=lambda each: -len(each.classes)):
            if any(name.startswith(family.classes) for name in classes):
                return family
    elif isinstance(kind, str) and kind in FAMILIES:
        return FAMILIES[kind]
    raise broken(file, _unknown(kind, classes))


def check_head(config: Mapping[str, Any], family: Family, task: str, file: Path) -> None:
    """Raises `UsageError` where the model has no head for the task."""
    got, allowed = config.get("architectures") or [], family.architectures(task)
    if set(allowed) & set(_classes(config)):
        return
    if reason := family.lacks_head(task):
        raise broken(file, f"model_type: got {json.dumps(family.model_type)}, but {reason}.")
    other = [each for each in HEADS if each != task and set(family.architectures(each)) & set(_classes(config))]
    hint = f" It can do {' or '.join(other)}: say so as model.task in workload.toml." if other else ""
    raise broken(file, f"architectures: got {json.dumps(got)}, allowed is {' or '.join(allowed)}.{hint}")


def _classes(config: Mapping[str, Any]) -> list[str]:
    named = config.get("architectures") or []
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def _unknown(kind: object, classes: list[str]) -> str:
    """Returns what to say of a family that is none of `FAMILIES`: why, or the nearest by its name and how to add it."""
    if isinstance(kind, str) and kind in NOT_BUILT:
        name, reason = NOT_BUILT[kind]
        return f"model_type: got {json.dumps(kind)}, but {name} is not built: {reason}. docs/families.md has the list."
    given = kind if isinstance(kind, str) else "".join(classes[:1])
    named = {name.lower(): each for each in FAMILIES.values() for name in (each.model_type, each.classes)}
    nearest = named[get_close_matches(given.lower(), named, n=1, cutoff=0.0)[0]]
    key, got = ("model_type", kind) if kind is not None else ("architectures", classes)
    names = ", ".join(family.name for family in FAMILIES.values())
    return (
        f"{key}: got {json.dumps(got)}, which is no family of encoders that is built. Allowed: {names}. By its name "
        f"{nearest.name} is the nearest. docs/families.md says how to add one."
    )
