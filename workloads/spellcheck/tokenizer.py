"""The model's own tokenizer: byte-pair pieces learnt from the training queries, with T5's special ids.

Pieces start with `▁` where a word starts, as in T5. Every printable ASCII character that is not upper case
is a piece of its own, so no typo gives `<unk>`; upper case is lowered. Decoding gives the lower-cased text
back exactly, spaces included, but for one before the first word. Other characters are `<unk>`.
"""

import itertools
import json
import string
from pathlib import Path
from random import Random

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from workloads.spellcheck.pairs import training_pairs

PAD, EOS, UNK = "<pad>", "</s>", "<unk>"
SPECIAL_TOKENS = [PAD, EOS, UNK]
ALPHABET = "▁" + "".join(sorted(set(string.printable.strip().lower())))
CORPUS_PAIRS = 20_000
MAX_TOKENS = 64


def train_tokenizer(seed: int, vocabulary_size: int) -> Tokenizer:
    """Learns the pieces from misspelt and clean training queries alike."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNK))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=list(ALPHABET),
        show_progress=False,
    )
    pairs = itertools.islice(training_pairs(Random(seed)), CORPUS_PAIRS)
    tokenizer.train_from_iterator((text for pair in pairs for text in (pair.text, pair.label)), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}",
        pair=f"$A {EOS} $B {EOS}",
        special_tokens=[(EOS, tokenizer.token_to_id(EOS))],
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes `tokenizer.json`, complete by itself, and `tokenizer_config.json` for `AutoTokenizer`."""
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": EOS,
        "unk_token": UNK,
        "model_max_length": MAX_TOKENS,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
