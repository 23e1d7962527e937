"""Graphs compiled for Neuron, one for each sequence length: an `Engine`.

Every graph takes exactly `settings.batch_size` rows of one of the lengths `settings.pad_to`: `Predictor` pads to the
length, and what stands here fills the rows. Which NeuronCores the process has is settled before it starts, by
NEURON_RT_VISIBLE_CORES. If NEURON_PLACEMENT says data-parallel, a batch is split over all of them; else the graphs take
the first core, or as many as their pipeline was compiled for.

Data parallelism runs with Neuron's dynamic batching off and with chunks (`split_size`) of the compiled batch, so that
fewer rows than cores · batch occupy fewer cores. Not run on a chip where this was written.
"""

import importlib
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .engine import Engine
from .fixed_batch import FixedBatch
from .settings import Settings

PLACEMENT = "NEURON_PLACEMENT"


def load(folder: Path, settings: Settings) -> Engine:
    """Raises ModuleNotFoundError without Neuron's package, FileNotFoundError if a length has no graph."""
    neuron = _import_neuron()
    files = {length: folder / f"model.{length}.neuron.pt" for length in settings.pad_to}
    if missing := [file.name for file in files.values() if not file.exists()]:
        raise FileNotFoundError(f"{folder} has no {', '.join(missing)}, which pad_to of settings.json asks for")
    jit: Any = torch.jit
    graphs = {length: jit.load(str(file)) for length, file in files.items()}
    if os.environ.get(PLACEMENT) != "data-parallel":
        return FixedBatch(NeuronEngine(graphs, settings), settings.batch_size)
    spread = {length: _over_cores(neuron, graph, settings.batch_size) for length, graph in graphs.items()}
    return WholeBatches(NeuronEngine(spread, settings), settings.batch_size)


def _import_neuron() -> Any:
    """Importing it is what teaches torch to load the graphs. An image has one of the two."""
    for name in ("torch_neuronx", "torch_neuron"):
        if importlib.util.find_spec(name):
            return importlib.import_module(name)
    raise ModuleNotFoundError(
        "the model is compiled for Neuron, and neither torch_neuronx nor torch_neuron is installed"
    )


def _over_cores(neuron: Any, graph: Any, batch_size: int) -> Any:
    parallel = neuron.DataParallel(graph)
    parallel.disable_dynamic_batching()
    parallel.split_size = batch_size
    return parallel


class NeuronEngine:
    """No inference mode: it is a thread's own, and `DataParallel` runs the graphs in threads that are not in it."""

    def __init__(self, graphs: Mapping[int, Any], settings: Settings) -> None:
        self._graphs = graphs
        self._settings = settings

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        graph = self._graphs[tensors["input_ids"].shape[1]]
        with torch.no_grad():
            outputs = graph(*(torch.from_numpy(tensors[name]) for name in self._settings.inputs))
        return {
            name: output.detach().numpy() for name, output in zip(self._settings.graph_outputs, outputs, strict=True)
        }


class WholeBatches:
    """An `Engine` around one that takes any number of compiled batches at once. The fill is the last row once more."""

    def __init__(self, engine: Engine, batch_size: int) -> None:
        self._engine = engine
        self._batch_size = batch_size

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        rows = len(next(iter(tensors.values())))
        fill = -rows % self._batch_size
        filled = {name: np.concatenate([tensor, np.repeat(tensor[-1:], fill, 0)]) for name, tensor in tensors.items()}
        return {name: output[:rows] for name, output in self._engine.run(filled).items()}
