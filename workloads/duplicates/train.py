"""Train the backbone of `query_intent` and `duplicates` and the head of `duplicates`, end to end, multi-task.

    python -m workloads.duplicates.train [--steps N] [--seed S] [--output FOLDER]

One step is a batch of pairs and a batch of queries. The tasks: relation and score, from one pooled vector; of each
piece of a listing, whether the other listing has it too, without which the backbone does not learn to compare; and the
intent of the queries, so that the backbone also serves `query_intent`. The heads of the last two are thrown away:
`python -m workloads.query_intent.train`, run after this, trains the stored one on the frozen backbone.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional
from transformers import BertModel

from workloads.duplicates.catalogue import RELATIONS
from workloads.duplicates.pairs import Pair, evaluation_pairs, payload_pairs, training_pairs
from workloads.product_bert.training import (
    Head,
    Model,
    batches_of_like_length,
    begin_with_likeness,
    bert_config,
    encode,
    fit,
    load_backbone,
    load_head,
    megabytes,
    save_head,
    shared_piece_loss,
    write_lines,
)
from workloads.product_bert.word_pieces import load_tokenizer, save_tokenizer, train_word_pieces
from workloads.query_intent.grammar import Query, intents
from workloads.query_intent.queries import training_queries

WORKLOADS = Path(__file__).parent.parent
VOCABULARY_SIZE = 2500
CORPUS_PAIRS, CORPUS_QUERIES = 20_000, 20_000
LAYERS, MAX_TOKENS = 4, 128
PAIR_CHARACTERS = 16_000
QUERIES_PER_STEP = 48
PEAK_LEARNING_RATE = 1e-3
# Squared errors of the score are small beside cross entropy.
SCORE_WEIGHT, INTENT_WEIGHT = 10.0, 0.3

EXAMPLES = """\
examples:
  python -m workloads.duplicates.train                              both checkpoints, made again
  python -m workloads.duplicates.train --steps 20 --output /tmp/x   see it work, leave the checkpoints alone

Progress goes to stderr; stdout gets one JSON document with the figures. Run it from the repository's root, and then
`python -m workloads.query_intent.train`, for its head stands on this backbone.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The figures of a training run on the evaluation pairs, measured with the files that it wrote."""

    steps: int
    seed: int
    backbone_parameters: int
    relation_accuracy: float
    score_pearson: float
    score_mean_absolute_error: float
    mean_tokens: float
    max_tokens: int
    backbone_mb: float
    head_mb: float
    training_seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, saves, evaluates the saved files and prints the figures."""
    options = _parser().parse_args(arguments)
    torch.manual_seed(options.seed)
    backbone_folder = options.output / "product_bert" / "checkpoint"
    workload = options.output / "duplicates"
    head_folder = workload / "checkpoint"
    for folder in (backbone_folder, head_folder):
        folder.mkdir(parents=True, exist_ok=True)

    tokenizer = train_word_pieces(corpus(options.seed), VOCABULARY_SIZE)
    config = bert_config(tokenizer.get_vocab_size(), layers=LAYERS, max_tokens=MAX_TOKENS)
    backbone = BertModel(config, add_pooling_layer=False)
    begin_with_likeness(backbone)
    head = Head(backbone.config.hidden_size, len(RELATIONS), scored=True)
    seconds = train(backbone, head, tokenizer, steps=options.steps, seed=options.seed)
    save_tokenizer(tokenizer, backbone_folder, MAX_TOKENS)
    backbone.save_pretrained(backbone_folder)
    save_head(head, head_folder, architecture="BertForPairScoring", labels=RELATIONS)

    pairs = evaluation_pairs()
    write_lines(workload / "evaluation.jsonl", [pair.example() for pair in pairs])
    write_lines(workload / "payloads.jsonl", [pair.request() for pair in payload_pairs()])
    figures = evaluate(backbone_folder, head_folder, pairs, steps=options.steps, seed=options.seed, seconds=seconds)
    print(json.dumps(asdict(figures), indent=2))


def corpus(seed: int) -> Iterator[str]:
    """Yields the tokenizer's training texts: training queries and both segments of training pairs."""
    queries, pairs = training_queries(Random(seed)), training_pairs(Random(seed))
    yield from (next(queries).text for _ in range(CORPUS_QUERIES))
    yield from (segment for _ in range(CORPUS_PAIRS) for segment in next(pairs).segments)


