"""Small checkpoints as a team would bring them: seeded random weights that transformers saved, a tokenizer of letters.

Their answers are nonsense, but the same nonsense every time, and they depend on the text.
"""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
}
SENTIMENTS = {0: "negative", 1: "neutral", 2: "positive"}
TAGS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}


def _bert_tokenizer() -> tuple[Tokenizer, dict[str, str]]:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *LETTERS, *"0123456789.,?", *(f"##{letter}" for letter in LETTERS)]
    tokenizer = Tokenizer(models.WordPiece({piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(special)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return tokenizer, names | {"tokenizer_class": "BertTokenizer"}  # which tells segments apart


def _roberta_tokenizer() -> tuple[Tokenizer, dict[str, str]]:
    """Returns bytes as tokens, between <s> and </s>: RoBERTa's and BART's."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer.add_special_tokens(special)
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return tokenizer, names | {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}


def _marian_tokenizer() -> tuple[Tokenizer, dict[str, str]]:
    """Returns letters as pieces, the end-of-sequence token behind every text and the padding last."""
    vocabulary = {token: i for i, token in enumerate(["</s>", "<unk>", "▁", *LETTERS, *"0123456789.,?", "<pad>"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    tokenizer.add_special_tokens(["</s>", "<unk>", "<pad>"])
    return tokenizer, {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def bert_classifier(folder: Path, **changes: Any) -> None:
    _encoder(folder, "Bert", "ForSequenceClassification", {"id2label": SENTIMENTS} | changes)


def bert_reader(folder: Path, **changes: Any) -> None:
    _encoder(folder, "Bert", "ForQuestionAnswering", changes)


def roberta_classifier(folder: Path, **changes: Any) -> None:
    _encoder(folder, "Roberta", "ForSequenceClassification", {"id2label": SENTIMENTS} | changes)


def encoder(folder: Path, **changes: Any) -> None:
    _encoder(folder, "Bert", "Model", changes)


def embedding(folder: Path, **changes: Any) -> None:
    """Writes a BERT as sentence-transformers saves one, which pools by the mean and normalises."""
    encoder(folder, **changes)
    kinds = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 48, "do_lower_case": False}))


def tagger(folder: Path, **changes: Any) -> None:
    _encoder(folder, "Bert", "ForTokenClassification", {"id2label": TAGS} | changes)


def reranker(folder: Path, **changes: Any) -> None:
    """Writes a cross-encoder as sentence-transformers saves one: one output."""
    own = {"id2label": {0: "LABEL_0"}, "sentence_transformers": {"version": "5.0.0"}}
    _encoder(folder, "Bert", "ForSequenceClassification", own | changes)


def t5(folder: Path, **changes: Any) -> None:
    tokenizer, names = _marian_tokenizer()
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8}
    ids = {"decoder_start_token_id": tokenizer.token_to_id("<pad>"), "pad_token_id": tokenizer.token_to_id("<pad>")}
    _generator(folder, "T5", "ForConditionalGeneration", tokenizer, names, sizes | ids | {"eos_token_id": 0} | changes)


def bart(folder: Path, **changes: Any) -> None:
    tokenizer, names = _roberta_tokenizer()
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    _generator(folder, "Bart", "ForConditionalGeneration", tokenizer, names, _seq2seq() | ids | changes)


def marian(folder: Path, **changes: Any) -> None:
    tokenizer, names = _marian_tokenizer()
    pad = tokenizer.token_to_id("<pad>")
    ids = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad, "forced_eos_token_id": 0}
    _generator(folder, "Marian", "MTModel", tokenizer, names, _seq2seq() | ids | changes)


def _seq2seq() -> dict[str, Any]:
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    return layers | {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64}


def _encoder(folder: Path, family: str, head: str, changes: dict[str, Any]) -> None:
    tokenizer, names = _roberta_tokenizer() if family == "Roberta" else _bert_tokenizer()
    pad = tokenizer.token_to_id(names["pad_token"])
    _save(folder, family, head, tokenizer, names, SMALL | {"pad_token_id": pad} | changes, embeddings="embeddings")


def _generator(
    folder: Path, family: str, head: str, tokenizer: Tokenizer, names: dict[str, str], config: dict[str, Any]
) -> None:
    _save(folder, family, head, tokenizer, names, config, embeddings="embed")


def _save(
    folder: Path,
    family: str,
    head: str,
    tokenizer: Tokenizer,
    names: dict[str, str],
    config: dict[str, Any],
    embeddings: str,
) -> None:
    known: Any = getattr(transformers, f"{family}Config")(vocab_size=tokenizer.get_vocab_size(), **config)
    torch.manual_seed(0)
    network = getattr(transformers, f"{family}{head}")(known)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if weights.dim() == 2 and embeddings not in name and "shared" not in name:
                weights.mul_(8)  # as initialised, answers hardly depend on the text
    folder.mkdir(parents=True)
    network.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))


KINDS: dict[str, Callable[..., None]] = {
    "bert_classifier": bert_classifier,
    "bert_reader": bert_reader,
    "roberta_classifier": roberta_classifier,
    "embedding": embedding,
    "tagger": tagger,
    "reranker": reranker,
    "t5": t5,
    "bart": bart,
    "marian": marian,
}


def texts(count: int, letters: int = 24, seed: int = 0) -> list[str]:
    """Returns texts of words of up to five letters, of at most that many letters in all."""
    rng = Random(seed)
    drawn = ("".join(rng.choices(LETTERS, k=rng.randint(4, letters))) for _ in range(count))
    return [" ".join(text[start : start + 5] for start in range(0, len(text), 5)) for text in drawn]
