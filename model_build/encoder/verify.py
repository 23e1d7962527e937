"""The backend of encoders: compiles the graph and compares it with its original, example by example.

In: a `Predictor` over the compiled graph, which is the serving code itself, and the reference. Out: a
`ParityComparison` of each example. Both get the same rows. Numbers are compared before the last step of the serving
code, answers after it. An example is one text, or two for embeddings; a long text is several windows of the model.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from containers.encoder.answers import Answer as Served
from containers.encoder.answers import answer
from containers.encoder.engines import load_engine
from containers.encoder.predictor import Predictor, by_window
from containers.encoder.preprocess import Preprocessor
from containers.encoder.row import Refusal
from containers.encoder.settings import Settings
from containers.encoder.tensors import Encoding
from model_build.accuracy import ScoredAnswer
from model_build.encoder.compile import compile_graphs, layers, typed_graphs
from model_build.encoder.graphs import settings
from model_build.encoder.reference import Outputs, Reference
from model_build.parity import Compare, ParityComparison
from model_build.plan import BuildPlan
from model_build.progress import Progress, silent
from model_build.torch_threads import threads_kept
from model_build.triton.repository import version_folder
from workloads import Example, Row
from workloads.errors import InvalidDocument

__all__ = ["comparer", "compile_graphs", "layers", "served_folder", "typed_graphs"]

ORIGINAL_BATCH = 32
SAME_SCORE = 1e-3
"""Two scores that are no further apart are the same answer, and so are embeddings whose cosine is as near to 1."""
SAME_DIRECTION = 1e-4
Texts = list[list[Outputs]]
"""The outputs of a model for an example: of each window of each of its texts."""


def served_folder(plan: BuildPlan, made: Path) -> Path:
    """The folder of the repository `made` from which the serving code loads the graph."""
    return version_folder(made, f"{plan.workload.name}_model")


def comparer(plan: BuildPlan, made: Path, progress: Progress) -> Compare:
    """Runs the original over every example; it is released before a compiled model is loaded."""
    preprocessor = Preprocessor.load(version_folder(made, f"{plan.workload.name}_tokenise"))
    known = settings(plan.compile_inputs.encoder, plan.target, plan.checkpoint)
    batch_size = min(ORIGINAL_BATCH, plan.variant.serving.max_batch_size)
    return comparison(
        plan, lambda folder: Predictor(preprocessor, load_engine.load(folder, known)), batch_size, progress
    )


def comparison(plan: BuildPlan, load: Callable[[Path], Predictor], batch_size: int, progress: Progress) -> Compare:
    """Runs the original over every example, to compare it with what `load` makes of a folder."""
    progress("Loading the original")
    reference = Reference(plan.checkpoint, plan.compile_inputs.encoder)
    wanted = originals(reference, plan.examples, ORIGINAL_BATCH, progress)

    def compared(folder: Path, progress: Progress) -> list[ParityComparison]:
        file = plan.source.path / "evaluation.jsonl"
        with threads_kept():
            return compare(wanted, load(folder), plan.examples, batch_size=batch_size, file=file, progress=progress)

    return compared


def originals(
    reference: Reference, examples: Sequence[Example], batch_size: int, progress: Progress = silent
) -> list[Texts]:
    """Runs the original over every example and returns its outputs, so that it need not stay in memory afterwards."""
    outputs: list[Texts] = []
    for start in range(0, len(examples), batch_size):
        progress(f"Running the original, {start} of {len(examples)} examples")
        batch = examples[start : start + batch_size]
        given = iter(reference.outputs([row for example in batch for row in rows_of(example)]))
        outputs += [list(islice(given, len(rows_of(example)))) for example in batch]
    return outputs


def compare(
    wanted: Sequence[Texts],
    compiled: Predictor,
    examples: Sequence[Example],
    *,
    batch_size: int,
    file: Path,
    progress: Progress = silent,
) -> list[ParityComparison]:
    """Runs every example through the compiled model, in batches of `batch_size`, and compares with `wanted`.

    `file` is where the examples are from: `InvalidDocument` names it if one cannot be tokenised.
    """
    encoded = iter(_encode(compiled, [row for example in examples for row in rows_of(example)], file))
    encodings = [list(islice(encoded, len(rows_of(example)))) for example in examples]
    comparisons: list[ParityComparison] = []
    for start in range(0, len(examples), batch_size):
        progress(f"Verifying, {start} of {len(examples)} examples")
        window = slice(start, start + batch_size)
        comparisons += _compare_batch(wanted[window], compiled, examples[window], encodings[window])
    return comparisons


def rows_of(example: Example) -> list[Row]:
    """Returns the rows of an example: its own, and for a pair of embeddings the other text's."""
    if example.other is None:
        return [example.row]
    first, *others = example.row
    return [example.row, {first: example.other, **dict.fromkeys(others, "")}]


