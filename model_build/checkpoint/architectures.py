"""Writes checkpoints of published architectures with random weights and a made-up tokenizer, without a hub.

Dimensions are those of the models' own config.json on the Hugging Face hub. The same seed gives the same weights. Their
answers are nonsense. `bert_weights` also has the names and shapes that a BERT's files are checked against.
"""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import product
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads import Model, RandomWeights, TextToText, UsageError

T5: dict[str, dict[str, int]] = {
    "t5-small": {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "t5-base": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
}
T5_VOCABULARY = 32128
BERT: dict[str, dict[str, int]] = {
    "bert-base-uncased": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
    "bert-large-uncased": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16},
}
BERT_VOCABULARY = 30522
POSITIONS = 512

Shapes = Iterator[tuple[str, tuple[int, ...], float]]
"""Names and shapes of weights, with the standard deviation to draw them with; 1 dimension and 0 is a norm's scale."""
Draw = Callable[[], dict[str, NDArray[Any]]]


def write_random(source: RandomWeights, model: Model, cache: Path) -> Path:
    """Returns a checkpoint folder below `cache`, made once for each config.json, which has the labels, and seed.

    Raises `UsageError` when the architecture cannot do the task, or cannot be divided so.
    """
    config, draw = _t5(source) if isinstance(model, TextToText) else _bert(source, model)
    digest = hashlib.sha256(json.dumps([config, source.seed]).encode()).hexdigest()[:12]
    size = "" if source.shrink == 1 else f"-{source.shrink}th"
    folder = cache / f"{source.architecture}{size}-{model.task}-{digest}"
    if (folder / "config.json").exists():
        return folder
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(draw(), folder / "model.safetensors", metadata={"format": "pt"})
    _write_tokenizer(folder, config)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")  # last: now it is whole
    return folder


