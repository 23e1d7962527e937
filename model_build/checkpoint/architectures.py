"""Names and shapes of the weights of T5s and BERTs; and published ones at true size with random weights, without a hub.

A checkpoint's files are held to the names and shapes. For a workload that asks for random weights, an architecture is
written with them and a made-up tokenizer. Dimensions are those of the models' own config.json on the Hugging Face hub.
Weights are drawn so that activations stay of order one; the answers are nonsense, but the same nonsense every time.
"""

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping
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
KEPT = ("d_kv",)
"""A T5's width of an attention head, which is no part of its width and stays."""
BERT: dict[str, dict[str, int]] = {
    "bert-base-uncased": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
    "bert-large-uncased": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16},
}
BERT_VOCABULARY = 30522
POSITIONS = 512

Shapes = Iterator[tuple[str, tuple[int, ...], float]]
"""Names and shapes of weights, with the standard deviation to draw them with; 1 dimension and 0 is a norm's scale."""


def write_random(source: RandomWeights, model: Model, cache: Path) -> Path:
    """Returns a checkpoint folder below `cache`, made once for each config.json, which has the labels, and seed.

    Raises `UsageError` when the architecture cannot do the task, or cannot be divided so.
    """
    config, shapes = _t5(source) if isinstance(model, TextToText) else _bert(source, model)
    digest = hashlib.sha256(json.dumps([config, source.seed]).encode()).hexdigest()[:12]
    size = "" if source.shrink == 1 else f"-{source.shrink}th"
    folder = cache / f"{source.architecture}{size}-{model.task}-{digest}"
    if (folder / "config.json").exists():
        return folder
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(source.seed)
    weights = {name: _draw(generator, shape, deviation) for name, shape, deviation in shapes}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write_tokenizer(folder, config)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")  # last: now it is whole
    return folder


def _wrong_architecture(architecture: str, task: str, allowed: list[str]) -> UsageError:
    return UsageError(
        f"model.checkpoint.architecture: '{architecture}' cannot do {task}. Allowed for it: {', '.join(allowed)}."
    )


def _shrunk(source: RandomWeights, size: Mapping[str, int], kept: Collection[str] = ()) -> dict[str, int]:
    """Divides the dimensions but those `kept`. Raises `UsageError` where one cannot be divided."""
    if odd := {key: value for key, value in size.items() if key not in kept and value % source.shrink}:
        listed = ", ".join(f"{key} {value}" for key, value in odd.items())
        raise UsageError(f"model.checkpoint.shrink: {source.shrink} does not divide {source.architecture}'s {listed}.")
    return {key: value if key in kept else value // source.shrink for key, value in size.items()}


def _draw(generator: np.random.Generator, shape: tuple[int, ...], deviation: float) -> NDArray[np.float32]:
    if len(shape) == 1:
        return np.full(shape, 0.0 if deviation else 1.0, np.float32)
    return generator.standard_normal(shape, np.float32) * np.float32(deviation)


def _t5(source: RandomWeights) -> tuple[dict[str, Any], Shapes]:
    if (size := T5.get(source.architecture)) is None:
        raise _wrong_architecture(source.architecture, "text2text-generation", list(T5))
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
        **_shrunk(source, size, KEPT),
    }
    return config, t5_weights(config)


