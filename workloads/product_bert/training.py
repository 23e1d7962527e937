"""Training encoders and heads: token tensors, batches of like length, the optimiser's loop, and a head's files.

A head is `BertForSequenceClassification`'s arithmetic over a backbone's last hidden state: a tanh pooler over `[CLS]`,
then a linear classifier, and for scored pairs a second linear layer whose sigmoid is the score. Its files are
`head.safetensors` and `config.json`; the backbone's weights are not in them.
"""

import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeAlias, TypeVar

import safetensors.torch
import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertModel

from workloads.product_bert.word_pieces import PAD, PAD_ID, SPECIAL_TOKENS

T = TypeVar("T")
# transformers annotates its modules in ways that its own BERT does not meet.
Model: TypeAlias = Any
Tokens: TypeAlias = dict[str, torch.Tensor]
Text: TypeAlias = str | tuple[str, str]

BETAS = (0.9, 0.98)
WEIGHT_DECAY = 0.01
WARMUP_STEPS = 200
# Batches are cut from this many batches' worth of examples sorted by length: little of a batch is then padding.
POOL_BATCHES = 16
DROPOUT = 0.05
SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "hidden_dropout_prob": DROPOUT,
    "attention_probs_dropout_prob": DROPOUT,
    # BERT's 0.02 suits 768 dimensions. In 128, heads that compare words would start with scores of next to nothing.
    "initializer_range": 0.08,
    "pad_token_id": PAD_ID,
}
SHOWN_EVERY = 100


class Head(nn.Module):
    """Pooler and classifier, and a scorer where pairs are scored. Takes (batch, tokens, hidden), gives logits."""

    def __init__(self, hidden_size: int, classes: int, *, scored: bool = False) -> None:
        super().__init__()
        self.pooler = nn.ModuleDict({"dense": nn.Linear(hidden_size, hidden_size)})
        self.classifier = nn.Linear(hidden_size, classes)
        self.scorer = nn.Linear(hidden_size, 1) if scored else None

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns class logits (batch, classes), and score logits (batch,) or None."""
        pooled = torch.tanh(self.pooler["dense"](hidden[:, 0]))
        return self.classifier(pooled), None if self.scorer is None else self.scorer(pooled)[:, 0]


def bert_config(vocabulary_size: int, *, layers: int, max_tokens: int) -> BertConfig:
    """Returns the shape that the small checkpoints share."""
    return BertConfig(**SHAPE, vocab_size=vocabulary_size, num_hidden_layers=layers, max_position_embeddings=max_tokens)


def begin_with_likeness(backbone: Model) -> None:
    """Copies each layer's query weights to its keys: every piece then begins by attending to its like.

    A task that compares two texts is learnt from there in a few hundred steps, and otherwise not in thousands.
    """
    for layer in backbone.encoder.layer:
        attention = layer.attention.self
        attention.key.load_state_dict(attention.query.state_dict())


def load_backbone(folder: Path) -> Model:
    """Returns a stored backbone, ready to infer."""
    model: Model = BertModel.from_pretrained(folder, add_pooling_layer=False)
    return model.eval()


def save_head(head: Head, folder: Path, *, architecture: str, labels: Sequence[str]) -> None:
    """Writes `head.safetensors` and `config.json`."""
    safetensors.torch.save_file(head.state_dict(), folder / "head.safetensors", metadata={"format": "pt"})
    config = {"architectures": [architecture], **label_maps(labels)}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_head(folder: Path) -> Head:
    """Returns a stored head, ready to infer."""
    weights = safetensors.torch.load_file(folder / "head.safetensors")
    classes, hidden_size = weights["classifier.weight"].shape
    head = Head(hidden_size, classes, scored="scorer.weight" in weights)
    head.load_state_dict(weights)
    return head.eval()


def label_maps(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns `id2label` and `label2id` in config.json's form."""
    return {
        "id2label": {str(at): label for at, label in enumerate(labels)},
        "label2id": {label: at for at, label in enumerate(labels)},
    }


def encode(tokenizer: Tokenizer, texts: Sequence[Text]) -> Tokens:
    """Returns padded ids, mask and token types, each (texts, longest)."""
    tokenizer.enable_padding(pad_id=PAD_ID, pad_token=PAD)
    encodings = tokenizer.encode_batch(list(texts))
    tokenizer.no_padding()
    return {
        "input_ids": torch.tensor([encoding.ids for encoding in encodings]),
        "attention_mask": torch.tensor([encoding.attention_mask for encoding in encodings]),
        "token_type_ids": torch.tensor([encoding.type_ids for encoding in encodings]),
    }


def batches_of_like_length(
    examples: Iterator[T], length: Callable[[T], int], batch_length: int, rng: Random
) -> Iterator[list[T]]:
    """Yields batches without end, in random order: of one example at least, padded to `batch_length` in all at most."""
    while True:
        pool: list[T] = []
        while sum(map(length, pool)) < batch_length * POOL_BATCHES:
            pool += itertools.islice(examples, 64)
        pool.sort(key=length)
        batches: list[list[T]] = [[]]
        for example in pool:
            if batches[-1] and length(example) * (len(batches[-1]) + 1) > batch_length:
                batches.append([])
            batches[-1].append(example)
        rng.shuffle(batches)
        yield from batches


def fit(
    modules: Sequence[nn.Module],
    batches: Iterator[T],
    loss_of: Callable[[T], torch.Tensor],
    *,
    steps: int,
    peak_learning_rate: float,
) -> float:
    """Trains the modules with AdamW; the learning rate rises linearly, then falls to zero along a cosine.

    Returns the seconds it took. Progress goes to stderr.
    """
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=peak_learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, steps))
    for module in modules:
        module.train()
    started = time.monotonic()
    for step, batch in zip(range(1, steps + 1), batches, strict=False):
        # bfloat16 halves the time of a step on a CPU that has it; the weights stay float32.
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(batch)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        if step % SHOWN_EVERY == 0 or step == steps:
            progress = f"step {step}/{steps}  loss {loss.item():.4f}  {time.monotonic() - started:.0f} s"
            print(progress, file=sys.stderr, flush=True)
    for module in modules:
        module.eval()
    return time.monotonic() - started


def learning_rate_factor(step: int, steps: int) -> float:
    """Returns the share of the peak learning rate at a step."""
    warmup = min(WARMUP_STEPS, max(1, steps // 10))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def shared_piece_loss(head: nn.Linear, hidden: torch.Tensor, tokens: Tokens) -> torch.Tensor:
    """Returns cross entropy, over all pieces but the special ones, of whether the other text of the pair has the piece.

    A task beside the pair's own, which teaches an encoder to compare.
    """
    ids, types = tokens["input_ids"], tokens["token_type_ids"]
    words = ids >= len(SPECIAL_TOKENS)
    same = (ids[:, :, None] == ids[:, None, :]) & (types[:, :, None] != types[:, None, :]) & words[:, None, :]
    logits = head(hidden)[..., 0].float()
    return functional.binary_cross_entropy_with_logits(logits[words], same.any(-1).float()[words])


def megabytes(folder: Path) -> float:
    return round(sum(file.stat().st_size for file in folder.iterdir()) / 1e6, 3)


def write_lines(file: Path, documents: Sequence[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
