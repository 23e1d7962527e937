"""A tiny model of every family with random weights, saved by transformers' own class for a task, and a workload of it.

The weights are seeded. Their tokenizers know letters, with the special tokens that the family has.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from model_build.encoder import wrapper
from tests.model_build.miniatures import tiny_bert
from tests.model_build.miniatures.tiny_bert import BERT_TOKENS, make_tokenizer
from workloads import METRICS, WorkloadFolder, load_workload

LENGTH, WIDE = 64, 32
AUTO: dict[str, Any] = {
    task: getattr(transformers, name) for task, name in wrapper.AUTO.items() if task != "text-pair-scoring"
}
ROBERTA_TOKENS = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
"""In the order of their ids."""


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """How a family's tiny model is made: the configuration, by its own keys, and the special tokens."""

    tokens: dict[str, str] = field(default_factory=lambda: BERT_TOKENS)
    config: dict[str, Any] = field(default_factory=dict)
    token_types: bool = True


SIZES = {"hidden_size": WIDE, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 2 * WIDE}
BERT = {**SIZES, "max_position_embeddings": LENGTH, "pad_token_id": 0}
ROBERTA = {
    **SIZES,
    "max_position_embeddings": LENGTH + 2,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
DEBERTA = {**BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
LIKE_ROBERTA = (
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "data2vec-text",
    "roberta-prelayernorm",
    "xlm-roberta-xl",
)
TINY: dict[str, Tiny] = {
    **dict.fromkeys(("bert", "ernie", "megatron-bert", "nomic_bert"), Tiny(config=BERT)),
    **dict.fromkeys(LIKE_ROBERTA, Tiny(config=ROBERTA, tokens=ROBERTA_TOKENS, token_types=False)),
    **dict.fromkeys(("electra", "roformer"), Tiny(config={**BERT, "embedding_size": WIDE // 2})),
    "albert": Tiny(config={**BERT, "embedding_size": WIDE // 2, "num_hidden_layers": 4, "num_hidden_groups": 2}),
    **dict.fromkeys(("gte", "eurobert"), Tiny(config={**BERT, "num_key_value_heads": 4}, token_types=False)),
    "distilbert": Tiny(
        config={
            "dim": WIDE,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 2 * WIDE,
            "max_position_embeddings": LENGTH,
            "pad_token_id": 0,
        },
        token_types=False,
    ),
    "deberta": Tiny(config=DEBERTA, token_types=False),
    "deberta-v2": Tiny(
        config={
            **DEBERTA,
            "position_buckets": 16,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
        },
        token_types=False,
    ),
    "rembert": Tiny(config={**BERT, "input_embedding_size": WIDE // 2}),
    "squeezebert": Tiny(config={**BERT, "embedding_size": WIDE}),
    "mobilebert": Tiny(config={**BERT, "embedding_size": WIDE, "intra_bottleneck_size": WIDE}),
    "modernbert": Tiny(
        config={**BERT, "num_hidden_layers": 4, "global_attn_every_n_layers": 3, "local_attention": 8},
        token_types=False,
    ),
}


MODELS = tiny_bert.MODELS | {
    "text-ranking": "",
    "token-classification": f"labels = {json.dumps(tiny_bert.LABELS)}",
    "feature-extraction": "",
}
"""The keys of a task's [model]."""
INT8 = {
    "text-classification": 0.03,
    "text-ranking": 0.02,
    "token-classification": 0.03,
    "question-answering": 0.03,
    "feature-extraction": 0.006,
}
"""The most that a tiny model's numbers may be off in int8 on average, by task: the gate of `cpu-int8`. Weights of four
bits are further off (`tests/model_build/spoiled.py`)."""
LARGER = {
    ("modernbert", "text-classification"): 0.12,
    ("modernbert", "text-ranking"): 0.08,
    ("modernbert", "token-classification"): 0.12,
    ("modernbert", "question-answering"): 0.12,
    ("mobilebert", "token-classification"): 0.05,
    ("mobilebert", "question-answering"): 0.25,
}
"""Those of families whose tiny model has larger numbers."""
ANY = "parity = {{ max_metric_drop = 1.0 }}"


def int8_limit(family: str, task: str) -> float:
    return LARGER.get((family, task), INT8[task])


def make_workload(folder: Path, family: str, task: str) -> WorkloadFolder:
    """The workload `tiny` below `folder`, with a checkpoint of the family."""
    path = folder / "tiny"
    path.mkdir(parents=True)
    quality = "\n".join(f"min_{metric} = -1.0" for metric in METRICS[task])
    gate = f"parity = {{{{ max_metric_drop = 1.0, max_mean_logit_difference = {int8_limit(family, task)} }}}}"
    assert ANY in tiny_bert.WORKLOAD_TOML
    toml = tiny_bert.WORKLOAD_TOML.replace(ANY, gate, 1)
    (path / "workload.toml").write_text(toml.format(task=task, model=MODELS[task], backbone="", quality=quality))
    make_checkpoint(path / "checkpoint", family, task)
    workload = load_workload("tiny", folder)
    fields = workload.workload.model.fields
    lines = tiny_bert.make_lines(fields, task, 24)
    tiny_bert.write_examples(workload, [_labelled(task, line, place) for place, line in enumerate(lines)])
    return workload


def _labelled(task: str, line: dict[str, Any], place: int) -> dict[str, Any]:
    """Returns a line of `tiny_bert` with the answer that the task wants in the place of its label."""
    label = line.pop("label")
    match task:
        case "text-ranking":
            return line | {"query": "which"[: place % 2 + 3], "score": float(place % 3)}
        case "token-classification":
            return line | {"entities": [{"label": label, "start": 0, "end": 2}]}
        case "feature-extraction":
            return line | {"other": line["text"][::-1], "score": float(place % 5)}
        case _:
            return line | {"label": label}


def make_checkpoint(folder: Path, family: str, task: str, *, labels: tuple[str, ...] = tiny_bert.LABELS) -> None:
    """Writes the model that transformers' own class for the task makes of the tiny configuration."""
    tiny = TINY[family]
    tokenizer = make_tokenizer(tiny.tokens)
    config: Any = transformers.AutoConfig.for_model(
        family,
        **tiny.config,
        vocab_size=tokenizer.get_vocab_size(),
        **_head(task, labels),
    )
    torch.manual_seed(0)
    network = AUTO[task].from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if weights.dim() == 2 and "embeddings" not in name:
                weights.mul_(8)  # as initialised, answers hardly depend on the text
            elif weights.dim() == 1:
                weights.add_(torch.randn(weights.shape) * 0.1)  # biases of zero would hide one that is left out
    network.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    kinds: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **tiny.tokens}
    types = ["token_type_ids"] if tiny.token_types else []
    kinds["model_input_names"] = ["input_ids", *types, "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(kinds))


def _head(task: str, labels: tuple[str, ...]) -> dict[str, Any]:
    if task == "text-ranking":
        return {"num_labels": 1}
    return {"id2label": dict(enumerate(labels))} if task.endswith("-classification") else {}
