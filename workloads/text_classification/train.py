"""Train the checkpoint of the text-classification workload, and write its evaluation and payload files.

python -m workloads.text_classification.train [--steps N] [--seed S] [--output FOLDER]
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import BertForSequenceClassification

from workloads.product_bert.training import (
    Model,
    batches_of_like_length,
    bert_config,
    encode,
    fit,
    label_maps,
    megabytes,
    write_lines,
)
from workloads.product_bert.word_pieces import load_tokenizer, save_tokenizer, train_word_pieces
from workloads.text_classification.grammar import LABELS, Review
from workloads.text_classification.reviews import (
    evaluation_reviews,
    long_payload_texts,
    payload_texts,
    training_reviews,
)

FOLDER = Path(__file__).parent
VOCABULARY_SIZE = 2000
CORPUS_REVIEWS = 5_000
LAYERS, MAX_TOKENS = 3, 512
BATCH_CHARACTERS = 16_000
EVALUATION_BATCH = 16
PEAK_LEARNING_RATE = 1e-3

EXAMPLES = """\
examples:
  python -m workloads.text_classification.train                              the committed checkpoint, made again
  python -m workloads.text_classification.train --steps 20 --output /tmp/x   see it work, leave the checkpoint alone

Progress goes to stderr; stdout gets one JSON document with the figures. Run it from the repository's root.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The figures of a training run on the evaluation reviews. A long review has more than 256 tokens."""

    steps: int
    seed: int
    parameters: int
    accuracy: float
    accuracy_of_long: float
    mean_tokens: float
    max_tokens: int
    checkpoint_mb: float
    training_seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, saves, evaluates the saved files and prints the figures."""
    options = _parser().parse_args(arguments)
    torch.manual_seed(options.seed)
    checkpoint = options.output / "checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)

    reviews = training_reviews(Random(options.seed))
    tokenizer = train_word_pieces((next(reviews).text for _ in range(CORPUS_REVIEWS)), VOCABULARY_SIZE)
    model = new_model(tokenizer.get_vocab_size())
    seconds = train(model, tokenizer, steps=options.steps, seed=options.seed)
    save_tokenizer(tokenizer, checkpoint, MAX_TOKENS)
    model.save_pretrained(checkpoint)

    evaluation = evaluation_reviews()
    write_lines(
        options.output / "evaluation.jsonl", [{"text": review.text, "label": review.label} for review in evaluation]
    )
    write_lines(options.output / "payloads.jsonl", [{"text": text} for text in payload_texts()])
    write_lines(options.output / "payloads-512.jsonl", [{"text": text} for text in long_payload_texts()])
    figures = evaluate(checkpoint, evaluation, steps=options.steps, seed=options.seed, seconds=seconds)
    print(json.dumps(asdict(figures), indent=2))


def new_model(vocabulary_size: int) -> Model:
    """Returns a BERT classifier with fresh weights, which knows its labels by name."""
    config = bert_config(vocabulary_size, layers=LAYERS, max_tokens=MAX_TOKENS)
    config.update(label_maps(LABELS))
    return BertForSequenceClassification(config)


def train(model: Model, tokenizer: Tokenizer, *, steps: int, seed: int) -> float:
    """Trains with cross entropy over the two labels. Returns the seconds it took."""

    def loss_of(batch: list[Review]) -> torch.Tensor:
        logits = model(**encode(tokenizer, [review.text for review in batch])).logits
        return functional.cross_entropy(logits, torch.tensor([LABELS.index(review.label) for review in batch]))

    rng = Random(seed + 1)
    # Some come out longer than the model reads.
    reviews = (r for r in training_reviews(rng) if len(tokenizer.encode(r.text).ids) <= MAX_TOKENS)
    batches = batches_of_like_length(reviews, lambda review: len(review.text), BATCH_CHARACTERS, rng)
    return fit([model], batches, loss_of, steps=steps, peak_learning_rate=PEAK_LEARNING_RATE)


@torch.inference_mode()
def evaluate(checkpoint: Path, reviews: Sequence[Review], *, steps: int, seed: int, seconds: float) -> Figures:
    """Loads the checkpoint from its files, classifies every review, and counts."""
    model: Model = BertForSequenceClassification.from_pretrained(checkpoint)
    model.eval()
    tokenizer = load_tokenizer(checkpoint)
    hits: list[bool] = []
    lengths: list[int] = []
    for chunk in (reviews[at : at + EVALUATION_BATCH] for at in range(0, len(reviews), EVALUATION_BATCH)):
        tokens = encode(tokenizer, [review.text for review in chunk])
        lengths += tokens["attention_mask"].sum(-1).tolist()
        labels = [LABELS[at] for at in model(**tokens).logits.argmax(-1).tolist()]
        hits += [label == review.label for label, review in zip(labels, chunk, strict=True)]
    return Figures(
        steps=steps,
        seed=seed,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        accuracy=_mean(hits),
        accuracy_of_long=_mean([hit for hit, length in zip(hits, lengths, strict=True) if length > MAX_TOKENS // 2]),
        mean_tokens=_mean(lengths),
        max_tokens=max(lengths),
        checkpoint_mb=megabytes(checkpoint),
        training_seconds=round(seconds, 1),
    )


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.text_classification.train",
        description="Train a small BERT that tells praise from blame in product reviews, and write checkpoint/,\n"
        "evaluation.jsonl, payloads.jsonl and payloads-512.jsonl. All that is drawn is drawn from the seed.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=900, help="steps of about 3,000 tokens (default: 900)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, batches, tokenizer (default: 0)")
    parser.add_argument("--output", type=Path, default=FOLDER, help="where to write (default: the workload)")
    return parser


if __name__ == "__main__":
    main()