def t5_weights(config: Mapping[str, Any]) -> Shapes:
    """Yields T5's weights for a config.json. Deviations are Mesh TensorFlow's, which keep activations of order one."""
    wide, d_kv, d_ff, heads = (config[key] for key in ("d_model", "d_kv", "d_ff", "num_heads"))
    inner = heads * d_kv
    into = ("wi_0", "wi_1") if config["feed_forward_proj"].startswith("gated-") else ("wi",)
    yield "shared.weight", (config["vocab_size"], wide), 1.0
    for stack, blocks, attentions in (
        ("encoder", config["num_layers"], ["SelfAttention"]),
        ("decoder", config["num_decoder_layers"], ["SelfAttention", "EncDecAttention"]),
    ):
        for block in range(blocks):
            layers = f"{stack}.block.{block}.layer"
            for layer, attention in enumerate(attentions):
                prefix = f"{layers}.{layer}.{attention}"
                yield f"{prefix}.q.weight", (inner, wide), (wide * d_kv) ** -0.5
                yield f"{prefix}.k.weight", (inner, wide), wide**-0.5
                yield f"{prefix}.v.weight", (inner, wide), wide**-0.5
                yield f"{prefix}.o.weight", (wide, inner), inner**-0.5
                if layer == 0 and (block == 0 or config["model_type"] == "umt5"):
                    yield (
                        f"{prefix}.relative_attention_bias.weight",
                        (config["relative_attention_num_buckets"], heads),
                        wide**-0.5,
                    )
                yield f"{layers}.{layer}.layer_norm.weight", (wide,), 0
            dense = f"{layers}.{len(attentions)}"
            for name in into:
                yield f"{dense}.DenseReluDense.{name}.weight", (d_ff, wide), wide**-0.5
            yield f"{dense}.DenseReluDense.wo.weight", (wide, d_ff), d_ff**-0.5
            yield f"{dense}.layer_norm.weight", (wide,), 0
        yield f"{stack}.final_layer_norm.weight", (wide,), 0
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], wide), wide**-0.5


def _bert(source: RandomWeights, model: Model) -> tuple[dict[str, Any], Shapes]:
    if (published := BERT.get(source.architecture)) is None:
        raise _wrong_architecture(source.architecture, model.task, list(BERT))
    size = _shrunk(source, published)
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
        **({"id2label": {str(index): label for index, label in enumerate(labels)}} if labels else {}),
        **({"label2id": {label: index for index, label in enumerate(labels)}} if labels else {}),
        **size,
    }
    return config, bert_weights(config, model.task, len(labels))


def bert_weights(config: Mapping[str, Any], task: str, labels: int) -> Shapes:
    """Yields BERT's weights for a config.json, with its own initialisation: deviation 0.02, norms one, biases zero.

    A family may have no token types (0), and embeddings of another width than its layers.
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
    if embedded != wide:
        yield from linear("bert.embeddings_project", wide, embedded)
    for index in range(config["num_hidden_layers"]):
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
    t5 = config["model_type"] == "t5"
    tokenizer = _t5_tokenizer() if t5 else _bert_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    special = (
        {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        if t5
        else {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    )
    kind: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    if not t5:
        kind["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(kind, indent=2) + "\n", "utf-8")


def _bert_tokenizer() -> Any:
    """Returns WordPiece over made-up pieces of one to three letters, with the special tokens of bert-base-uncased."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
    free = (index for index in range(BERT_VOCABULARY) if index not in special.values())
    pieces = [prefix + piece for prefix in ("", "##") for piece in _pieces(BERT_VOCABULARY // 2)]
    vocabulary = special | dict(zip(pieces, free, strict=False))
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def _t5_tokenizer() -> Any:
    """Returns Unigram over made-up pieces, with the special tokens of t5-small."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    pieces = ["▁", *(prefix + piece for prefix in ("▁", "") for piece in _pieces(T5_VOCABULARY // 2))]
    scored = [(piece, -math.log(rank + 2)) for rank, piece in enumerate(pieces)]
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    tokenizer = Tokenizer(models.Unigram([*special, *scored][:T5_VOCABULARY], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    return tokenizer


def _pieces(count: int) -> list[str]:
    """Returns single characters first, so that every text of them can be written, then pairs and triples of letters."""
    single = [*ascii_lowercase, *digits, *"!\"#$%&'()*+,-./:;<=>?@[]_"]
    longer = ("".join(letters) for length in (2, 3) for letters in product(ascii_lowercase, repeat=length))
    return [*single, *longer][:count]