def _divided(
    source: RandomWeights, sizes: Mapping[str, Mapping[str, int]], task: str, kept: Collection[str] = ()
) -> dict[str, int]:
    """Returns the architecture's dimensions, divided except those `kept`. Raises `UsageError`."""
    if (size := sizes.get(source.architecture)) is None:
        raise UsageError(
            f"model.checkpoint.architecture: '{source.architecture}' cannot do {task}. Allowed for it: "
            f"{', '.join(sizes)}."
        )
    if odd := [f"{key} {value}" for key, value in size.items() if key not in kept and value % source.shrink]:
        raise UsageError(
            f"model.checkpoint.shrink: {source.shrink} does not divide {source.architecture}'s {', '.join(odd)}."
        )
    return {key: value if key in kept else value // source.shrink for key, value in size.items()}


def _t5(source: RandomWeights) -> tuple[dict[str, Any], Draw]:
    size = _divided(source, T5, "text2text-generation", kept=("d_kv",))
    config = {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "vocab_size": T5_VOCABULARY,
        "num_decoder_layers": size["num_layers"],
        "feed_forward_proj": "relu",
        "relative_attention_num_buckets": 32,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": True,
        **size,
    }

    def draw() -> dict[str, NDArray[Any]]:
        """Draws as transformers initialises a T5, which keeps activations of order one."""
        from transformers import T5Config, T5ForConditionalGeneration, set_seed

        set_seed(source.seed)
        kind: Any = T5Config
        weights = T5ForConditionalGeneration(kind(**config)).state_dict()
        tied = ("embed_tokens.weight", "lm_head.weight")
        return {name: tensor.numpy() for name, tensor in weights.items() if not name.endswith(tied)}

    return config, draw


def _bert(source: RandomWeights, model: Model) -> tuple[dict[str, Any], Draw]:
    size = _divided(source, BERT, model.task)
    labels: tuple[str, ...] = () if isinstance(model, TextToText) else model.label_names
    if model.task in ("text-classification", "text-ranking"):
        labels = labels or ("LABEL_0",)  # the name that transformers gives to the one number of a head
    architecture = {
        "text-classification": "BertForSequenceClassification",
        "text-pair-scoring": "BertForPairScoring",
        "text-ranking": "BertForSequenceClassification",
        "token-classification": "BertForTokenClassification",
        "feature-extraction": "BertModel",
        "question-answering": "BertForQuestionAnswering",
    }[model.task]
    config = {
        "architectures": [architecture],
        "model_type": "bert",
        "vocab_size": BERT_VOCABULARY,
        "intermediate_size": 4 * size["hidden_size"],
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        **(named_labels(labels) if labels else {}),
        **size,
    }

    def draw() -> dict[str, NDArray[Any]]:
        generator = np.random.default_rng(source.seed)
        return {
            name: generator.standard_normal(shape, np.float32) * np.float32(deviation)
            if len(shape) > 1
            else np.full(shape, 0.0 if deviation else 1.0, np.float32)
            for name, shape, deviation in bert_weights(config, model.task, len(labels))
        }

    return config, draw


def named_labels(labels: tuple[str, ...]) -> dict[str, Any]:
    """Returns config.json's keys for the labels of a head's outputs."""
    numbered = {str(index): label for index, label in enumerate(labels)}
    return {"id2label": numbered, "label2id": {label: index for index, label in enumerate(labels)}}


def bert_weights(config: Mapping[str, Any], task: str, labels: int) -> Shapes:
    """Yields BERT's weights for a config.json: deviation 0.02, norms one, biases zero.

    A family may have no token types (0), narrower embeddings, groups of equal layers, and a bias for distances.
    """
    wide, inner = config["hidden_size"], config["intermediate_size"]
    embedded = config.get("embedding_size", wide)

    def linear(name: str, out: int, into: int) -> Shapes:
        yield f"{name}.weight", (out, into), 0.02
        yield f"{name}.bias", (out,), 0.02

    def norm(name: str, size: int = wide) -> Shapes:
        yield f"{name}.weight", (size,), 0
        yield f"{name}.bias", (size,), 0.02

    rows = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    for name, key in rows.items():
        if config[key]:
            yield f"bert.embeddings.{name}_embeddings.weight", (config[key], embedded), 0.02
    yield from norm("bert.embeddings.LayerNorm", embedded)
    groups = config.get("num_hidden_groups")
    if embedded != wide or groups:
        yield from linear("bert.embeddings_project", wide, embedded)
    if buckets := config.get("relative_attention_num_buckets"):
        yield "bert.encoder.relative_attention_bias.weight", (buckets, config["num_attention_heads"]), 0.02
    for index in range(groups or config["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{index}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            yield from linear(f"{layer}.{part}", wide, wide)
        yield from norm(f"{layer}.attention.output.LayerNorm")
        yield from linear(f"{layer}.intermediate.dense", inner, wide)
        yield from linear(f"{layer}.output.dense", wide, inner)
        yield from norm(f"{layer}.output.LayerNorm")
    if task == "question-answering":
        yield from linear("qa_outputs", 2, wide)
    elif task == "token-classification":
        yield from linear("classifier", labels, wide)
    elif task != "feature-extraction":
        yield from linear("bert.pooler.dense", wide, wide)
        yield from linear("classifier", labels, wide)
    if task == "text-pair-scoring":
        yield from linear("scorer", 1, wide)


def _write_tokenizer(folder: Path, config: dict[str, Any]) -> None:
    """Writes a tokenizer over made-up pieces of one to three letters, with the published model's special tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    kind: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if config["model_type"] == "t5":
        pieces = ["▁", *(prefix + piece for prefix in ("▁", "") for piece in _pieces(T5_VOCABULARY // 2))]
        scored = [(piece, -math.log(rank + 2)) for rank, piece in enumerate(pieces)]
        special = {"<pad>": 0, "</s>": 1, "<unk>": 2}
        ranked = [*((token, 0.0) for token in special), *scored][:T5_VOCABULARY]
        tokenizer = Tokenizer(models.Unigram(ranked, unk_id=2))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
        tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
        kind |= {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    else:
        special = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
        free = (index for index in range(BERT_VOCABULARY) if index not in special.values())
        pieces = [prefix + piece for prefix in ("", "##") for piece in _pieces(BERT_VOCABULARY // 2)]
        vocabulary = special | dict(zip(pieces, free, strict=False))
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
        kind |= {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        kind["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer.add_special_tokens(list(special))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(kind, indent=2) + "\n", "utf-8")


def _pieces(count: int) -> list[str]:
    """Returns single characters first, so that every text of them can be written, then pairs and triples of letters."""
    single = [*ascii_lowercase, *digits, *"!\"#$%&'()*+,-./:;<=>?@[]_"]
    longer = ("".join(letters) for length in (2, 3) for letters in product(ascii_lowercase, repeat=length))
    return [*single, *longer][:count]
