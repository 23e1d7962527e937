"""Chooses the golden rows of a Neuron archive and computes what the original gives for them, in fp32 on this CPU.

The original is the very module that is compiled, as plain PyTorch runs it before the compiler sees it, because the
Neuron images have no transformers. Tests hold that module to transformers, as the gates of the CPU targets do.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from containers.encoder.goldens import GOLDENS, Golden, to_json
from containers.encoder.preprocess import Preprocessor
from containers.encoder.settings import Settings
from containers.encoder.tensors import Encoding, padded_length, per_token, tensors
from model_build.checkpoint import loading
from model_build.compile_inputs import CompileInputs
from model_build.encoder.graphs import settings

ROWS_FOR_EACH_LENGTH = 4
DIGITS = 7


class _Original(NamedTuple):
    """A row, and the original's outputs for it; `margin` is how far its largest number is above the next."""

    row: int
    encoding: Encoding
    outputs: dict[str, list[float]]
    margin: float


def write(module: Any, inputs: CompileInputs, folder: Path) -> None:
    """Writes goldens.json: rows of evaluation.jsonl through a torch module in evaluation mode."""
    from tokenizers import Tokenizer

    from containers.encoder.torchscript_tokenizer import TorchScriptTokenizer

    checkpoint = inputs.checkpoint
    known = settings(inputs.encoder, inputs.target, checkpoint)
    given = checkpoint.preprocess or checkpoint.torchscript
    with loading(given) if given else nullcontext():
        tokenises = checkpoint.preprocess
        tokenizer = TorchScriptTokenizer(tokenises) if tokenises else Tokenizer.from_file(str(checkpoint.tokenizer))
        encoded = enumerate(Preprocessor(tokenizer, known).encode(inputs.calibration), 1)
        rows = [(number, code) for number, code in encoded if isinstance(code, Encoding)]
        # A traced model may hold on to the shape that it was traced with, which is the one it is compiled for.
        batch = known.batch_size if checkpoint.torchscript else None
        chosen = [golden for length in known.pad_to for golden in choose(module, known, rows, length, batch)]
    (folder / GOLDENS).write_text(to_json(chosen), "utf-8")


def choose(
    module: Any, known: Settings, rows: Sequence[tuple[int, Encoding]], length: int, batch: int | None = None
) -> list[Golden]:
    """Returns the rows of which the original is surest, those first that serving runs on the graph of this length.

    Where every row is too long for the graph, rows are cut, because only the numbers are compared. With
    `batch` the module is given that many rows of this length, and otherwise one row of its own length.
    """
    fitting = [(row, code) for row, code in rows if padded_length(len(code), known.pad_to) == length]
    fitting = fitting or [(row, code) for row, code in rows if len(code) <= length]
    fitting = fitting or [(row, _cut(code, length)) for row, code in rows]
    shape = None if batch is None else (batch, length)
    originals = [_run(module, known, row, code, shape) for row, code in fitting]
    surest = sorted(originals, key=lambda each: (-each.margin, each.row))[:ROWS_FOR_EACH_LENGTH]
    return [
        Golden(
            row=each.row,
            length=length,
            token_ids=each.encoding.token_ids,
            type_ids=each.encoding.type_ids,
            outputs=each.outputs,
        )
        for each in surest
    ]


def _run(module: Any, known: Settings, row: int, encoding: Encoding, shape: tuple[int, int] | None) -> _Original:
    import torch

    rows, lengths = (1, ()) if shape is None else (shape[0], shape[1:])
    given = tensors([encoding] * rows, known.inputs, lengths, known.pad_token_id)
    types = dict.fromkeys(known.inputs, "int64") | dict(known.input_types)
    with torch.no_grad():
        answered = module(*(torch.from_numpy(given[name]).to(getattr(torch, types[name])) for name in known.inputs))
    named = zip(known.graph_outputs, answered, strict=True)
    own = {name: output[0, : len(encoding)] if per_token(name, output) else output[0] for name, output in named}
    outputs = {
        name: [float(f"{number:.{DIGITS}g}") for number in each.reshape(-1).tolist()] for name, each in own.items()
    }
    return _Original(row, encoding, outputs, min(_margin(numbers) for numbers in outputs.values()))


def _margin(numbers: Sequence[float]) -> float:
    """Returns the largest number less the next; of a single number nothing can move."""
    first, *others = sorted(numbers, reverse=True)
    return first - others[0] if others else float("inf")


def _cut(encoding: Encoding, length: int) -> Encoding:
    return Encoding(encoding.token_ids[:length], encoding.type_ids[:length])
