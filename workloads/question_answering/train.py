"""Train the checkpoint of the question-answering workload, and write its evaluation and payload files.

python -m workloads.question_answering.train [--steps N] [--seed S] [--output FOLDER]

The tasks of a step: the place of the answer; which fact is asked for; of each piece, which fact its sentence states,
and whether the question has it too. The heads of the last three are thrown away: they are there so that fewer steps
show the model that questions and facts have to be compared.
"""

import argparse
import bisect
import collections
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import torch
from tokenizers import Encoding, Tokenizer
from torch import nn
from torch.nn import functional
from transformers import BertForQuestionAnswering

from workloads.product_bert.training import (
    Model,
    begin_with_likeness,
    bert_config,
    encode,
    fit,
    megabytes,
    shared_piece_loss,
    write_lines,
)
from workloads.product_bert.word_pieces import load_tokenizer, save_tokenizer, train_word_pieces
from workloads.question_answering.grammar import Question, facts
from workloads.question_answering.questions import evaluation_questions, payload_questions, training_questions

FOLDER = Path(__file__).parent
VOCABULARY_SIZE = 2000
CORPUS_QUESTIONS = 10_000
LAYERS, MAX_TOKENS = 4, 128
BATCH_SIZE = 48
EVALUATION_BATCH = 100
PEAK_LEARNING_RATE = 1e-3
MAX_ANSWER_TOKENS = 16
# Places that count in no loss.
IGNORED = -100

EXAMPLES = """\
examples:
  python -m workloads.question_answering.train                              the committed checkpoint, made again
  python -m workloads.question_answering.train --steps 20 --output /tmp/x   see it work, leave the checkpoint alone

Progress goes to stderr; stdout gets one JSON document with the figures. Run it from the repository's root.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The figures of a training run on the evaluation questions. F1 is of words, the mean over the questions."""

    steps: int
    seed: int
    parameters: int
    exact_match: float
    f1: float
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

    tokenizer = train_word_pieces(corpus(options.seed), VOCABULARY_SIZE)
    config = bert_config(tokenizer.get_vocab_size(), layers=LAYERS, max_tokens=MAX_TOKENS)
    model: Model = BertForQuestionAnswering(config)
    begin_with_likeness(model.bert)
    seconds = train(model, tokenizer, steps=options.steps, seed=options.seed)
    save_tokenizer(tokenizer, checkpoint, MAX_TOKENS)
    model.save_pretrained(checkpoint)

    questions = evaluation_questions()
    write_lines(options.output / "evaluation.jsonl", [question.example() for question in questions])
    write_lines(options.output / "payloads.jsonl", [question.request() for question in payload_questions()])
    figures = evaluate(checkpoint, questions, steps=options.steps, seed=options.seed, seconds=seconds)
    print(json.dumps(asdict(figures), indent=2))


def corpus(seed: int) -> Iterator[str]:
    """Yields the tokenizer's training texts: training questions and their descriptions."""
    for question in itertools.islice(training_questions(Random(seed)), CORPUS_QUESTIONS):
        yield question.question
        yield question.context


def train(model: Model, tokenizer: Tokenizer, *, steps: int, seed: int) -> float:
    """Trains on the answer's place and on three tasks beside it. Returns the seconds it took."""
    hidden_size = model.config.hidden_size
    fact_head, shared_head = nn.Linear(hidden_size, 1 + len(facts())), nn.Linear(hidden_size, 1)
    answering_head = nn.Linear(hidden_size, 1)

    def loss_of(batch: list[Question]) -> torch.Tensor:
        texts = [(question.question, question.context) for question in batch]
        tokens, encodings = encode(tokenizer, texts), tokenizer.encode_batch(texts)
        hidden = model.bert(**tokens).last_hidden_state
        spans = torch.tensor([span(*pair) for pair in zip(batch, encodings, strict=True)])
        facts_of = padded([fact_numbers(*pair) for pair in zip(batch, encodings, strict=True)])
        answering = padded([answering_pieces(*pair) for pair in zip(batch, encodings, strict=True)])
        places = answering != IGNORED
        return (
            2 * functional.cross_entropy(model.qa_outputs(hidden).float(), spans)
            + functional.cross_entropy(fact_head(hidden).transpose(1, 2), facts_of, ignore_index=IGNORED)
            + functional.binary_cross_entropy_with_logits(
                answering_head(hidden)[..., 0].float()[places], answering[places].float()
            )
            + shared_piece_loss(shared_head, hidden, tokens)
        )

    modules = [model, fact_head, answering_head, shared_head]
    batches = training_batches(Random(seed + 1))
    return fit(modules, batches, loss_of, steps=steps, peak_learning_rate=PEAK_LEARNING_RATE)


