"""WordPiece tokenizers in BERT's form: lower case, `[CLS] A [SEP] B [SEP]`, token types 0 and 1.

Learnt from a workload's own training texts. Every printable ASCII character is a piece of its own at the start of a
word and inside one, so no typo gives `[UNK]`. Accents are dropped; other characters are `[UNK]`.
"""

import json
import string
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD_ID = 0
ALPHANUMERICS = string.ascii_lowercase + string.digits
ALPHABET = sorted(ALPHANUMERICS + string.punctuation)


def train_word_pieces(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Learns the pieces. The same texts in the same order give the same tokenizer."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNK, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary_size, special_tokens=SPECIAL_TOKENS, initial_alphabet=ALPHABET, show_progress=False
    )
    tokenizer.train_from_iterator(_with_inner_characters(texts), trainer)
    ids = {token: at for at, token in enumerate(SPECIAL_TOKENS)}
    tokenizer.post_processor = processors.BertProcessing((SEP, ids[SEP]), (CLS, ids[CLS]))
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, max_tokens: int) -> None:
    """Writes `tokenizer.json`, complete by itself, and `tokenizer_config.json` for `AutoTokenizer`."""
    tokenizer.no_padding()
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "unk_token": UNK,
        "cls_token": CLS,
        "sep_token": SEP,
        "mask_token": MASK,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": max_tokens,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def _with_inner_characters(texts: Iterable[str]) -> Iterable[str]:
    """Yields a word that has every letter and digit inside it, then the texts."""
    yield "a" + ALPHANUMERICS
    yield from texts
