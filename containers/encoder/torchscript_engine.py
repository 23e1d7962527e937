"""Runs the compiled model as TorchScript, on CPU: an `Engine`.

The graph takes the tensors of `settings.inputs` by position. It returns those of `settings.graph_outputs` as a tuple,
or a single one by itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from .settings import Settings


class TorchScriptEngine:
    """Sets the number of threads for the whole process, because torch has one pool of them."""

    def __init__(self, file: Path, settings: Settings) -> None:
        torch.set_num_threads(settings.threads)
        load: Any = torch.jit.load
        self._graph = load(str(file), map_location="cpu").eval()
        self._settings = settings

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.inference_mode():
            given = self._graph(*(torch.from_numpy(tensors[name]) for name in self._settings.inputs))
        outputs = given if isinstance(given, tuple) else (given,)
        return {name: output.numpy() for name, output in zip(self._settings.graph_outputs, outputs, strict=True)}
