"""Tiny encoder–decoders of every family with random weights, as `save_pretrained` writes them: made in no time.

As the tiny T5's, their answers are nonsense that depends on the source, the past and the positions, and ends at
different lengths by a second end-of-sequence token that they like. Their weights are so large that transformers' own
logits, of up to 13, are 0.002 off in fp32 what they are in fp64.
"""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import processors

from tests.model_build.miniatures import tiny_t5
from tests.model_build.miniatures.tiny_t5 import LETTERS, LIKELY_TOKEN, make_texts, make_tokenizer
from workloads import WorkloadFolder, load_workload

BARTS = {
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
    "m2m_100": "M2M100ForConditionalGeneration",
}
T5S = {
    "t5-v1.1": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
}
FAMILIES = (*BARTS, *T5S)
LIKELY = {"bart": 9, "mbart": 9, "marian": 13, "pegasus": 21, "m2m_100": 16}
"""The second end-of-sequence token, which some of a family's answers have; a T5's is `LIKELY_TOKEN`."""
VOCABULARY = 4 + len(LETTERS)
SOURCE, ANSWER = 24, 12  # tokens
STACK = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}


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
    build: Any = getattr(transformers, (BARTS | T5S)[kind])
    if kind in BARTS:
        config = build.config_class(
            vocab_size=VOCABULARY,
            d_model=32,
            **{f"{stack}_{key}": size for stack in ("encoder", "decoder") for key, size in STACK.items()},
            max_position_embeddings=SOURCE + 4,
            scale_embedding=kind != "bart",
            forced_eos_token_id=None,
            init_std=0.5,
            **ids,
        )
    else:
        config = build.config_class(**tiny_t5.SIZES, feed_forward_proj="gated-gelu", tie_word_embeddings=False, **ids)
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


def save(model: Any, folder: Path, **generation: Any) -> Path:
    """Writes the checkpoint, with what its generation_config.json asks for."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    file = folder / "generation_config.json"
    # transformers would refuse to write some that published files have.
    file.write_text(json.dumps(json.loads(file.read_text()) | generation))
    tokenizer = make_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tiny_t5.write_tokenizer(tokenizer, folder)
    return folder


WORKLOAD_TOML = Path(__file__).with_suffix(".toml").read_text("utf-8")


def make_workload(folder: Path, kind: str, toml: str = WORKLOAD_TOML, **generation: Any) -> WorkloadFolder:
    """`folder`/tiny with all its files, loaded."""
    workload = folder / "tiny"
    save(make_model(kind), workload / "checkpoint", **generation)
    (workload / "workload.toml").write_text(toml)
    tiny_t5.write_rows(workload, [(text, text) for text in make_texts(24)])
    return load_workload("tiny", folder)
