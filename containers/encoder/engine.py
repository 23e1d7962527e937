"""What runs the compiled model: a port of one method, and the choice among its adapters by what lies in the folder.

Adapters are imported only when they are chosen, for a container has the runtime of its own model and no other.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from .fixed_batch import FixedBatch
from .settings import Settings

NEURON_GRAPHS = "model.*.neuron.pt"
TENSORRT_PLANS = "model.*.plan"


class Engine(Protocol):
    """In: the tensors of `settings.inputs`. Out: those of `settings.graph_outputs`, row for row.

    logits [rows, labels], score [rows], start_logits and end_logits [rows, length]: float32.
    """

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]: ...


def load(folder: Path, settings: Settings) -> Engine:
    if any(folder.glob(NEURON_GRAPHS)):
        from .neuron_engine import load as load_neuron

        return load_neuron(folder, settings)
    if any(folder.glob(TENSORRT_PLANS)):
        from .tensorrt_engine import TensorRtEngine

        return TensorRtEngine(folder, settings)
    for file, adapter in _ADAPTERS.items():
        if (folder / file).exists():
            engine = adapter(folder / file, settings)
            return FixedBatch(engine, settings.batch_size) if settings.batch_size else engine
    raise FileNotFoundError(f"{folder} holds no model: none of {', '.join(_ADAPTERS)} is there.")


def _onnx(file: Path, settings: Settings) -> Engine:
    from .onnx_engine import OnnxEngine

    return OnnxEngine(file, settings.threads)


def _torchscript(file: Path, settings: Settings) -> Engine:
    from .torchscript_engine import TorchScriptEngine

    return TorchScriptEngine(file, settings)


_ADAPTERS: dict[str, Callable[[Path, Settings], Engine]] = {"model.onnx": _onnx, "model.pt": _torchscript}
