"""T5 of the published dimensions with seeded random weights.

As initialised, a tied T5 repeats its last token. Here the last feed-forward layer outweighs the residual, so the next
token is a random function of the last one and of the attended ones. Larger embeddings keep the last token visible. Of
`CANDIDATES` seeded sources the one with the clearest choices is taken, whose output neither ends nor repeats a token.
Rounding to int8 then changes no token.
"""

from pathlib import Path
from typing import Any

from benchmarks import harness

SHAPES: dict[str, dict[str, int]] = {
    "t5-small": {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "t5-base": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
}
VOCABULARY = 32128
INPUT_TOKENS, OUTPUT_TOKENS = 9, 11
CANDIDATES = 512
BATCH = 32
SPECIAL = {"pad_token": 0, "eos_token": 1, "unk_token": 2}


def make(folder: Path, shape: str) -> dict[str, Any]:
    """Writes the checkpoint, and returns the source's tokens and what Hugging Face `generate` makes of them."""
    folder.mkdir(parents=True)
    harness.write_tokenizer(folder, VOCABULARY, SPECIAL, ends=True)
    model = make_model(shape)
    model.save_pretrained(folder)
    source, output = _clearest(model)
    encoder_weights, decoder_weights = _matrix_weights(model)
    weights = {"encoder_weights": encoder_weights, "decoder_weights": decoder_weights}
    return {"source": source, "output": output, **weights}


def make_model(shape: str) -> Any:
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    make_config: Any = T5Config
    model = T5ForConditionalGeneration(
        make_config(vocab_size=VOCABULARY, decoder_start_token_id=0, **SHAPES[shape])
    ).eval()
    with torch.no_grad():
        model.shared.weight.mul_(3)
        model.decoder.block[-1].layer[2].DenseReluDense.wo.weight.mul_(1000)
    return model


def _clearest(model: Any) -> tuple[list[int], list[int]]:
    import torch

    sources: Any = torch.randint(3, VOCABULARY, (CANDIDATES, INPUT_TOKENS))
    sources[:, -1] = model.config.eos_token_id
    best: tuple[float, list[int], list[int]] = (0.0, [], [])
    for batch in sources.split(BATCH):
        with torch.inference_mode():
            made = model.generate(
                input_ids=batch,
                attention_mask=torch.ones_like(batch),
                max_new_tokens=OUTPUT_TOKENS,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        first, second = torch.stack(made.logits, 1).topk(2, -1).values.unbind(-1)
        for source, output, margin in zip(batch, made.sequences[:, 1:], (first - second).amin(1), strict=True):
            tokens = output.tolist()
            varied = len(set(tokens)) == OUTPUT_TOKENS and min(tokens) > 2
            if varied and margin.item() > best[0]:
                best = (margin.item(), source.tolist(), tokens)
    if not best[1]:
        raise SystemExit("No source of the candidates gives an output without an end or a repetition.")
    return best[1], best[2]


def _matrix_weights(model: Any) -> tuple[int, int]:
    """Counts the weights that the source and every output token are multiplied with; embeddings are looked up."""
    sizes = {name: w.numel() for name, w in model.named_parameters() if w.dim() == 2 and "relative" not in name}
    of_source = ("encoder.", "EncDecAttention.k", "EncDecAttention.v")
    source = sum(size for name, size in sizes.items() if any(part in name for part in of_source))
    return source, sum(sizes.values()) - source  # The shared embedding is the head as well: read whole for each token.
