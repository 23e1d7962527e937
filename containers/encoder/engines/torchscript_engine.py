"""Runs the compiled model as PyTorch loads it, on CPU or on an NVIDIA GPU: an `Engine`. Not tested on a GPU.

    *.pt    TorchScript
    *.pt2   an exported program: Python launches each operation. Only the PyTorch that exported it is sure to load it

The graph takes the tensors of `settings.inputs` by position. It returns those of `settings.graph_outputs` as a tuple,
or a single one by itself.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from ..settings import Settings


class TorchScriptEngine:
    """Sets the number of threads for the whole process, because torch has one pool of them."""

    def __init__(self, file: Path, settings: Settings, device: str = "cpu") -> None:
        torch.set_num_threads(settings.threads)
        self._graph, self._settings, self._device = load_graph(file, device), settings, device

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.inference_mode():
            inputs = [torch.from_numpy(tensors[name]).to(self._device) for name in self._settings.inputs]
            given = self._graph(*inputs)
        outputs = given if isinstance(given, tuple) else (given,)
        return {name: output.cpu().numpy() for name, output in zip(self._settings.graph_outputs, outputs, strict=True)}


def load_graph(file: Path, device: str) -> Any:
    """Loads a model onto `device`, such as `cuda:0`. Raises RuntimeError if there is no such GPU."""
    if torch.device(device).type == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError(f"{file} runs on an NVIDIA GPU, and this PyTorch finds none")
        torch.cuda.set_device(device)
    if file.suffix == ".pt2":
        # By name: the PyTorch of the Inf1 image has no such modules.
        export, passes = map(importlib.import_module, ("torch.export", "torch.export.passes"))
        return passes.move_to_device_pass(export.load(file), device).module(check_guards=False)
    load: Any = torch.jit.load
    return load(str(file), map_location=device).eval()
