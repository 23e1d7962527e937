"""Runs the two graphs of a T5 on TensorRT: an `Engine` of the decoding loop whose caches never leave the GPU.

    encoder.7.5.plan, decoder.7.5.plan   built for compute capability 7.5; a folder may hold those of several GPUs

The decoder reads the cache from one buffer and writes the longer one into another; then the buffers swap. When rows
leave, the remaining rows move up in place. Only tokens, and logits on request, cross to the host. There is one batch at
a time: the next one takes over the memory. `tensorrt_plan` runs the plans. Not run where this was written: there is no
GPU.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decoding import Tokens
from .tensorrt_plan import Cuda, Plan, find_plan


@dataclass
class Batch:
    """The batch in the engine's memory: rows, source length and steps so far, in tokens."""

    rows: int
    source: int
    past: int = 0


class TensorRtEngine:
    def __init__(self, folder: Path, device: int = 0) -> None:
        """Loads the plans of `folder` that were built for this GPU. Raises `PlanRefused`."""
        self._cuda = Cuda(device)
        capability = self._cuda.compute_capability()
        self._encoder = Plan(find_plan(folder, "encoder", capability), self._cuda)
        decoder = find_plan(folder, "decoder", capability)
        # The two caches swap places, and `present` is the longer one.
        self._decoder = Plan(decoder, self._cuda, self._encoder, sized_as={"past": "present"})
        # The decoder reads from the first and writes to the second.
        self._caches = (self._decoder.addresses["past"], self._decoder.addresses["present"])
        self._batch: Batch | None = None

    def encode(self, token_ids: Tokens, mask: Tokens) -> Batch:
        rows, length = token_ids.shape
        self._batch = Batch(rows, length)
        self._encoder.write("input_ids", token_ids)
        self._encoder.write("attention_mask", mask)
        self._encoder.enqueue()
        self._cuda.wait()
        return self._batch

    def step(self, state: Batch, tokens: Tokens) -> Tokens:
        next_tokens: Tokens = self.advance(state, tokens, "next_tokens")
        return next_tokens

    def advance(self, state: Batch, tokens: Tokens, output: str) -> Any:
        """Runs one step and returns `output` of the decoder: `next_tokens`, or `logits` for the parity gate."""
        self._check(state)
        decoder = self._decoder
        decoder.write("tokens", tokens)
        for name, length in (("cross", state.source), ("cross_bias", state.source), ("past", state.past)):
            decoder.shape(name, _cache_shape(decoder, name, state.rows, length))
        decoder.place("past", self._caches[0])
        decoder.place("present", self._caches[1])
        decoder.enqueue()
        answer = decoder.read(output)
        self._cuda.wait()
        self._caches = (self._caches[1], self._caches[0])
        state.past += 1
        return answer

    def keep(self, state: Batch, rows: NDArray[np.intp]) -> None:
        """Keeps `rows`, which ascend: each moves to its own place or to one that has been read already."""
        self._check(state)
        decoder = self._decoder
        decoder.place("past", self._caches[0])
        for name, length in (("cross", state.source), ("cross_bias", state.source), ("past", state.past)):
            address, size = decoder.addresses[name], decoder.bytes(name, _cache_shape(decoder, name, 1, length))
            for place, row in enumerate(rows.tolist()):
                if place != row and size:
                    self._cuda.copy(address + place * size, address + row * size, size)
        state.rows = len(rows)

    def _check(self, state: Batch) -> None:
        if state is not self._batch:
            raise RuntimeError("this batch's caches were taken by a later one")


def _cache_shape(decoder: Plan, name: str, rows: int, length: int) -> tuple[int, ...]:
    """Returns the shape of a cache: its axis 2 varies, or axis 3 of cross_bias."""
    _, heads, second, last = decoder.limits[name]
    return (rows, heads, second, length) if name == "cross_bias" else (rows, heads, length, last)