def training_batches(rng: Random) -> Iterator[list[Question]]:
    questions = training_questions(rng)
    while True:
        yield list(itertools.islice(questions, BATCH_SIZE))


def span(question: Question, encoding: Encoding) -> tuple[int, int]:
    """Returns the places of the answer's first and last piece."""
    start = question.context.index(question.label)
    first, last = (encoding.char_to_token(at, 1) for at in (start, start + len(question.label) - 1))
    assert first is not None
    assert last is not None
    return first, last


def fact_numbers(question: Question, encoding: Encoding) -> torch.Tensor:
    """Returns for each piece 1 + the fact that its sentence states or the question asks for; 0 for none of them."""
    numbers = {name: at for at, name in enumerate(facts(), start=1)}
    stated = [numbers[fact] if fact else 0 for fact, _ in question.stated]
    asked = [numbers[question.asked], IGNORED]
    return torch.tensor(
        [
            stated[at] if at is not None else asked[sequence is None]
            for at, sequence in zip(_sentences(question, encoding), encoding.sequence_ids, strict=True)
        ]
    )


def answering_pieces(question: Question, encoding: Encoding) -> torch.Tensor:
    """Returns for each piece of the description whether its sentence holds the answer; elsewhere `IGNORED`."""
    ends = [end for _, end in question.stated]
    answering = bisect.bisect_right(ends, question.context.index(question.label))
    return torch.tensor([IGNORED if at is None else at == answering for at in _sentences(question, encoding)])


def _sentences(question: Question, encoding: Encoding) -> list[int | None]:
    """Returns for each piece of the description the number of its sentence; elsewhere None."""
    ends = [end for _, end in question.stated]
    return [
        bisect.bisect_right(ends, start) if sequence == 1 else None
        for sequence, (start, _) in zip(encoding.sequence_ids, encoding.offsets, strict=True)
    ]


def padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=IGNORED)


@torch.inference_mode()
def answer(model: Model, tokenizer: Tokenizer, questions: Sequence[Question]) -> list[str]:
    """Returns the likeliest span of each description, of at most `MAX_ANSWER_TOKENS` pieces."""
    texts = [(question.question, question.context) for question in questions]
    output = model(**encode(tokenizer, texts))
    answers: list[str] = []
    scores = output.start_logits[:, :, None] + output.end_logits[:, None, :]
    for question, encoding, score in zip(questions, tokenizer.encode_batch(texts), scores, strict=True):
        context = torch.tensor([sequence == 1 for sequence in encoding.sequence_ids])
        places = context[:, None] & context[None, :]
        places &= torch.ones_like(places).triu() & ~torch.ones_like(places).triu(MAX_ANSWER_TOKENS)
        length = len(context)
        best = int(score[:length, :length].masked_fill(~places, -torch.inf).argmax())
        (start, _), (_, end) = encoding.offsets[best // length], encoding.offsets[best % length]
        answers.append(question.context[start:end])
    return answers


def f1(got: str, label: str) -> float:
    """Returns the harmonic mean of precision and recall of the answer's words."""
    got_words, label_words = (collections.Counter(re.findall(r"\w+", text.lower())) for text in (got, label))
    shared = (got_words & label_words).total()
    return 2 * shared / (got_words.total() + label_words.total())


def evaluate(checkpoint: Path, questions: Sequence[Question], *, steps: int, seed: int, seconds: float) -> Figures:
    """Loads the checkpoint from its files, answers every question, and counts."""
    model: Model = BertForQuestionAnswering.from_pretrained(checkpoint)
    model.eval()
    tokenizer = load_tokenizer(checkpoint)
    answers: list[str] = []
    for at in range(0, len(questions), EVALUATION_BATCH):
        answers += answer(model, tokenizer, questions[at : at + EVALUATION_BATCH])
    lengths = [len(tokenizer.encode(question.question, question.context).ids) for question in questions]
    return Figures(
        steps=steps,
        seed=seed,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        exact_match=_mean([got == question.label for got, question in zip(answers, questions, strict=True)]),
        f1=_mean([f1(got, question.label) for got, question in zip(answers, questions, strict=True)]),
        mean_tokens=_mean(lengths),
        max_tokens=max(lengths),
        checkpoint_mb=megabytes(checkpoint),
        training_seconds=round(seconds, 1),
    )


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.question_answering.train",
        description="Train a small BERT that answers questions from product descriptions, and write checkpoint/,\n"
        "evaluation.jsonl and payloads.jsonl. All that is drawn is drawn from the seed.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=1800, help="steps of 48 questions (default: 1800)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, batches, tokenizer (default: 0)")
    parser.add_argument("--output", type=Path, default=FOLDER, help="where to write (default: the workload)")
    return parser


if __name__ == "__main__":
    main()
