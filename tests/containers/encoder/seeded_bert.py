"""Weights that are the same under every version of torch and transformers, and the questions asked of them."""

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from transformers import BertConfig, BertModel

from tests.model_build.miniatures.tiny_bert import make_tokenizer

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}

WHOLE, WINDOW, STRIDE, LONGEST_ANSWER = 160, 32, 8, 5
QUESTIONS = (
    ("what size", "socks in size xl or xxl"),
    ("which colour", "a red shoe with blue socks and one more shoe in red or in green, and a lamp for the night"),
    ("who sells it", "the shop at the corner sells lamps, and the one in the mall sells shoes and socks for winter"),
    ("how many", "six"),
)


def seed(network: Any) -> Any:
    """Gives every weight numbers that depend only on its name."""
    with torch.no_grad():
        for name, weight in network.named_parameters():
            drawn = np.random.RandomState(crc32(name.encode())).normal(size=tuple(weight.shape))
            drawn = drawn if weight.dim() == 2 else 0.1 * drawn + float("LayerNorm.weight" in name)
            weight.copy_(torch.from_numpy(drawn.astype(np.float32)))
    return network.eval()


def save_encoder(folder: Path) -> None:
    """Writes a BERT without a head, and its tokenizer, as transformers saves them."""
    tokenizer = make_tokenizer()
    config: Any = BertConfig
    network: Any = BertModel
    shape = config(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=WHOLE, pad_token_id=0, **SIZES)
    seed(network(shape, add_pooling_layer=False)).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    taken = ["input_ids", "token_type_ids", "attention_mask"]
    kinds = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": taken, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(kinds), "utf-8")
