"""A tiny T5 with random weights, its tokenizer and a whole workload folder around it: real files, made in a second.

Its answers are nonsense, but the same nonsense every time, and some of them end early.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import T5Config, T5ForConditionalGeneration

from containers.text2text.settings import Settings
from workloads import WorkloadFolder, load_workload

WORKLOAD_TOML = Path(__file__).with_suffix(".toml").read_text("utf-8")
# Random weights never say </s>; a second end-of-sequence token, which they like, lets rows end at different steps.
LIKELY_TOKEN = 25
LETTERS = "abcdefghijklmnopqrstuvwxyz"

SIZES = {
    "vocab_size": 4 + len(LETTERS),
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
}
SETTINGS = Settings(
    max_input_tokens=24,
    max_output_tokens=12,
    decoder_start_token_id=0,
    eos_token_ids=(1, LIKELY_TOKEN),
    pad_token_id=0,
    threads=1,
)
"""How its graphs are decoded."""


def make_checkpoint(folder: Path, *, gated: bool = False, seed: int = 0) -> None:
    """Writes a checkpoint as `save_pretrained` does."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(make_tokenizer(), folder)
    torch.manual_seed(seed)
    make_config: Any = T5Config
    model = T5ForConditionalGeneration(
        make_config(
            **SIZES,
            feed_forward_proj="gated-gelu" if gated else "relu",
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=[1, LIKELY_TOKEN],
        )
    )
    with torch.no_grad():
        # As initialised, a tied model echoes its last token and hardly attends. These weights make it look at the
        # source, its own past and their positions, so that a wrong cache, mask or bias changes its answers.
        for name, weights in model.named_parameters():
            if "relative_attention_bias" in name:
                weights.normal_(0, 2)
            elif name.endswith((".q.weight", ".o.weight", ".wo.weight")):
                weights.mul_(5)
    model.save_pretrained(folder)


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json and a tokenizer_config.json that names its special tokens."""
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def make_tokenizer() -> Tokenizer:
    """Returns one piece per letter, and the end-of-sequence token behind every text."""
    vocabulary = {token: i for i, token in enumerate(["<pad>", "</s>", "<unk>", "▁", *LETTERS])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    # A cut that serving must not obey.
    tokenizer.enable_truncation(8)
    return tokenizer


def make_texts(count: int, seed: int = 0) -> list[str]:
    rng = Random(seed)
    return ["".join(rng.choices(LETTERS, k=rng.randint(1, 20))) for _ in range(count)]


def make_workload(folder: Path, toml: str = WORKLOAD_TOML, *, gated: bool = False) -> WorkloadFolder:
    """`folder`/tiny with all its files, loaded."""
    workload = folder / "tiny"
    make_checkpoint(workload / "checkpoint", gated=gated)
    (workload / "workload.toml").write_text(toml)
    texts = make_texts(40)
    write_rows(workload, [(text, text if i % 4 == 0 else text[::-1]) for i, text in enumerate(texts)])
    return load_workload("tiny", folder)


def write_rows(workload: Path, pairs: list[tuple[str, str]]) -> None:
    """Writes evaluation.jsonl with the pairs of texts and labels, and payloads.jsonl with the texts."""
    rows = [{"text": text, "label": label} for text, label in pairs]
    (workload / "evaluation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (workload / "payloads.jsonl").write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in rows))
