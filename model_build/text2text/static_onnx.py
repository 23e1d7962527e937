"""Runs the static graphs of a T5, those that TensorRT gets, on ONNX Runtime on CPU: for calibration and for the gate.

ONNX Runtime computes fp16 products in fp32, so an overflow of fp16 is not seen here. It rounds to int8 as
TensorRT does.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from containers.text2text.decoding import Tokens
from containers.text2text.engine import session
from containers.text2text.generator import TextGenerator, pad
from containers.text2text.settings import Settings
from containers.text2text.static_cache import TOKENS_PER_LAUNCH, StaticEngine, batch_sizes
from model_build.compile_inputs import CompileInputs
from model_build.onnx_session import Tensors
from model_build.text2text.repository import GRAPHS, settings

CALIBRATION_BATCH = 8
CARRIED = {"tokens": "next_tokens", "position": "next_position", "past": "present"}
"""The decoder's inputs that are the outputs of the step before."""


class OnnxProgram:
    """Both graphs, at any size of batch up to `rows` and `source`: a `Program` of `StaticEngine`."""

    def __init__(self, encoder: Any, decoder: Any, rows: int = 0, source: int = 0) -> None:
        self.rows, self.source = rows, source
        self._encoder, self._decoder = encoder, decoder
        past = next(each for each in decoder.get_inputs() if each.name == "past")
        self._past, self._type = past.shape[1:], np.float16 if past.type == "tensor(float16)" else np.float32
        self.feeds: dict[str, NDArray[Any]] = {}

    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> None:
        cross, bias = self._encoder.run(["cross", "cross_bias"], {"input_ids": token_ids, "attention_mask": mask})
        self.feeds = {
            "tokens": np.full((len(token_ids), 1), start, np.int64),
            "position": np.zeros(1, np.int64),
            "cross": cross,
            "cross_bias": bias,
            "past": np.zeros((len(token_ids), *self._past), self._type),
        }

    def decode(self) -> Tokens:
        return np.concatenate([self.step() for _ in range(TOKENS_PER_LAUNCH)], 1)

    def logits(self, step: int, tokens: Tokens) -> NDArray[Any]:
        self.feeds["tokens"] = tokens
        return self._run("logits")

    def step(self) -> Tokens:
        return self._run("next_tokens")

    def _run(self, wanted: str) -> NDArray[Any]:
        output, *carried = self._decoder.run([wanted, *CARRIED.values()], self.feeds)
        self.feeds.update(zip(CARRIED, carried, strict=True))
        return np.asarray(output)


def generator(folder: Path, known: Settings) -> TextGenerator:
    """Returns the serving code over encoder.onnx and decoder.onnx of `folder`."""
    encoder, decoder = (session(folder / f"{name}.onnx", known.threads) for name in GRAPHS)
    sizes = batch_sizes(known.max_batch_size, known.max_input_tokens)
    engine = StaticEngine([OnnxProgram(encoder, decoder, *size) for size in sizes])
    return TextGenerator(Tokenizer.from_file(str(folder / "tokenizer.json")), engine, known)


def calibration(inputs: CompileInputs, graphs: Mapping[str, Path]) -> dict[str, Iterator[Tensors]]:
    """Returns the inputs of each graph: evaluation rows, and the steps of decoding their answers."""
    known = settings(inputs.text2text, inputs.target, inputs.checkpoint)
    tokenizer = Tokenizer.from_file(str(inputs.checkpoint.tokenizer))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    rows = [each.ids for each in tokenizer.encode_batch_fast([row["text"] for row in inputs.calibration])]
    batches = [
        pad(rows[start : start + CALIBRATION_BATCH], known.pad_token_id)
        for start in range(0, len(rows), CALIBRATION_BATCH)
    ]
    return {
        "encoder": ({"input_ids": ids, "attention_mask": mask} for ids, mask in batches),
        "decoder": _steps(graphs, batches, known),
    }


def _steps(graphs: Mapping[str, Path], batches: list[tuple[Tokens, Tokens]], known: Settings) -> Iterator[Tensors]:
    program = OnnxProgram(*(session(graphs[name], known.threads) for name in GRAPHS))
    for ids, mask in batches:
        program.encode(ids, mask, known.decoder_start_token_id)
        ended = np.zeros((len(ids), 1), bool)
        for _ in range(known.max_output_tokens):
            yield dict(program.feeds)
            ended |= np.isin(program.step(), known.eos_token_ids)
            if ended.all():
                break
