"""Compares the compiled encoder with its original, example by example.

In: a `Predictor` over the compiled graph, which is the serving code itself, and the reference. Out: one `Comparison`
per example. Both get the same rows; numbers are compared before, answers after the serving code's own last step.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from containers.encoder.answers import Answer as Served
from containers.encoder.answers import answer
from containers.encoder.predictor import Predictor
from containers.encoder.row import Refusal
from containers.encoder.settings import Settings
from containers.encoder.tensors import Encoding
from model_build.encoder.reference import Outputs, Reference
from model_build.parity import Answer, Comparison
from model_build.progress import Progress, silent
from workloads import Example
from workloads.errors import InvalidDocument

ANSWER_KEYS = {"text-classification": "LABEL", "text-pair-scoring": "RELATION", "question-answering": "ANSWER"}


def originals(
    reference: Reference, examples: Sequence[Example], batch_size: int, progress: Progress = silent
) -> list[Outputs]:
    """Runs the original over every example and returns its outputs, so that it need not stay in memory afterwards."""
    outputs: list[Outputs] = []
    for start in range(0, len(examples), batch_size):
        progress(f"Asking the original, {start} of {len(examples)} examples")
        outputs += reference.outputs([example.row for example in examples[start : start + batch_size]])
    return outputs


def compare(
    wanted: Sequence[Outputs],
    compiled: Predictor,
    examples: Sequence[Example],
    *,
    batch_size: int,
    file: Path,
    progress: Progress = silent,
) -> list[Comparison]:
    """Runs every example through the compiled model, in batches of `batch_size`, and compares with `wanted`.

    `file` is where the examples are from: `InvalidDocument` names it when one cannot be asked at all.
    """
    encodings = _encode(compiled, examples, file)
    comparisons: list[Comparison] = []
    for start in range(0, len(examples), batch_size):
        progress(f"Verifying, {start} of {len(examples)} examples")
        window = slice(start, start + batch_size)
        comparisons += _compare_batch(wanted[window], compiled, examples[window], encodings[window])
    return comparisons


def _compare_batch(
    wanted: Sequence[Outputs],
    compiled: Predictor,
    examples: Sequence[Example],
    encodings: Sequence[Encoding],
) -> list[Comparison]:
    given = compiled.outputs(encodings)
    served = compiled.answer(encodings, [example.row for example in examples])
    return [_comparison(compiled, *each) for each in zip(examples, encodings, wanted, given, served, strict=True)]


def _comparison(
    compiled: Predictor,
    example: Example,
    encoding: Encoding,
    wanted: Outputs,
    given: Outputs,
    served: Served,
) -> Comparison:
    # The serving code's last step over the original's numbers: what it would have answered with the original.
    rows = {name: output[None] for name, output in wanted.items()}
    (original,) = answer(compiled.settings, rows, [encoding], [example.row])
    differences = np.concatenate([np.abs(given[name] - output).ravel() for name, output in wanted.items()])
    said, says = answered(compiled.settings, original), answered(compiled.settings, served)
    return Comparison(
        example=example,
        original=said,
        compiled=says,
        identical=said.text == says.text,
        max_logit_difference=float(differences.max()),
        mean_logit_difference=float(differences.mean()),
        logits=differences.size,
    )


def answered(settings: Settings, served: Served) -> Answer:
    score = served.get("DUPLICATE_SCORE")
    return Answer(text=str(served[ANSWER_KEYS[settings.task]]), score=score if isinstance(score, float) else None)


def evaluation_keys(settings: Settings, served: Served) -> dict[str, Any]:
    """Returns the keys that a row of evaluation.jsonl has where this answer is its label."""
    own = answered(settings, served)
    return {"label": own.text} | ({} if own.score is None else {"score": own.score})


def _encode(compiled: Predictor, examples: Sequence[Example], file: Path) -> list[Encoding]:
    encoded = compiled.preprocessor.encode([example.row for example in examples])
    problems = [
        f"the row {' | '.join(example.row.values())[:60]!r} {code.message}."
        for example, code in zip(examples, encoded, strict=True)
        if isinstance(code, Refusal)
    ]
    if problems:
        raise InvalidDocument(file, problems)
    return [code for code in encoded if not isinstance(code, Refusal)]
