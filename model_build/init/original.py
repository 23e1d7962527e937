"""Runs the original model to label unlabelled examples and to measure its baseline metrics on labelled ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from model_build.accuracy import ScoredAnswer
from model_build.checkpoint import Checkpoint
from model_build.progress import Progress
from workloads import EncoderModel, Example, Model, OnnxRuntimeTarget, TextToText, UsageError

BATCH = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Originals:
    """The original's answers, one for each row; `keys` are those of the row in evaluation.jsonl."""

    answers: Sequence[ScoredAnswer]
    keys: Sequence[Mapping[str, Any]]
    longest_answer: int
    """In tokens, of a generated text; 0 for an encoder."""


def ask_original(checkpoint: Checkpoint, model: Model, examples: Sequence[Example], progress: Progress) -> Originals:
    """Runs the original on every example. Raises `UsageError` if transformers cannot load or run it."""
    if isinstance(model, TextToText):
        return _generated(checkpoint, model, examples, progress)
    return _encoded(checkpoint, model, examples, progress)


def _encoded(checkpoint: Checkpoint, model: EncoderModel, examples: Sequence[Example], progress: Progress) -> Originals:
    from tokenizers import Tokenizer

    from containers.encoder.preprocess import Preprocessor
    from containers.encoder.row import Refusal
    from model_build.encoder import verify
    from model_build.encoder.graphs import settings
    from model_build.encoder.reference import Reference

    known = verify.measured(settings(model, OnnxRuntimeTarget(runtime="onnxruntime"), checkpoint))
    preprocessor = Preprocessor(Tokenizer.from_file(str(checkpoint.tokenizer)), known)
    rows = [verify.rows_of(example) for example in examples]
    asked = [row for own in rows for row in own]
    encodings = preprocessor.encode(asked)
    for row, code in zip(asked, encodings, strict=True):
        if isinstance(code, Refusal):
            raise UsageError(f"--examples: the row {' | '.join(row.values())[:60]!r} {code.message}.")
    good = (code for code in encodings if not isinstance(code, Refusal))
    outputs = verify.originals(Reference(checkpoint, model), examples, BATCH, progress)
    served = [
        verify.by_original(known, example, list(islice(good, len(own))), texts)
        for example, own, texts in zip(examples, rows, outputs, strict=True)
    ]
    answers = [verify.answered(known, each, each) for each in served]
    keys = [verify.evaluation_keys(known, each[0]) for each in served]
    return Originals(answers=answers, keys=keys, longest_answer=0)


def _generated(checkpoint: Checkpoint, model: TextToText, examples: Sequence[Example], progress: Progress) -> Originals:
    from model_build.text2text import export, repository, verify

    known = repository.settings(model, OnnxRuntimeTarget(runtime="onnxruntime"), checkpoint)
    original = verify.Original.load(checkpoint.folder, export.load(checkpoint.folder))
    answers, longest = [], 0
    count = verify.batch(original, known)
    for start in range(0, len(examples), count):
        progress(f"Running the original, {start} of {len(examples)} examples")
        tokens, _ = original.generate([example.row["text"] for example in examples[start : start + count]], known)
        for row in tokens:
            own = row[: verify.length(row, known.eos_token_ids)]
            longest = max(longest, len(own))
            answers.append(ScoredAnswer(text=original.decode(own)))
    keys = [{"label": each.text} for each in answers]
    return Originals(answers=answers, keys=keys, longest_answer=longest)
