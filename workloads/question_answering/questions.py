"""Training and evaluation data: questions, some mistyped, with descriptions that answer them.

A question's phrasing beside the phrasing of the sentence that answers it belongs to training or to evaluation by its
hash: the model is judged on combinations that it never saw, about products and values drawn anew. Live traffic
(`payload_questions`) is drawn from all.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from workloads.product_bert.phrasing import is_held_out
from workloads.question_answering.grammar import Question, sample
from workloads.spellcheck import typos

# Evaluation and payloads are the same whatever seed trains.
EVALUATION_SEED, EVALUATION_QUESTIONS = 110, 600
PAYLOAD_SEED, PAYLOADS = 120, 256

MISTYPED = 0.1
LETTER_KINDS = (typos.replace_letter, typos.delete_letter, typos.swap_letters, typos.double_letter)


def training_questions(rng: Random) -> Iterator[Question]:
    """Yields questions without end; no combination of phrasings is held out."""
    while True:
        question = sample(rng)
        if not is_held_out(question.phrasing):
            yield mistype(question, rng)


def evaluation_questions() -> list[Question]:
    """Returns the lines of evaluation.jsonl: every combination of phrasings is held out, and different."""
    rng = Random(EVALUATION_SEED)
    found: dict[str, Question] = {}
    while len(found) < EVALUATION_QUESTIONS:
        question = sample(rng)
        if is_held_out(question.phrasing):
            found.setdefault(question.phrasing, mistype(question, rng))
    return list(found.values())


def payload_questions() -> list[Question]:
    """Returns the lines of payloads.jsonl: different questions of live traffic."""
    rng = Random(PAYLOAD_SEED)
    found: dict[tuple[str, str], Question] = {}
    while len(found) < PAYLOADS:
        question = mistype(sample(rng), rng)
        found[question.question, question.context] = question
    return list(found.values())


def mistype(question: Question, rng: Random) -> Question:
    """Makes a mistake in a longer word of one question in ten, and none in the description."""
    words = question.question.split(" ")
    places = [at for at, word in enumerate(words) if word.isalpha() and word.islower() and len(word) > 4]
    if places and rng.random() < MISTYPED:
        at = rng.choice(places)
        words[at] = rng.choice(LETTER_KINDS)(words[at], rng)
    return replace(question, question=" ".join(words))
