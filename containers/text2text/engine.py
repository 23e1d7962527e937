"""Runs the two graphs of an encoder–decoder on ONNX Runtime: an `Engine` of the decoding loop.

The caches are plain numpy arrays. On CPU, ONNX Runtime reads them in place and returns its outputs without a copy, so
I/O binding would save nothing and cost its own calls. A row leaves the batch as soon as it ends: copying the caches of
the others costs less than decoding it further.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .decoding import Tokens

CPUINFO = Path("/proc/cpuinfo")
VNNI = {"avx512_vnni", "avx_vnni"}
"""The CPU flags of instructions that add products of 8 bits in 32 bits."""
Floats = NDArray[np.float32]


@dataclass
class Caches:
    """The caches of one batch. Every decoder layer has an array of keys and one of values, in turns.

    Rows of the same source stand together, and each source has as many.
    """

    cross_bias: Floats  # [sources, 1, 1, source length]: 0 for a token, very negative for padding
    cross: list[Floats]  # [sources, heads, source length, d_kv]
    past: list[Floats]  # [rows, heads, past length, d_kv]
    tokens: Tokens  # [rows, 1]: the last ones, which the next step appends
    rows: NDArray[np.intp]  # the row of the batch behind each row of the caches


class OnnxEngine:
    """Has one session per graph. The sessions take turns, so they never compete for `threads`.

    With more rows, a check of a small model costs more than it saves.
    """

    most_rows = 4
    draft_length: int | None = None

    def __init__(self, encoder: Path, decoder: Path, threads: int) -> None:
        self._encoder = session(encoder, threads)
        self._decoder = session(decoder, threads)
        self._run = onnxruntime.RunOptions()
        self._run.only_execute_path_to_fetches = True
        pasts = [node for node in self._decoder.get_inputs() if node.name.startswith("past.")]
        self._set_caches(len(pasts), pasts[0].shape[1], pasts[0].shape[3])

    def _set_caches(self, parts: int, heads: int, d_kv: int) -> None:
        self._parts, self._heads, self._d_kv = parts, heads, d_kv
        self._inputs = [f"{name}.{part}" for name in ("cross", "past") for part in range(parts)]
        self._outputs = ["logits", *(f"present.{part}" for part in range(parts))]

    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> Caches:
        cross, cross_bias = self._encoder.run(["cross", "cross_bias"], {"input_ids": token_ids, "attention_mask": mask})
        rows = len(token_ids)
        # ONNX Runtime reads only contiguous arrays in place.
        crosses = [np.ascontiguousarray(part) for part in np.split(cross, self._parts, 1)]
        pasts = [np.empty((rows, self._heads, 0, self._d_kv), np.float32)] * self._parts
        return Caches(cross_bias, crosses, pasts, np.full((rows, 1), start, np.int64), np.arange(rows))

    def step(self, state: Caches, live: NDArray[np.bool_]) -> Tokens:
        self._keep(state, live[state.rows])
        # numpy finds the most likely tokens several times as fast as the graph's own ArgMax, which is not run.
        state.tokens = self._advance(state, state.tokens).argmax(2)
        if len(state.rows) == len(live):
            return state.tokens
        spread = np.zeros((len(live), 1), np.int64)
        spread[state.rows] = state.tokens
        return spread

    def logits(self, state: Caches, tokens: Tokens, live: NDArray[np.bool_] | None = None) -> Floats:
        """Appends `tokens`, [rows, 1], and returns the decoder's logits of the rows that are live."""
        if live is None:
            return self._advance(state, tokens)[:, 0]
        self._keep(state, live[state.rows])
        return self._advance(state, tokens[state.rows])[:, 0]

    def select(self, state: Caches, rows: NDArray[np.intp]) -> None:
        """Makes the caches those of these rows, each of which may come several times or not at all."""
        if np.array_equal(rows, np.arange(len(state.rows))):
            return
        sources = state.rows[rows]
        # Beams of one source change places at every step.
        if not np.array_equal(sources, state.rows):
            kept = np.isin(np.unique(state.rows), sources)
            state.cross_bias, state.cross = state.cross_bias[kept], [part[kept] for part in state.cross]
        state.past = [part[rows] for part in state.past]
        state.tokens, state.rows = state.tokens[rows], sources

    def _keep(self, state: Caches, wanted: NDArray[np.bool_]) -> None:
        if not wanted.all():
            self.select(state, np.flatnonzero(wanted))

    def check(self, state: Caches, tokens: Tokens, lengths: NDArray[np.intp]) -> Tokens:
        """Appends `tokens`, [rows, queries], behind the first `lengths` places of each row's cache.

        Returns the most likely token after each.
        """
        best: Tokens = self._advance(state, tokens, lengths).argmax(2)
        return best

    def settle(
        self, state: Caches, lengths: NDArray[np.intp], counts: NDArray[np.intp], live: NDArray[np.bool_]
    ) -> None:
        """Keeps the live rows, and of the tokens of the last `check` the first `counts` of each row."""
        start = int(lengths.max())
        for row in np.flatnonzero(live & (lengths < start)):
            first, count = lengths[row], counts[row]
            for part in state.past:
                part[row, :, first : first + count] = part[row, :, start : start + count]
        self._keep(state, live)
        longest = (lengths + counts)[live].max()
        state.past = [part[:, :, :longest] for part in state.past]

    def _advance(self, state: Caches, tokens: Tokens, lengths: NDArray[np.intp] | None = None) -> Floats:
        distances = _distances(state.past[0].shape[2], tokens.shape[1], lengths)
        given = {"tokens": tokens, "distances": distances, "cross_bias": state.cross_bias}
        given |= zip(self._inputs, (*state.cross, *state.past), strict=True)
        logits: Floats
        logits, *state.past = self._decoder.run(self._outputs, given, self._run)
        return logits


def _distances(past: int, queries: int, lengths: NDArray[np.intp] | None) -> Tokens:
    """Returns how many places each key is before each query, [rows or 1, queries, past + queries].

    A row has keys in its first `lengths` places and behind `past`.
    """
    if lengths is None or (lengths == past).all():
        return _equal_distances(past, queries)
    keys, rows = np.arange(past + queries), lengths[:, None]
    unused = rows + queries  # behind every query
    keys = np.where(keys < rows, keys, np.where(keys < past, unused, keys - past + rows))
    return (rows + np.arange(queries))[:, :, None] - keys[:, None]


@lru_cache(maxsize=1024)
def _equal_distances(past: int, queries: int) -> Tokens:
    distances: Tokens = (past + np.arange(queries)[:, None] - np.arange(past + queries))[None]
    return distances


def session(file: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # A sleeping thread would wake up late for every node of every token; a thread that kept spinning between two runs
    # would take the cores from the other session and from Triton.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if not VNNI & set(CPUINFO.read_text("utf-8").split()):
        # Sums of products of uint8 and int8 would overflow. These kernels do not use VNNI, and are slower.
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
