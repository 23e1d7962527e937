"""Chooses the runtime of a compiled model by the files in its folder.

A runtime is imported only once it is chosen: a container has the runtime of its own model and no other.
"""

from collections.abc import Callable
from pathlib import Path

from .engine import Engine, FixedBatch
from .settings import Settings

NEURON_GRAPHS = "model.*.neuron.pt"
TENSORRT_PLANS = "model.*.plan"
CUDA_GRAPHS = "model.cuda.pt"
"""The file with the model that PyTorch captures CUDA graphs of."""


def load(folder: Path, settings: Settings, device: int = 0) -> Engine:
    """Loads a model's version folder. `device` is the GPU of an engine that needs one.

    Raises FileNotFoundError if the folder holds no model, and whatever the runtime raises.
    """
    if any(folder.glob(NEURON_GRAPHS)):
        from .neuron_engine import load as load_neuron

        return load_neuron(folder, settings)
    if any(folder.glob(TENSORRT_PLANS)):
        from .tensorrt_engine import TensorRtEngine

        return TensorRtEngine(folder, settings, device)
    if (file := folder / CUDA_GRAPHS).exists():
        from .cuda_engine import CudaEngine

        return CudaEngine(file, settings, f"cuda:{device}")
    for name, adapter in _ADAPTERS.items():
        if (folder / name).exists():
            engine = adapter(folder / name, settings)
            return FixedBatch(engine, settings.batch_size) if settings.batch_size else engine
    raise FileNotFoundError(f"{folder} holds no model: none of {', '.join(_ADAPTERS)} is there.")


def _onnx(file: Path, settings: Settings) -> Engine:
    from .onnx_engine import OnnxEngine

    return OnnxEngine(file, settings.threads)


def _torchscript(file: Path, settings: Settings) -> Engine:
    from .torchscript_engine import TorchScriptEngine

    return TorchScriptEngine(file, settings)


_ADAPTERS: dict[str, Callable[[Path, Settings], Engine]] = {"model.onnx": _onnx, "model.pt": _torchscript}