def train(backbone: Model, head: Head, tokenizer: Tokenizer, *, steps: int, seed: int) -> float:
    """Trains all four tasks in every step. Returns the seconds it took."""
    shared_head = nn.Linear(backbone.config.hidden_size, 1)
    intent_head = Head(backbone.config.hidden_size, len(intents()))

    def loss_of(batch: tuple[list[Pair], list[Query]]) -> torch.Tensor:
        pairs, queries = batch
        tokens = encode(tokenizer, [pair.segments for pair in pairs])
        hidden = backbone(**tokens).last_hidden_state
        loss = pair_loss(head, hidden, pairs) + shared_piece_loss(shared_head, hidden, tokens)
        hidden = backbone(**encode(tokenizer, [query.text for query in queries])).last_hidden_state
        return loss + INTENT_WEIGHT * intent_loss(intent_head, hidden, queries)

    modules = [backbone, head, shared_head, intent_head]
    return fit(modules, training_batches(seed + 1), loss_of, steps=steps, peak_learning_rate=PEAK_LEARNING_RATE)


def pair_loss(head: Head, hidden: torch.Tensor, pairs: Sequence[Pair]) -> torch.Tensor:
    """Returns the loss: cross entropy of the relation and squared error of the score."""
    logits, scores = head(hidden)
    relation = functional.cross_entropy(logits, torch.tensor([RELATIONS.index(pair.label) for pair in pairs]))
    score = functional.mse_loss(torch.sigmoid(scores.float()), torch.tensor([pair.score for pair in pairs]))
    return relation + SCORE_WEIGHT * score


def intent_loss(head: Head, hidden: torch.Tensor, queries: Sequence[Query]) -> torch.Tensor:
    labels = list(intents())
    return functional.cross_entropy(head(hidden)[0], torch.tensor([labels.index(query.label) for query in queries]))


def training_batches(seed: int) -> Iterator[tuple[list[Pair], list[Query]]]:
    """Yields steps without end: pairs of like length, and queries."""
    rng = Random(seed)
    queries = training_queries(Random(seed))
    pairs = training_pairs(rng)
    for batch in batches_of_like_length(pairs, lambda pair: sum(map(len, pair.segments)), PAIR_CHARACTERS, rng):
        yield batch, [next(queries) for _ in range(QUERIES_PER_STEP)]


@torch.inference_mode()
def evaluate(
    backbone_folder: Path, head_folder: Path, pairs: Sequence[Pair], *, steps: int, seed: int, seconds: float
) -> Figures:
    """Loads the saved files, judges every pair, and counts."""
    backbone, head = load_backbone(backbone_folder), load_head(head_folder)
    tokenizer = load_tokenizer(backbone_folder)
    tokens = encode(tokenizer, [pair.segments for pair in pairs])
    logits, score_logits = head(backbone(**tokens).last_hidden_state)
    relations = [RELATIONS[at] for at in logits.argmax(-1).tolist()]
    scores, labels = torch.sigmoid(score_logits), torch.tensor([pair.score for pair in pairs])
    lengths = tokens["attention_mask"].sum(-1)
    return Figures(
        steps=steps,
        seed=seed,
        backbone_parameters=sum(parameter.numel() for parameter in backbone.parameters()),
        relation_accuracy=sum(got == pair.label for got, pair in zip(relations, pairs, strict=True)) / len(pairs),
        score_pearson=round(float(torch.corrcoef(torch.stack([scores, labels]))[0, 1]), 4),
        score_mean_absolute_error=round(float((scores - labels).abs().mean()), 4),
        mean_tokens=round(float(lengths.float().mean()), 1),
        max_tokens=int(lengths.max()),
        backbone_mb=megabytes(backbone_folder),
        head_mb=megabytes(head_folder),
        training_seconds=round(seconds, 1),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.duplicates.train",
        description="Train the small BERT that query_intent and duplicates share, and the head of duplicates; write\n"
        "product_bert/checkpoint/, duplicates/checkpoint/, and the evaluation and payload files of duplicates.\n"
        "All that is drawn is drawn from the seed.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=1500, help="steps of pairs and queries (default: 1500)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, batches, tokenizer (default: 0)")
    parser.add_argument("--output", type=Path, default=WORKLOADS, help="in place of workloads/, where to write")
    return parser


if __name__ == "__main__":
    main()