def evaluation_keys(settings: Settings, served: Served) -> dict[str, Any]:
    """Returns the keys that a line of evaluation.jsonl has where an answer is its label."""
    match settings.kind:
        case "multi_label_classification":
            return {"labels": json.loads(str(served["LABELS"]))}
        case "regression" | "text-ranking":
            return {"score": served["SCORE"]}
        case "text-pair-scoring":
            return {"label": served["RELATION"], "score": served["DUPLICATE_SCORE"]}
        case "token-classification":
            found = json.loads(str(served["ENTITIES"]))
            return {"entities": [{key: each[key] for key in ("label", "start", "end")} for each in found]}
        case "feature-extraction":
            return {}
        case "question-answering":
            return {"label": served["ANSWER"]}
        case _:
            return {"label": served["LABEL"]}


def measured(settings: Settings) -> Settings:
    """Returns the settings by which answers are compared: of tokens by themselves their entities are."""
    return replace(settings, aggregation="simple") if settings.aggregation == "none" else settings


def _compare_batch(
    wanted: Sequence[Texts], compiled: Predictor, examples: Sequence[Example], encodings: Sequence[Sequence[Encoding]]
) -> Iterator[ParityComparison]:
    settings = measured(compiled.settings)
    flat = [code for codes in encodings for code in codes]
    outputs = compiled.run(flat)
    windows = iter(by_window(outputs, flat))
    answers = iter(answer(settings, outputs, flat, [row for example in examples for row in rows_of(example)]))
    for example, codes, texts in zip(examples, encodings, wanted, strict=True):
        pairs = zip(chain.from_iterable(texts), islice(windows, sum(1 + len(code.more) for code in codes)), strict=True)
        differences = np.concatenate(
            [np.abs(ours[name] - output).ravel() for theirs, ours in pairs for name, output in theirs.items()]
        )
        original, served = by_original(settings, example, codes, texts), list(islice(answers, len(codes)))
        expected, given = (answered(settings, each, original) for each in (original, served))
        yield ParityComparison(
            example=example,
            original=expected,
            compiled=given,
            identical=_identical(settings, expected, given),
            max_logit_difference=float(differences.max()),
            mean_logit_difference=float(differences.mean()),
            logits=differences.size,
        )


def by_original(settings: Settings, example: Example, encodings: Sequence[Encoding], given: Texts) -> list[Served]:
    """Returns the answers to an example's texts by the serving code's last step over the original's numbers."""
    answers = []
    for windows, code, row in zip(given, encodings, rows_of(example), strict=True):
        # One batch; outputs per token are padded to the longest.
        text = {name: np.stack([_padded(each[name], windows, name) for each in windows]) for name in windows[0]}
        answers.append(answer(settings, text, [code], [row])[0])
    return answers


def answered(settings: Settings, served: Sequence[Served], original: Sequence[Served]) -> ScoredAnswer:
    """Returns what the gate reads of the answers to an example's texts; `original` are those with the original."""
    first, keys = served[0], evaluation_keys(settings, served[0])
    match settings.kind:
        case "multi_label_classification":
            return ScoredAnswer(text=", ".join(sorted(keys["labels"])) or "none", labels=frozenset(keys["labels"]))
        case "regression" | "text-ranking":
            return ScoredAnswer(text=f"{keys['score']:.4f}", score=keys["score"])
        case "token-classification":
            found = json.loads(str(first["ENTITIES"]))
            return ScoredAnswer(
                text=", ".join(f"{each['label']} {each['text']!r}" for each in found) or "none",
                entities=frozenset((each["label"], each["start"], each["end"]) for each in found),
            )
        case "feature-extraction":
            near = _cosine(first, original[0])
            score = _cosine(*served) if len(served) > 1 else None
            return ScoredAnswer(text=f"cosine {near:.6f} with the original's", score=score, to_original=near)
        case _:
            return ScoredAnswer(text=str(keys["label"]), score=keys.get("score"))


def _identical(settings: Settings, original: ScoredAnswer, compiled: ScoredAnswer) -> bool:
    match settings.kind:
        case "multi_label_classification" | "token-classification":
            return (original.labels, original.entities) == (compiled.labels, compiled.entities)
        case "regression" | "text-ranking":
            return abs((original.score or 0.0) - (compiled.score or 0.0)) <= SAME_SCORE
        case "feature-extraction":
            return (compiled.to_original or 0.0) >= 1 - SAME_DIRECTION
        case _:
            return original.text == compiled.text


def _cosine(one: Served, other: Served) -> float:
    first, second = (np.array(each["EMBEDDING"], np.float64) for each in (one, other))
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / norm if norm else 0.0


def _padded(output: NDArray[Any], text: Sequence[Outputs], name: str) -> NDArray[Any]:
    if len(text) == 1:
        return output
    fill = max(len(window[name]) for window in text) - len(output)
    return np.pad(output, [(0, fill), *[(0, 0)] * (output.ndim - 1)])


def _encode(compiled: Predictor, rows: Sequence[Row], file: Path) -> list[Encoding]:
    encoded = compiled.preprocessor.encode(rows)
    problems = [
        f"the row {' | '.join(row.values())[:60]!r} {code.message}."
        for row, code in zip(rows, encoded, strict=True)
        if isinstance(code, Refusal)
    ]
    if problems:
        raise InvalidDocument(file, problems)
    return [code for code in encoded if not isinstance(code, Refusal)]
