"""Train the head of the query-intent workload on the stored backbone, and write its evaluation and payload files.

    python -m workloads.query_intent.train [--steps N] [--seed S] [--output FOLDER]

Run `python -m workloads.duplicates.train` first: it trains the backbone, on these very training queries among other
things, and writes it to `product_bert/checkpoint`. Here the backbone is frozen; only pooler and classifier learn.
"""

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from workloads.product_bert.training import (
    Head,
    Model,
    encode,
    fit,
    load_backbone,
    load_head,
    megabytes,
    save_head,
    write_lines,
)
from workloads.product_bert.word_pieces import load_tokenizer
from workloads.query_intent.grammar import Query, intents
from workloads.query_intent.queries import evaluation_queries, payload_texts, training_queries

WORKLOADS = Path(__file__).parent.parent
BATCH_SIZE = 128
PEAK_LEARNING_RATE = 2e-3

EXAMPLES = """\
examples:
  python -m workloads.query_intent.train              the committed head, made again
  python -m workloads.query_intent.train --steps 20 --output /tmp/x   on the backbone in /tmp/x/product_bert

Progress goes to stderr; stdout gets one JSON document with the figures. Run it from the repository's root, after
`python -m workloads.duplicates.train`, which makes the backbone.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The figures of a training run on the evaluation queries, measured with the files that it wrote."""

    steps: int
    seed: int
    head_parameters: int
    accuracy: float
    accuracy_by_intent: dict[str, float]
    mean_tokens: float
    max_tokens: int
    head_mb: float
    training_seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, saves, evaluates the saved files and prints the figures."""
    options = _parser().parse_args(arguments)
    torch.manual_seed(options.seed)
    backbone_folder = options.output / "product_bert" / "checkpoint"
    workload = options.output / "query_intent"
    head_folder = workload / "checkpoint"
    head_folder.mkdir(parents=True, exist_ok=True)

    backbone, tokenizer = load_backbone(backbone_folder), load_tokenizer(backbone_folder)
    head = Head(backbone.config.hidden_size, len(intents()))
    seconds = train(backbone, head, tokenizer, steps=options.steps, seed=options.seed)
    save_head(head, head_folder, architecture="BertForSequenceClassification", labels=list(intents()))

    queries = evaluation_queries()
    write_lines(workload / "evaluation.jsonl", [{"query": query.text, "label": query.label} for query in queries])
    write_lines(workload / "payloads.jsonl", [{"query": text} for text in payload_texts()])
    figures = evaluate(backbone_folder, head_folder, queries, steps=options.steps, seed=options.seed, seconds=seconds)
    print(json.dumps(asdict(figures), indent=2))


def train(backbone: Model, head: Head, tokenizer: Tokenizer, *, steps: int, seed: int) -> float:
    """Trains with cross entropy over the intents; the backbone only infers. Returns the seconds it took."""
    labels = list(intents())

    def loss_of(batch: list[Query]) -> torch.Tensor:
        with torch.no_grad():
            hidden = backbone(**encode(tokenizer, [query.text for query in batch])).last_hidden_state
        logits, _ = head(hidden)
        return functional.cross_entropy(logits, torch.tensor([labels.index(query.label) for query in batch]))

    # Other queries than those of the same seed's backbone.
    batches = training_batches(Random(seed + 2))
    return fit([head], batches, loss_of, steps=steps, peak_learning_rate=PEAK_LEARNING_RATE)


def training_batches(rng: Random) -> Iterator[list[Query]]:
    queries = training_queries(rng)
    while True:
        yield list(itertools.islice(queries, BATCH_SIZE))


@torch.inference_mode()
def evaluate(
    backbone_folder: Path, head_folder: Path, queries: Sequence[Query], *, steps: int, seed: int, seconds: float
) -> Figures:
    """Loads backbone and head from their files, classifies every query, and counts."""
    backbone, head = load_backbone(backbone_folder), load_head(head_folder)
    labels = list(intents())
    tokens = encode(load_tokenizer(backbone_folder), [query.text for query in queries])
    logits, _ = head(backbone(**tokens).last_hidden_state)
    hits: dict[str, list[bool]] = {label: [] for label in labels}
    for at, query in zip(logits.argmax(-1).tolist(), queries, strict=True):
        hits[query.label].append(labels[at] == query.label)
    lengths = tokens["attention_mask"].sum(-1)
    return Figures(
        steps=steps,
        seed=seed,
        head_parameters=sum(parameter.numel() for parameter in head.parameters()),
        accuracy=_mean([hit for some in hits.values() for hit in some]),
        accuracy_by_intent={label: _mean(some) for label, some in hits.items()},
        mean_tokens=round(float(lengths.float().mean()), 1),
        max_tokens=int(lengths.max()),
        head_mb=megabytes(head_folder),
        training_seconds=round(seconds, 1),
    )


def _mean(values: Sequence[bool]) -> float:
    return round(sum(values) / len(values), 4)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.query_intent.train",
        description="Train pooler and classifier on the frozen backbone of product_bert/checkpoint/; write\n"
        "query_intent/checkpoint/, evaluation.jsonl and payloads.jsonl. All that is drawn is drawn from the seed.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=600, help="steps of 128 queries (default: 600)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches (default: 0)")
    parser.add_argument("--output", type=Path, default=WORKLOADS, help="in place of workloads/: backbone and head")
    return parser


if __name__ == "__main__":
    main()
