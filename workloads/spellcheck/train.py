"""Train the checkpoint of the spelling-correction workload, and write its evaluation and payload files.

    python -m workloads.spellcheck.train [--steps N] [--seed S] [--output FOLDER]

The committed checkpoint: `python -m workloads.spellcheck.train --steps 7000 --seed 0`, 1,626 s on two shared
cores of an x86 server CPU with AVX-512 and bfloat16, no GPU, torch 2.13, transformers 5.23. It printed, on
held-out queries: exact match 0.9938; of the misspelt ones 0.9917; of the already correct ones 1.0.
"""

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, T5Config, T5ForConditionalGeneration

from workloads.spellcheck.pairs import Pair, evaluation_pairs, payload_texts, training_pairs
from workloads.spellcheck.tokenizer import PAD, save_tokenizer, train_tokenizer

FOLDER = Path(__file__).parent
VOCABULARY_SIZE = 512
BATCH_SIZE = 128
PEAK_LEARNING_RATE = 2e-3
BETAS = (0.9, 0.98)
WARMUP_STEPS = 300
# Batches are cut from this many batches' worth of pairs sorted by length: little of a batch is then padding.
POOL_BATCHES = 16

SHAPE: dict[str, Any] = {
    "d_model": 128,
    "d_kv": 32,
    "d_ff": 512,
    "num_layers": 4,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 64,
    "dropout_rate": 0.05,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": True,
}
SPECIAL_IDS: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
DECODING: dict[str, Any] = {"do_sample": False, "num_beams": 1, "max_new_tokens": 32}

# transformers annotates `generate` and its modules in ways that its own T5 does not meet.
Model: TypeAlias = Any

EXAMPLES = """\
examples:
  python -m workloads.spellcheck.train                              the committed checkpoint, made again
  python -m workloads.spellcheck.train --steps 50 --output /tmp/x   see it work, leave the checkpoint alone

Progress goes to stderr; stdout gets one JSON document with the figures. Run it from the repository's root.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The figures of a training run. Exact match is of greedy decoding on held-out queries."""

    steps: int
    seed: int
    parameters: int
    exact_match: float
    exact_match_misspelt: float
    exact_match_already_correct: float
    mean_input_tokens: float
    mean_output_tokens: float
    checkpoint_mb: float
    training_seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, saves, evaluates the saved files and prints the figures."""
    options = _parser().parse_args(arguments)
    torch.manual_seed(options.seed)
    checkpoint = options.output / "checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)

    tokenizer = train_tokenizer(options.seed, VOCABULARY_SIZE)
    model = new_model(tokenizer.get_vocab_size())
    started = time.monotonic()
    train(model, tokenizer, steps=options.steps, seed=options.seed)
    training_seconds = time.monotonic() - started
    save_tokenizer(tokenizer, checkpoint)
    model.save_pretrained(checkpoint)

    pairs = evaluation_pairs()
    _write_lines(options.output / "evaluation.jsonl", [asdict(pair) for pair in pairs])
    _write_lines(options.output / "payloads.jsonl", [{"text": text} for text in payload_texts()])

    figures = evaluate(checkpoint, pairs, steps=options.steps, seed=options.seed, seconds=training_seconds)
    print(json.dumps(asdict(figures), indent=2))


def new_model(vocabulary_size: int) -> Model:
    """Returns a T5 of 1.8 million parameters with fresh weights, set to decode greedily."""
    model: Model = T5ForConditionalGeneration(T5Config(**SHAPE, **SPECIAL_IDS, vocab_size=vocabulary_size))
    model.generation_config = GenerationConfig.from_dict({**DECODING, **SPECIAL_IDS})
    return model


def train(model: Model, tokenizer: Tokenizer, *, steps: int, seed: int) -> None:
    """Trains by teacher forcing with AdamW; the learning rate rises linearly, then falls to zero along a cosine."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LEARNING_RATE, betas=BETAS, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, steps))
    batches = training_batches(Random(seed + 1))
    model.train()
    started = time.monotonic()
    for step, batch in zip(range(1, steps + 1), batches, strict=False):
        loss = _loss(model, tokenizer, batch)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps:
            progress = f"step {step}/{steps}  loss {loss.item():.4f}  {time.monotonic() - started:.0f} s"
            print(progress, file=sys.stderr, flush=True)


