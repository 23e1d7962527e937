"""Tiny encoder–decoders of every family with random weights, as `save_pretrained` writes them: made in no time.

As the tiny T5's, their answers are nonsense that depends on the source, the past and the positions, and ends at
different lengths by a second end-of-sequence token that they like. Their weights are so large that transformers' own
logits, of up to 13, are 0.002 off in fp32 what they are in fp64.
"""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

from tests.model_build.miniatures.tiny_t5 import LETTERS, LIKELY_TOKEN, make_texts, make_tokenizer
from workloads import WorkloadFolder, load_workload

BARTS: dict[str, tuple[Any, Any]] = {
    "bart": (BartConfig, BartForConditionalGeneration),
    "mbart": (MBartConfig, MBartForConditionalGeneration),
    "marian": (MarianConfig, MarianMTModel),
    "pegasus": (PegasusConfig, PegasusForConditionalGeneration),
    "m2m_100": (M2M100Config, M2M100ForConditionalGeneration),
}
T5S: dict[str, tuple[Any, Any]] = {
    "t5-v1.1": (T5Config, T5ForConditionalGeneration),
    "mt5": (MT5Config, MT5ForConditionalGeneration),
    "umt5": (UMT5Config, UMT5ForConditionalGeneration),
}
FAMILIES = (*BARTS, *T5S)
LIKELY = {"bart": 9, "mbart": 9, "marian": 13, "pegasus": 21, "m2m_100": 16}
"""The second end-of-sequence token, which some of a family's answers have; a T5's is `LIKELY_TOKEN`."""
VOCABULARY = 4 + len(LETTERS)
SOURCE, ANSWER = 24, 12  # tokens


def ends(kind: str) -> tuple[int, ...]:
    """Returns the end-of-sequence tokens."""
    return 1, LIKELY.get(kind, LIKELY_TOKEN)


def start(kind: str) -> int:
    """Returns the token that decoding starts with: the end's or the padding's, as in published models."""
    return 1 if kind in ("bart", "mbart", "m2m_100") else 0


def make_model(kind: str, seed: int = 0) -> Any:
    """Returns a model of the family, ready to infer."""
    torch.manual_seed(seed)
    ids = {
        "pad_token_id": 0,
        "eos_token_id": list(ends(kind)),
        "decoder_start_token_id": start(kind),
        "bos_token_id": None,
    }
    if kind in BARTS:
        configure, build = BARTS[kind]
        config = configure(
            vocab_size=VOCABULARY,
            d_model=32,
            **{f"{stack}_{key}": size for stack in ("encoder", "decoder") for key, size in _STACK.items()},
            max_position_embeddings=SOURCE + 4,
            scale_embedding=kind != "bart",
            forced_eos_token_id=None,
            init_std=0.5,
            **ids,
        )
    else:
        configure, build = T5S[kind]
        config = configure(
            vocab_size=VOCABULARY,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_decoder_layers=2,
            num_heads=4,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=10,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
            **ids,
        )
    model = build(config).eval()
    with torch.no_grad():
        if kind in T5S:
            # transformers ties the two, and loads them apart where a checkpoint has both.
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
        for name, weights in model.named_parameters():
            if "relative_attention_bias" in name:
                weights.normal_(0, 2)
            elif name.endswith((".q.weight", ".o.weight", ".wo.weight")):
                weights.mul_(5)
            elif "encoder_attn." in name and name.endswith("weight"):
                weights.mul_(4)
            elif name.endswith(("self_attn.out_proj.weight", "fc2.weight")):
                weights.mul_(2)
            elif name.endswith("norm.weight") or name.endswith(".bias"):
                weights.add_(0.3 * torch.randn_like(weights))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(0, 1)
    return model


_STACK = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}


def save(model: Any, folder: Path, **generation: Any) -> Path:
    """Writes the checkpoint, with what its generation_config.json asks for."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    file = folder / "generation_config.json"
    # transformers would refuse to write some that published files have.
    file.write_text(json.dumps(json.loads(file.read_text()) | generation))
    tokenizer = make_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


WORKLOAD_TOML = Path(__file__).with_suffix(".toml").read_text("utf-8")


def make_workload(folder: Path, kind: str, toml: str = WORKLOAD_TOML, **generation: Any) -> WorkloadFolder:
    """`folder`/tiny with all its files, loaded."""
    workload = folder / "tiny"
    save(make_model(kind), workload / "checkpoint", **generation)
    (workload / "workload.toml").write_text(toml)
    texts = make_texts(24)
    lines = [json.dumps({"text": text, "label": text}) for text in texts]
    (workload / "evaluation.jsonl").write_text("\n".join(lines) + "\n")
    (workload / "payloads.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts) + "\n")
    return load_workload("tiny", folder)
