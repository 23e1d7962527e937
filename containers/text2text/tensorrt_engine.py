"""Runs the static graphs of a T5 on TensorRT: a `Program` for each size of batch.

    encoder.7.5.plan, decoder.7.5.plan   built for compute capability 7.5; a folder may hold those of several GPUs

A request is one upload, one launch of the encoder, and one launch and download per `TOKENS_PER_LAUNCH` tokens. In
between nothing leaves the GPU: each step's outputs are the next one's inputs. Both launches are CUDA graphs, captured
when the engine is loaded. Not tested on a GPU.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decoding import Tokens
from .static_cache import TOKENS_PER_LAUNCH, StaticEngine, batch_sizes
from .tensorrt_plan import Context, Cuda, Plan, PlanRefused, find_plan

ALIGNMENT = 256  # bytes, of every address that TensorRT is given


def load(folder: Path, device: int = 0) -> StaticEngine:
    """Loads the plans of `folder` that were built for this GPU. Raises `PlanRefused`."""
    cuda = Cuda(device)
    capability = cuda.compute_capability()
    encoder, decoder = (Plan(find_plan(folder, graph, capability), cuda) for graph in ("encoder", "decoder"))
    for name in ("cross", "cross_bias"):
        if encoder.types[name] != decoder.types[name]:
            raise PlanRefused(f"{decoder.file}: {name} is {decoder.types[name]}, but {encoder.types[name]} is written.")
    memory = Memory(cuda, encoder, decoder)
    sizes = batch_sizes(*encoder.largest["input_ids"])
    return StaticEngine([TensorRtProgram(cuda, encoder, decoder, memory, *size) for size in sizes])


class Memory:
    """Addresses that all programs share, one at a time, each large enough for the largest batch.

    `inputs` is uploaded at once: position, tokens, sources and their mask. Odd steps read what even ones write.
    """

    def __init__(self, cuda: Cuda, encoder: Plan, decoder: Plan) -> None:
        (rows, source), largest = encoder.largest["input_ids"], decoder.largest
        tokens = aligned(8 * rows)
        self.tokens_at, self.sources_at = ALIGNMENT, ALIGNMENT + tokens
        self.staged = cuda.pinned(self.sources_at + 2 * aligned(8 * rows * source))
        self.inputs = cuda.allocate(len(self.staged))
        self.answers = cuda.pinned(8 * TOKENS_PER_LAUNCH * rows)
        self.said = cuda.allocate(len(self.answers))
        self.cross = {name: cuda.allocate(decoder.bytes(name, largest[name])) for name in ("cross", "cross_bias")}
        self.tokens = (self.inputs + self.tokens_at, cuda.allocate(tokens))
        self.position = (self.inputs, cuda.allocate(ALIGNMENT))
        self.caches = tuple(cuda.allocate(decoder.bytes("past", largest["past"])) for _ in range(2))
        self.logits = cuda.allocate(decoder.bytes("logits", (rows, decoder.shapes["logits"][1])))
        # The graphs take turns, and so do their activations.
        self.activations = cuda.allocate(max(encoder.activations, decoder.activations))


class TensorRtProgram:
    """Contexts that nothing changes any more, and the launches captured of them."""

    def __init__(self, cuda: Cuda, encoder: Plan, decoder: Plan, memory: Memory, rows: int, source: int) -> None:
        self.rows, self.source = rows, source
        self._cuda, self.memory = cuda, memory
        mask_at = memory.sources_at + aligned(8 * rows * source)
        self._staged = memory.staged[: mask_at + aligned(8 * rows * source)]
        self._position = self._staged[:8].view(np.int64)
        self._tokens = self._view(memory.tokens_at, rows, 1)
        self._token_ids, self._mask = self._view(memory.sources_at, rows, source), self._view(mask_at, rows, source)
        self._said = memory.answers[: 8 * TOKENS_PER_LAUNCH * rows].view(np.int64).reshape(TOKENS_PER_LAUNCH, rows)
        both = ("input_ids", "attention_mask")
        self._encoder = encoder.context(dict.fromkeys(both, (rows, source)), memory.activations)
        sources = dict(zip(both, (memory.inputs + memory.sources_at, memory.inputs + mask_at), strict=True))
        self._encoder.place(sources | memory.cross)
        self._steps = tuple(self._step(decoder, turn) for turn in (0, 1))
        # A capture runs once before, on a batch that may be anything with a token in each row.
        self._write(np.zeros((rows, source), np.int64), np.ones((rows, source), np.int64), 0)
        self._encoding, self._decoding = cuda.capture(self._encode), cuda.capture(self._decode)

    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> None:
        # A batch that was encoded and never asked for its tokens may not have been uploaded yet.
        self.wait()
        self._write(token_ids, mask, start)
        self._cuda.launch(self._encoding)

    def wait(self) -> None:
        self._cuda.wait()

    def decode(self) -> Tokens:
        self._cuda.launch(self._decoding)
        self.wait()
        return self._said.T.copy()

    def logits(self, step: int, tokens: Tokens) -> NDArray[Any]:
        turn = step % 2
        context = self._steps[turn]
        answer = np.empty(context.shape_of("logits"), context.plan.types["logits"])
        self._cuda.upload(self.memory.tokens[turn], tokens)
        context.enqueue()
        self._cuda.download(answer, self.memory.logits)
        self._cuda.wait()
        return answer

    def _write(self, token_ids: Tokens, mask: Tokens, start: int) -> None:
        self._position[:], self._tokens[:] = 0, start
        self._token_ids[:], self._mask[:] = token_ids, mask

    def _encode(self) -> None:
        self._cuda.upload(self.memory.inputs, self._staged)
        # Places that are not written yet are masked, and would still make a sum no number if they held none.
        self._cuda.clear(self.memory.caches[0], self._steps[0].bytes("past"))
        self._encoder.enqueue()

    def _decode(self) -> None:
        size = 8 * self.rows
        for index in range(TOKENS_PER_LAUNCH):
            turn = index % 2
            self._steps[turn].enqueue()
            self._cuda.copy(self.memory.said + index * size, self.memory.tokens[1 - turn], size)
        self._cuda.download(self._said, self.memory.said)

    def _step(self, decoder: Plan, turn: int) -> Context:
        """Returns the decoder reading from one place of each pair in memory and writing to the other."""
        largest, memory = decoder.largest, self.memory
        _, channels, places, d_kv = largest["past"]
        context = decoder.context(
            {
                "tokens": (self.rows, 1),
                "cross_bias": (self.rows, 1, 1, self.source),
                "cross": (self.rows, channels, self.source, d_kv),
                "past": (self.rows, channels, places, d_kv),
            },
            memory.activations,
        )
        pairs = {"tokens": memory.tokens, "position": memory.position, "past": memory.caches}
        written = {"tokens": "next_tokens", "position": "next_position", "past": "present"}
        context.place({name: pair[turn] for name, pair in pairs.items()})
        context.place({written[name]: pair[1 - turn] for name, pair in pairs.items()})
        context.place({**memory.cross, "logits": memory.logits})
        return context

    def _view(self, start: int, rows: int, columns: int) -> Tokens:
        return self._staged[start : start + 8 * rows * columns].view(np.int64).reshape(rows, columns)


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
