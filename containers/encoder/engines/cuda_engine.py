"""Runs the compiled model by CUDA graphs of PyTorch, on any NVIDIA GPU: an `Engine`. Not tested on a GPU.

    model.cuda.pt   TorchScript as in `torchscript_engine`, moved to the GPU when it is loaded

The kernels of a small batch take less time than their launches, so the model is captured at each size of batch and
launched as a whole. Rows are filled up to a power of two and tokens to a length of `settings.pad_to`. Tests run the
same calls on CPU.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from ..settings import Settings
from .engine import FixedBatch
from .torchscript_engine import load_graph

WARM_UPS = 3  # Runs before a capture, in which libraries allocate: an allocation cannot be captured


class CudaEngine:
    def __init__(self, file: Path, settings: Settings, device: str) -> None:
        """Loads the model onto `device`, such as `cuda:0`. Raises RuntimeError where there is no such GPU."""
        self._device, self._settings = torch.device(device), settings
        self._graph = load_graph(file, device)
        self._programs: dict[tuple[int, int], FixedBatch] = {}

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        rows, length = tensors["input_ids"].shape
        most = 1 << (rows - 1).bit_length()
        if (program := self._programs.get((most, length))) is None:
            made = CudaProgram(self._graph, self._settings, self._device, most, length)
            program = self._programs[most, length] = FixedBatch(made, most)
        return program.run(tensors)


class CudaProgram:
    """The model at one size of batch: an `Engine` over tensors at fixed addresses."""

    def __init__(self, graph: Any, settings: Settings, device: torch.device, rows: int, length: int) -> None:
        self._graph, self._settings, self._device = graph, settings, device
        self._given = [
            torch.ones((rows,) if name == "valid_length" else (rows, length), dtype=torch.int64, device=device)
            for name in settings.inputs
        ]
        self._made: tuple[torch.Tensor, ...] = ()
        jit: Any = torch.jit
        # TorchScript's executor would profile and recompile in its first runs, captured or not.
        with torch.inference_mode(), jit.optimized_execution(False):
            self._launch = self._captured(self._work)

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.inference_mode():
            for place, name in zip(self._given, self._settings.inputs, strict=True):
                place.copy_(torch.from_numpy(tensors[name]))
            self._launch()
            # The copy to the host waits for them. On CPU it keeps them from the next batch.
            outputs = [output.cpu().numpy().copy() for output in self._made]
        return dict(zip(self._settings.graph_outputs, outputs, strict=True))

    def _work(self) -> None:
        made = self._graph(*self._given)
        self._made = made if isinstance(made, tuple) else (made,)

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
