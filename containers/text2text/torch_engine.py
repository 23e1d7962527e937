"""Runs the static graphs of a T5 on PyTorch, on an NVIDIA GPU of any kind or on CPU: a `Program` for each size.

    encoder.pt, decoder.pt   TorchScript of the static graphs; their weights are fp32 or fp16

The decoder's method `check` reads `CHECKED_TOKENS` tokens at once, with the same weights and cache. On a GPU a
program's encoder, its next `TOKENS_PER_LAUNCH` tokens and, for one row, a check are a CUDA graph each, captured when
the engine is loaded. Tests run the same calls on CPU. Not tested on a GPU.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor

from .decoding import Tokens
from .static_cache import CHECKED_TOKENS, TOKENS_PER_LAUNCH, StaticEngine, batch_sizes

WARM_UPS = 3  # Runs before a capture, in which cuBLAS takes its workspaces: what allocates cannot be captured
Step = tuple[Tensor, Tensor, Tensor, Tensor]


def load(folder: Path, device: str, *, most_rows: int, longest: int, guided: bool = False) -> StaticEngine:
    """Loads the graphs of `folder` onto `device`, such as `cuda:0`, for batches of up to `most_rows` × `longest`.

    Only a `guided` engine checks drafts.

    Raises RuntimeError where there is no such GPU.
    """
    if torch.device(device).type == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError(f"{folder} runs on an NVIDIA GPU, and this PyTorch finds none")
        torch.cuda.set_device(device)
    jit: Any = torch.jit
    graphs = ("encoder", "decoder")
    encoder, decoder = (jit.load(folder / f"{graph}.pt", map_location=device).eval() for graph in graphs)
    # The executor of TorchScript would profile and recompile in its first runs, captured or not.
    with torch.inference_mode(), jit.optimized_execution(False):
        programs = [
            TorchProgram(encoder, decoder, torch.device(device), *size, checks=guided and size[0] == 1)
            for size in batch_sizes(most_rows, longest)
        ]
    return StaticEngine(programs)


class TorchProgram:
    """The graphs at one size of batch, and tensors that stay where they are."""

    def __init__(
        self, encoder: Any, decoder: Any, device: torch.device, rows: int, source: int, *, checks: bool = False
    ) -> None:
        self.rows, self.source = rows, source
        self._encoder, self._decoder, self._device = encoder, decoder, device
        size = rows * source
        # Position, tokens, sources and mask, one behind the other, so that they are uploaded at once.
        self._staged = _host(1 + rows + 2 * size, device)
        self._inputs = torch.zeros_like(self._staged, device=device)
        self._position, tokens, token_ids, mask = torch.split(self._inputs, [1, rows, size, size])
        self._tokens = tokens.view(rows, 1)
        self._token_ids, self._mask = token_ids.view(rows, source), mask.view(rows, source)
        self._said = torch.zeros(rows, TOKENS_PER_LAUNCH, dtype=torch.int64, device=device)
        self._answer = _host(rows * TOKENS_PER_LAUNCH, device).view(rows, TOKENS_PER_LAUNCH)
        # A row of padding alone would attend to nothing.
        self._mask.fill_(1)
        self._cross, self._cross_bias = self._encoder(self._token_ids, self._mask)
        channels, d_kv = self._cross.shape[1], self._cross.shape[3]
        self.past = self._cross.new_zeros(rows, channels, self._decoder.steps.shape[2], d_kv)
        self._staged.copy_(self._inputs)
        self._encoding, self._decoding = self._captured(self._encode), self._captured(self._decode)
        if checks:
            self._drafted, self._best = _host(1 + CHECKED_TOKENS, device), _host(CHECKED_TOKENS, device)
            self._draft = torch.zeros_like(self._drafted, device=device)
            self._checking = self._captured(self._check)

    @torch.inference_mode()
    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> None:
        # A batch that was encoded and never asked for its tokens may not have been uploaded yet.
        self.wait()
        staged = self._staged.numpy()
        staged[0], staged[1 : 1 + self.rows] = 0, start
        sources = staged[1 + self.rows :].reshape(2, self.rows, self.source)
        sources[0], sources[1] = token_ids, mask
        self._encoding()

    def wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    @torch.inference_mode()
    def decode(self) -> Tokens:
        self._decoding()
        self.wait()
        return self._answer.numpy().copy()

    @torch.inference_mode()
    def logits(self, step: int, tokens: Tokens) -> NDArray[Any]:
        self._position.fill_(step)
        self._tokens.copy_(torch.from_numpy(tokens))
        _, logits, present, _ = self._step(self._tokens, self._position, self.past)
        self.past.copy_(present)
        answer: NDArray[Any] = logits.cpu().numpy()
        return answer

    @torch.inference_mode()
    def check(self, position: int, tokens: Tokens) -> Tokens:
        drafted = self._drafted.numpy()
        drafted[0], drafted[1:] = position, tokens
        self._checking()
        self.wait()
        return self._best.numpy().copy()

    def _encode(self) -> None:
        self._inputs.copy_(self._staged, non_blocking=True)
        # Places that are not written yet are masked, and would still make a sum no number if they held none.
        self.past.zero_()
        cross, cross_bias = self._encoder(self._token_ids, self._mask)
        self._cross.copy_(cross)
        self._cross_bias.copy_(cross_bias)

    def _decode(self) -> None:
        tokens, position, past = self._tokens, self._position, self.past
        for index in range(TOKENS_PER_LAUNCH):
            tokens, _, past, position = self._step(tokens, position, past)
            self._said[:, index] = tokens[:, 0]
        self._tokens.copy_(tokens)
        self._position.copy_(position)
        self.past.copy_(past)
        self._answer.copy_(self._said, non_blocking=True)

    def _check(self) -> None:
        self._draft.copy_(self._drafted, non_blocking=True)
        position, tokens = torch.split(self._draft, [1, CHECKED_TOKENS])
        best, present = self._decoder.check(tokens[None], position, self._cross_bias, self._cross, self.past)
        self.past.copy_(present)
        self._best.copy_(best[0], non_blocking=True)

    def _step(self, tokens: Tensor, position: Tensor, past: Tensor) -> Step:
        return cast(Step, self._decoder(tokens, position, self._cross_bias, self._cross, past))

    def _captured(self, work: Callable[[], None]) -> Callable[[], None]:
        """Returns `work` as a CUDA graph, which runs it again over the same memory; unchanged on CPU."""
        if self._device.type != "cuda":
            return work
        make_stream: Any = torch.cuda.Stream
        current, side = torch.cuda.current_stream(self._device), make_stream(self._device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                work()
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay


def _host(size: int, device: torch.device) -> Tensor:
    """Returns zeros in the host's memory; those that a GPU reads and writes by itself are pinned."""
    return torch.zeros(size, dtype=torch.int64, pin_memory=device.type == "cuda")
