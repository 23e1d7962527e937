"""Runs graphs compiled for Neuron, one graph per sequence length. Not tested on a chip.

A graph takes exactly `settings.batch_size` rows of one of the lengths `settings.pad_to`: `Predictor` pads to the
length, `FixedBatch` adds rows. NEURON_RT_VISIBLE_CORES sets the process's NeuronCores. With data-parallel placement all
of them are used, otherwise the first, or those of the compiled pipeline.

With data parallelism each chip runs its own batches, so that no core waits for the slowest chip. Without Neuron's
dynamic batching a chip requires cores × batch rows, so rows are filled up with copies. DataParallel removes a graph
from its core, so each chip loads its own.
Sources: api-torch-neuron-dataparallel-api and api-torch-neuronx-data-parallel of AWS's Neuron documentation.
"""

import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from ..settings import Settings
from .engine import Engine, FixedBatch, Lanes

PLACEMENT = "NEURON_PLACEMENT"
CORES = "NEURON_RT_NUM_CORES"  # `neuron.placement` sets both
CORES_PER_CHIP = {"torch_neuron": 4, "torch_neuronx": 2}


def load(folder: Path, settings: Settings) -> Engine:
    """Raises ModuleNotFoundError without Neuron's package, FileNotFoundError if a length has no graph."""
    neuron = _import_neuron()
    files = {length: folder / f"model.{length}.neuron.pt" for length in settings.pad_to}
    if missing := [file.name for file in files.values() if not file.exists()]:
        raise FileNotFoundError(f"{folder} has no {', '.join(missing)}, which pad_to of settings.json asks for")
    cores = range(int(os.environ[CORES]) if os.environ.get(PLACEMENT) == "data-parallel" else 1)
    if len(cores) == 1:
        return FixedBatch(NeuronEngine(_load(files), settings), settings.batch_size)
    per_chip = CORES_PER_CHIP[neuron.__name__]
    chips = [cores[start : start + per_chip] for start in range(0, len(cores), per_chip)]
    return Lanes([_over(neuron, _load(files), settings, chip) for chip in chips], settings.batch_size * len(chips[0]))


def _import_neuron() -> Any:
    """Imports AWS's package for this chip, with which torch can load the graphs. An image has one."""
    for name in ("torch_neuronx", "torch_neuron"):
        if importlib.util.find_spec(name):
            return importlib.import_module(name)
    raise ModuleNotFoundError(
        "the model is compiled for Neuron, and neither torch_neuronx nor torch_neuron is installed"
    )


def _load(files: Mapping[int, Path]) -> dict[int, Any]:
    jit: Any = torch.jit
    return {length: jit.load(str(file)) for length, file in files.items()}


def _over(neuron: Any, graphs: Mapping[int, Any], settings: Settings, cores: Sequence[int]) -> Engine:
    spread = {length: neuron.DataParallel(graph, device_ids=list(cores)) for length, graph in graphs.items()}
    for parallel in spread.values():
        parallel.disable_dynamic_batching()
    return FixedBatch(NeuronEngine(spread, settings), len(cores) * settings.batch_size)


class NeuronEngine:
    """Runs each batch on the graph of its length.

    Uses `no_grad`: torch's inference mode belongs to one thread, and `DataParallel` uses several.
    """

    def __init__(self, graphs: Mapping[int, Any], settings: Settings) -> None:
        self._graphs = graphs
        self._settings = settings
        types = dict(settings.input_types)
        self._types = {name: getattr(torch, types.get(name, "int64")) for name in settings.inputs}

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        graph = self._graphs[tensors["input_ids"].shape[1]]
        with torch.no_grad():
            outputs = graph(*(torch.from_numpy(tensors[name]).to(kind) for name, kind in self._types.items()))
        named = zip(self._settings.graph_outputs, outputs, strict=True)
        given = {name: output.detach().numpy() for name, output in named}
        rows = len(tensors["input_ids"])
        if wrong := {name: len(output) for name, output in given.items() if len(output) != rows}:
            raise RuntimeError(f"the compiled graph was given {rows} rows and answered {wrong}")
        return given