def learning_rate_factor(step: int, steps: int) -> float:
    """Returns the share of the peak learning rate at a step."""
    warmup = min(WARMUP_STEPS, max(1, steps // 10))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def training_batches(rng: Random) -> Iterator[list[Pair]]:
    """Yields batches of pairs of like length without end, in random order."""
    pairs = training_pairs(rng)
    while True:
        pool = list(itertools.islice(pairs, BATCH_SIZE * POOL_BATCHES))
        pool.sort(key=lambda pair: len(pair.text))
        batches = [pool[at : at + BATCH_SIZE] for at in range(0, len(pool), BATCH_SIZE)]
        rng.shuffle(batches)
        yield from batches


@torch.inference_mode()
def correct(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """Returns the model's greedy correction of each text."""
    tokens, mask = _encode(tokenizer, texts)
    outputs = model.generate(input_ids=tokens, attention_mask=mask)
    return tokenizer.decode_batch(outputs.tolist())


def evaluate(checkpoint: Path, pairs: Sequence[Pair], *, steps: int, seed: int, seconds: float) -> Figures:
    """Loads the checkpoint from its files, corrects every pair's text, and counts."""
    model: Model = T5ForConditionalGeneration.from_pretrained(checkpoint)
    model.eval()
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for chunk in (pairs[at : at + BATCH_SIZE] for at in range(0, len(pairs), BATCH_SIZE)):
        answers = correct(model, tokenizer, [pair.text for pair in chunk])
        for pair, answer in zip(chunk, answers, strict=True):
            hits[pair.text == pair.label].append(answer == pair.label)
    return Figures(
        steps=steps,
        seed=seed,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        exact_match=_mean(hits[True] + hits[False]),
        exact_match_misspelt=_mean(hits[False]),
        exact_match_already_correct=_mean(hits[True]),
        mean_input_tokens=_mean([len(tokenizer.encode(pair.text).ids) for pair in pairs]),
        mean_output_tokens=_mean([len(tokenizer.encode(pair.label).ids) for pair in pairs]),
        checkpoint_mb=round(sum(file.stat().st_size for file in checkpoint.iterdir()) / 1e6, 3),
        training_seconds=round(seconds, 1),
    )


def _loss(model: Model, tokenizer: Tokenizer, batch: Sequence[Pair]) -> torch.Tensor:
    tokens, mask = _encode(tokenizer, [pair.text for pair in batch])
    labels, label_mask = _encode(tokenizer, [pair.label for pair in batch])
    # bfloat16 halves the time of a step on a CPU that has it; the weights stay float32.
    with torch.autocast("cpu", torch.bfloat16):
        loss: torch.Tensor = model(
            input_ids=tokens, attention_mask=mask, labels=labels.masked_fill(label_mask == 0, -100)
        ).loss
    return loss


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns padded token ids and their attention mask, both (texts, longest)."""
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(PAD), pad_token=PAD)
    encodings = tokenizer.encode_batch(list(texts))
    tokenizer.no_padding()
    ids = torch.tensor([encoding.ids for encoding in encodings])
    return ids, torch.tensor([encoding.attention_mask for encoding in encodings])


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


def _write_lines(file: Path, documents: Sequence[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.spellcheck.train",
        description="Train a small T5 that corrects product-search queries, and write checkpoint/,\n"
        "evaluation.jsonl and payloads.jsonl. All that is drawn is drawn from the seed.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=7000, help="steps of 128 pairs (default: 7000)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, batches, tokenizer (default: 0)")
    parser.add_argument("--output", type=Path, default=FOLDER, help="where to write (default: the workload)")
    return parser


if __name__ == "__main__":
    main()
