"""Chooses the runtime of a compiled model by the files in its folder.

A runtime is imported only once it is chosen: a container has the runtime of its own model and no other.
"""

from pathlib import Path

from ..settings import Settings
from .engine import Engine, FixedBatch, MixedLengths

NEURON_GRAPHS = "model.*.neuron.pt"
TENSORRT_PLANS = "model.*.plan"
CUDA_FILES = {"cuda-graphs": "model.cuda.pt", "traced": "model.traced.pt", "eager": "model.eager.pt2"}
"""The model file of a `cuda` target, by its key `execution`."""


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
    for execution, name in CUDA_FILES.items():
        if (file := folder / name).exists():
            from . import cuda_engine, torchscript_engine

            on_gpu = cuda_engine.CudaEngine if execution == "cuda-graphs" else torchscript_engine.TorchScriptEngine
            return on_gpu(file, settings, f"cuda:{device}")
    engine = _load_any_size(folder, settings)
    if settings.batch_size:
        return FixedBatch(engine, settings.batch_size)
    return MixedLengths(engine, settings.launch_tokens)


def _load_any_size(folder: Path, settings: Settings) -> Engine:
    """Loads a model on CPU, which takes batches of any size."""
    if (file := folder / "model.onnx").exists():
        from .onnx_engine import OnnxEngine

        return OnnxEngine(file, settings.threads)
    if (file := folder / "model.pt").exists():
        from .torchscript_engine import TorchScriptEngine

        return TorchScriptEngine(file, settings)
    if (file := folder / "model.xml").exists():
        from .openvino_engine import OpenVinoEngine

        return OpenVinoEngine(file, settings)
    raise FileNotFoundError(f"{folder} holds no model: none of model.onnx, model.pt, model.xml is there.")
