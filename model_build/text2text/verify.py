"""The backend of encoder–decoders: compiles both graphs and compares them with Hugging Face `generate`.

In: a checkpoint, a `TextGenerator` over compiled graphs, the evaluation pairs. Out: a `ParityComparison` of each. The
decoding loop is the container's, not a copy. Both decode as the model is served: greedily or with beams, under the same
constraints. A model that is served with sampling is compared greedily. Logits are compared by feeding the original's
output tokens to the compiled decoder.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer, GenerationConfig

from containers.text2text.decoding import Tokens, greedy
from containers.text2text.generation import SAMPLING, Generation
from containers.text2text.generator import Refusal, TextGenerator, pad
from containers.text2text.guided import guided
from containers.text2text.settings import Settings
from model_build.accuracy import ScoredAnswer
from model_build.checkpoint import loading
from model_build.parity import Compare, GuidedCheck, ParityComparison
from model_build.plan import BuildPlan
from model_build.progress import Progress, silent
from model_build.text2text import export, repository, static_onnx
from model_build.text2text.compile import compile_graphs, layers, typed_graphs
from model_build.torch_threads import every_core
from model_build.triton.repository import version_folder
from workloads import Example, TensorRtTarget
from workloads.errors import InvalidDocument

__all__ = ["comparer", "compile_graphs", "layers", "served_folder", "typed_graphs"]

ORIGINAL_BATCH = 64
"""Rows in a batch of the original model: `generate` is slow, and wide batches help it most."""
ORIGINAL_LOGITS = 2**27
"""Numbers that such a batch may have as logits, half a gigabyte: a vocabulary of 250,000 takes smaller batches."""


def served_folder(plan: BuildPlan, made: Path) -> Path:
    """The folder of the repository `made` from which the serving code loads the graphs."""
    return version_folder(made, plan.workload.name)


def comparer(plan: BuildPlan, made: Path, progress: Progress) -> Compare:
    """Loads the original. The serving code runs the compiled model with the tokenizer in its folder."""
    progress("Loading the checkpoint")
    original = Original.load(plan.checkpoint.folder, export.load(plan.checkpoint.folder))
    known = repository.settings(plan.compile_inputs.text2text, plan.target, plan.checkpoint)
    settings = replace(known, max_batch_size=plan.variant.serving.max_batch_size)

    def compared(folder: Path, progress: Progress) -> list[ParityComparison]:
        static = isinstance(plan.target, TensorRtTarget) and not any(folder.glob("*.plan"))
        load = static_onnx.generator if static else TextGenerator.load
        compiled, file = load(folder, settings), plan.source.path / "evaluation.jsonl"
        size = settings.max_batch_size
        return compare(original, compiled, plan.examples, batch_size=size, file=file, progress=progress)

    return compared


@dataclass(frozen=True, slots=True)
class Original:
    """The reference: a model and its tokenizer as transformers loads them."""

    folder: Path
    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, folder: Path, model: Any) -> "Original":
        with loading(folder):
            return cls(folder, model, AutoTokenizer.from_pretrained(folder, local_files_only=True))

    def generate(self, texts: list[str], settings: Settings) -> tuple[Tokens, NDArray[np.float32]]:
        """Decodes as the settings say, greedily where they say by chance.

        Returns output tokens [rows, steps] and their logits [rows, steps, vocabulary].
        """
        generation = replace(settings.generation, do_sample=False)
        with loading(self.folder), torch.inference_mode(), every_core():
            inputs = self.tokenizer(texts, padding=True, return_tensors="pt")
            source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
            # transformers takes from the model's own what a configuration leaves open.
            self.model.generation_config = _configuration(settings, generation)
            output = self.model.generate(**source)
            tokens = output.sequences[:, 1:]
            if generation.plain:
                logits = torch.stack(output.logits, 1)
            else:
                # Those of `generate` are of all beams, and of the scores that constraints have changed.
                logits = self.model(**source, decoder_input_ids=output.sequences[:, :-1], use_cache=False).logits
        return tokens.numpy(), logits.numpy()

    def decode(self, tokens: Tokens) -> str:
        return str(self.tokenizer.decode(tokens.tolist(), skip_special_tokens=True))


def compare(
    original: Original,
    compiled: TextGenerator,
    examples: Sequence[Example],
    *,
    batch_size: int,
    file: Path,
    progress: Progress = silent,
) -> list[ParityComparison]:
    """Runs every example through both; the compiled model in batches of `batch_size`.

    `file` is where the examples are from: `InvalidDocument` names it if one cannot be tokenised.
    """
    rows = _tokenise(compiled, examples, file)
    comparisons: list[ParityComparison] = []
    count = batch(original, compiled.settings)
    for start in range(0, len(examples), count):
        progress(f"Verifying, {start} of {len(examples)} examples")
        window = slice(start, start + count)
        comparisons += _compare_batch(original, compiled, examples[window], rows[window], batch_size)
    return comparisons


def batch(original: Original, settings: Settings) -> int:
    """Returns how many rows the original runs at once."""
    width = int(original.model.get_output_embeddings().weight.shape[0]) * settings.max_output_tokens
    return max(1, min(ORIGINAL_BATCH, ORIGINAL_LOGITS // width))


def _compare_batch(
    original: Original, compiled: TextGenerator, examples: Sequence[Example], rows: list[list[int]], batch_size: int
) -> list[ParityComparison]:
    settings = compiled.settings
    generation = replace(settings.generation, do_sample=False)
    tokens, expected = original.generate([example.row["text"] for example in examples], settings)
    batches = [slice(first, first + batch_size) for first in range(0, len(rows), batch_size)]
    answers = [answer for batch in batches for answer in compiled.generate(rows[batch], generation)]
    logits = [forced_logits(compiled.engine, rows[batch], tokens[batch], settings) for batch in batches]
    difference = np.abs(np.concatenate(logits) - expected)
    guidance = _guided(compiled, rows) if generation.guided != "off" else [None] * len(rows)
    references = [row[: length(row, settings.eos_token_ids)] for row in tokens]
    return [
        ParityComparison(
            example=example,
            original=ScoredAnswer(text=original.decode(reference)),
            compiled=ScoredAnswer(text=text),
            identical=np.array_equal(reference, answer),
            max_logit_difference=float(distance[: len(reference)].max()),
            mean_logit_difference=float(distance[: len(reference)].mean()),
            logits=int(distance[: len(reference)].size),
            guided=check,
        )
        for example, reference, answer, text, distance, check in zip(
            examples, references, answers, compiled.decode(answers), difference, guidance, strict=True
        )
    ]


def _guided(compiled: TextGenerator, rows: list[list[int]]) -> list[GuidedCheck | None]:
    """Decodes the rows guided and greedily: each by itself, and in the largest batches that are guided."""
    engine: Any = compiled.engine  # an `Engine` and a `CheckingEngine`
    checks = [_guided_batches(compiled, engine, rows, size) for size in sorted({1, engine.most_rows})]
    return [replace(row[0], same=all(check.same for check in row)) for row in zip(*checks, strict=True)]


def _guided_batches(compiled: TextGenerator, engine: Any, rows: list[list[int]], size: int) -> list[GuidedCheck]:
    checks: list[GuidedCheck] = []
    settings, mode = compiled.settings, compiled.settings.generation.guided
    assert mode != "off"
    for first in range(0, len(rows), size):
        sources = rows[first : first + size]
        batch = (engine, *pad(sources, settings.pad_token_id), settings)
        for answer, passes, expected in zip(*guided(*batch, mode, sources), greedy(*batch), strict=True):
            checks.append(GuidedCheck(tokens=len(answer), passes=passes, same=np.array_equal(answer, expected)))
    return checks


def forced_logits(engine: Any, rows: list[list[int]], tokens: Tokens, settings: Settings) -> NDArray[np.float32]:
    """Returns the compiled decoder's logits [rows, steps, vocabulary] after each step of `tokens`.

    `engine` can answer with its logits: it has `logits` besides what decoding asks for.
    """
    state = engine.encode(*pad(rows, settings.pad_token_id), settings.decoder_start_token_id)
    start = np.full((len(tokens), 1), settings.decoder_start_token_id)
    fed = np.concatenate([start, tokens[:, :-1]], 1)
    return np.stack([engine.logits(state, fed[:, [step]]) for step in range(fed.shape[1])], 1)


def _tokenise(compiled: TextGenerator, examples: Sequence[Example], file: Path) -> list[list[int]]:
    rows = [compiled.tokenise(example.row["text"].encode()) for example in examples]
    problems = [
        f"text {example.row['text'][:60]!r} {row.message}."
        for example, row in zip(examples, rows, strict=True)
        if isinstance(row, Refusal)
    ]
    if problems:
        raise InvalidDocument(file, problems)
    return [row for row in rows if not isinstance(row, Refusal)]


def length(tokens: Tokens, eos_token_ids: tuple[int, ...]) -> int:
    """Returns the length up to and with the first end-of-sequence: `generate` pads behind it."""
    ends = np.flatnonzero(np.isin(tokens, eos_token_ids))
    return int(ends[0]) + 1 if len(ends) else len(tokens)


def _configuration(settings: Settings, generation: Generation) -> Any:
    """Returns transformers' configuration of the same search."""
    kind: Any = GenerationConfig
    asked = json.loads(generation.to_json())
    for name in ("guided", "settable", *SAMPLING):
        asked.pop(name, None)
    return kind(
        do_sample=False,
        forced_eos_token_id=asked.pop("forced_eos_token_ids", None),
        **asked,
        max_new_tokens=settings.max_output_tokens,
        decoder_start_token_id=settings.decoder_start_token_id,
        eos_token_id=list(settings.eos_token_ids),
        pad_token_id=settings.pad_token_id,
        output_logits=generation.plain,
        return_dict_in_generate=True,
    )
