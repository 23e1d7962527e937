"""Train a small checkpoint for a workload on labelled examples.

    python -m workloads.train WORKLOAD --output FOLDER [--examples FILE] [--steps N] [--seed S]

The new model has the shape and the tokenizer of the committed checkpoint, and fresh weights. If the workload has a
backbone, the backbone stays frozen and only the head is trained.

Origin of the committed files: checkpoints, evaluation.jsonl and payloads.jsonl were made from seeded grammars of an
invented shop (products, typing mistakes, questions, reviews). Evaluation texts were held out from training by the
SHA-256 of their template. Commit 1d7456d has the grammars and the training scripts. `product_bert/checkpoint` is the
encoder that `query_intent` and `duplicates` share.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import safetensors.torch
import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    BertForQuestionAnswering,
    BertModel,
    T5ForConditionalGeneration,
)

from workloads.errors import UsageError
from workloads.evaluation import Example
from workloads.folder import WorkloadFolder, load_workload
from workloads.model import QuestionAnswering, TextClassification, TextPairScoring, TextToText
from workloads.program import exit_code

BATCH_SIZE = 48
PEAK_LEARNING_RATE = 1e-3
PROGRESS_STEPS = 100
SCORE_WEIGHT = 10.0  # squared errors of a score are small compared with cross entropy
IGNORED_LABEL = -100

# The annotations of transformers do not fit its own models.
Module: TypeAlias = Any
Tensors: TypeAlias = dict[str, torch.Tensor]
Loss: TypeAlias = Callable[[Sequence[Example]], Any]


class Head(nn.Module):
    """BERT's pooler and classifier on a backbone's last hidden state, and a scorer for pairs."""

    def __init__(self, hidden_size: int, labels: Sequence[str], *, scored: bool) -> None:
        super().__init__()
        self.pooler = nn.ModuleDict({"dense": nn.Linear(hidden_size, hidden_size)})
        self.classifier = nn.Linear(hidden_size, len(labels))
        self.scorer = nn.Linear(hidden_size, 1) if scored else None

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Takes (batch, tokens, hidden). Returns class logits (batch, labels) and score logits (batch,) or None."""
        pooled = torch.tanh(self.pooler["dense"](hidden[:, 0]))
        return self.classifier(pooled), None if self.scorer is None else self.scorer(pooled)[:, 0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, and writes the checkpoint."""
    options = _parser().parse_args(arguments)
    workload = load_workload(options.workload)
    train(workload, workload.evaluation(options.examples), options.output, steps=options.steps, seed=options.seed)
    return 0


def train(workload: WorkloadFolder, examples: Sequence[Example], output: Path, *, steps: int, seed: int) -> None:
    """Trains a model of the workload's task on the examples and writes it to `output`."""
    torch.manual_seed(seed)
    model = workload.workload.model
    if not isinstance(model.checkpoint, str) or not model.checkpoint.startswith("."):
        raise UsageError(f"{workload.file}: model.checkpoint: training needs a checkpoint folder of its own.")
    checkpoint = workload.path / model.checkpoint
    output.mkdir(parents=True, exist_ok=True)
    if isinstance(model, (TextClassification, TextPairScoring)) and model.backbone:
        backbone = workload.path / model.backbone
        head, loss = _head(model, backbone)
        _fit(head, loss, _batches(examples, seed), steps)
        safetensors.torch.save_file(head.state_dict(), output / "head.safetensors", metadata={"format": "pt"})
        (output / "config.json").write_text((checkpoint / "config.json").read_text("utf-8"), encoding="utf-8")
        return
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    config = AutoConfig.from_pretrained(checkpoint)
    module: Module
    match model:
        case TextToText():
            module = T5ForConditionalGeneration(config)
        case TextClassification():
            module = AutoModelForSequenceClassification.from_config(config)
        case QuestionAnswering():
            module = BertForQuestionAnswering(config)
        case _:
            raise UsageError(f"{workload.file}: model.task: {model.task} cannot be trained here.")
    _fit(module, lambda batch: module(**_inputs(model, tokenizer, batch)).loss, _batches(examples, seed), steps)
    module.save_pretrained(output)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if (checkpoint / name).exists():
            shutil.copy(checkpoint / name, output / name)


def _head(model: TextClassification | TextPairScoring, folder: Path) -> tuple[Head, Loss]:
    """Returns a new head and its loss on the frozen backbone."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backbone: Module = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    head = Head(backbone.config.hidden_size, model.labels, scored=isinstance(model, TextPairScoring))

    def loss(batch: Sequence[Example]) -> Any:
        with torch.no_grad():
            hidden = backbone(**_tensors(tokenizer, _texts(model, batch))).last_hidden_state
        logits, scores = head(hidden)
        total = functional.cross_entropy(logits, _labels(model, batch))
        if scores is not None:
            scores_given = torch.tensor([example.score for example in batch])
            total = total + SCORE_WEIGHT * functional.mse_loss(torch.sigmoid(scores.float()), scores_given)
        return total

    return head, loss


def _inputs(
    model: TextToText | TextClassification | QuestionAnswering, tokenizer: Tokenizer, batch: Sequence[Example]
) -> Tensors:
    """Returns the tensors of a batch, labels included, by the names that transformers' models take."""
    if isinstance(model, TextToText):
        tensors = _tensors(tokenizer, [(example.row["text"],) for example in batch])
        answers = _tensors(tokenizer, [(example.label,) for example in batch])
        labels = answers["input_ids"].masked_fill(answers["attention_mask"] == 0, IGNORED_LABEL)
        return {**{name: tensors[name] for name in ("input_ids", "attention_mask")}, "labels": labels}
    texts = _texts(model, batch)
    if isinstance(model, TextClassification):
        return {**_tensors(tokenizer, texts), "labels": _labels(model, batch)}
    spans = [
        (encoding.char_to_token(start, 1), encoding.char_to_token(start + len(example.label) - 1, 1))
        for encoding, text, example in zip(tokenizer.encode_batch(texts), texts, batch, strict=True)
        for start in [text[1].index(example.label)]
    ]
    first, last = torch.tensor(spans).unbind(1)
    return {**_tensors(tokenizer, texts), "start_positions": first, "end_positions": last}


def _texts(model: Any, batch: Sequence[Example]) -> list[tuple[str, ...]]:
    return [tuple(" ".join(example.row[field] for field in fields) for fields in model.segments) for example in batch]


def _labels(model: TextClassification | TextPairScoring, batch: Sequence[Example]) -> torch.Tensor:
    return torch.tensor([model.labels.index(example.label) for example in batch])


def _tensors(tokenizer: Tokenizer, texts: Sequence[tuple[str, ...]]) -> Tensors:
    """Returns padded ids, mask and token types, each (texts, longest)."""
    tokenizer.enable_padding(pad_id=0)
    encodings = tokenizer.encode_batch([text if len(text) > 1 else text[0] for text in texts])
    tokenizer.no_padding()
    return {
        "input_ids": torch.tensor([encoding.ids for encoding in encodings]),
        "attention_mask": torch.tensor([encoding.attention_mask for encoding in encodings]),
        "token_type_ids": torch.tensor([encoding.type_ids for encoding in encodings]),
    }


def _batches(examples: Sequence[Example], seed: int) -> Iterator[list[Example]]:
    """Yields batches without end; every pass over the examples has another order."""
    rng = Random(seed)
    while True:
        shuffled = rng.sample(examples, len(examples))
        for at in range(0, len(shuffled), BATCH_SIZE):
            yield shuffled[at : at + BATCH_SIZE]


def _fit(module: nn.Module, loss_of: Loss, batches: Iterator[list[Example]], steps: int) -> None:
    """Trains with AdamW. The learning rate rises linearly, then falls to zero along a cosine."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=PEAK_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LEARNING_RATE, total_steps=steps, pct_start=0.1)
    module.train()
    started = time.monotonic()
    for step, batch in zip(range(1, steps + 1), batches, strict=False):
        loss = loss_of(batch)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % PROGRESS_STEPS == 0 or step == steps:
            progress = {"step": step, "loss": round(loss.item(), 4), "seconds": round(time.monotonic() - started)}
            print(json.dumps(progress), file=sys.stderr, flush=True)
    module.eval()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.train",
        description="Train a small checkpoint for a workload on labelled examples.",
        epilog="example: python -m workloads.train spellcheck --examples mine.jsonl --output build/spellcheck",
    )
    parser.add_argument("workload", help="name of a folder below workloads/")
    parser.add_argument("--output", type=Path, required=True, help="folder for the new checkpoint")
    parser.add_argument("--examples", type=Path, help="JSON lines like evaluation.jsonl (default: that file)")
    parser.add_argument("--steps", type=int, default=600, help=f"batches of {BATCH_SIZE} examples (default: 600)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and order (default: 0)")
    return parser


if __name__ == "__main__":
    sys.exit(exit_code(main))
