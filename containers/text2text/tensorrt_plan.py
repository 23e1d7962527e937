"""Runs a TensorRT plan with its tensors in device memory, for all engines of this project that use TensorRT.

    encoder.7.5.plan   built for compute capability 7.5; a folder may hold the plans of several GPUs

All memory is allocated once, at the largest shapes the plan was built for, and freed with the last plan that uses it.
All work goes to one stream: what was read is there only after `Cuda.wait`.

Needs the packages `cuda-bindings` and `tensorrt`, or the latter's bindings alone beside an image's own libraries, in
the exact version that built the plan. The calls are those of NVIDIA's samples (samples/python/common_runtime.py). An
address is never null, because TensorRT wants one even for an empty tensor. Not run where this was written: there is no
GPU.
"""

import math
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PLANS = "*.plan"


class PlanRefused(Exception):
    """A plan that this GPU or this TensorRT cannot run."""


class CudaFailed(RuntimeError):
    """A call of the CUDA runtime that did not succeed."""


def plan_name(graph: str, compute_capability: str) -> str:
    return f"{graph}.{compute_capability}.plan"


def find_plan(folder: Path, graph: str, capability: str) -> Path:
    """Raises `PlanRefused`."""
    plan = folder / plan_name(graph, capability)
    if not plan.exists():
        held = sorted(file.name for file in folder.glob(f"{graph}.*.plan"))
        raise PlanRefused(
            f"{folder}: this GPU has compute capability {capability}, and there is no {plan.name}. "
            f"There: {', '.join(held) or 'no plan'}. Build the target for this GPU."
        )
    return plan


class Cuda:
    """The calls of the CUDA runtime that are needed, each checked, on one device and one stream."""

    def __init__(self, device: int) -> None:
        from cuda.bindings import runtime  # type: ignore[import-untyped,import-not-found,unused-ignore]

        self._runtime, self._device = runtime, device
        self._call(runtime.cudaSetDevice(device))
        self._stream = self._call(runtime.cudaStreamCreate())
        self.stream = int(self._stream)
        self._taken: list[int] = []
        # A process that ends frees its memory anyway.
        weakref.finalize(self, _free, runtime, self._taken).atexit = False

    def compute_capability(self) -> str:
        known = self._runtime.cudaDeviceAttr
        names = (known.cudaDevAttrComputeCapabilityMajor, known.cudaDevAttrComputeCapabilityMinor)
        return ".".join(str(self._call(self._runtime.cudaDeviceGetAttribute(name, self._device))) for name in names)

    def allocate(self, size: int) -> int:
        """Allocates at least one byte, because an empty tensor needs an address, too."""
        self._taken.append(int(self._call(self._runtime.cudaMalloc(max(size, 1)))))
        return self._taken[-1]

    def upload(self, address: int, values: NDArray[Any]) -> None:
        self._copy(address, values.ctypes.data, values.nbytes, "cudaMemcpyHostToDevice")

    def download(self, values: NDArray[Any], address: int) -> None:
        self._copy(values.ctypes.data, address, values.nbytes, "cudaMemcpyDeviceToHost")

    def copy(self, to: int, source: int, size: int) -> None:
        self._copy(to, source, size, "cudaMemcpyDeviceToDevice")

    def wait(self) -> None:
        self._call(self._runtime.cudaStreamSynchronize(self._stream))

    def _copy(self, to: int, source: int, size: int, kind: str) -> None:
        direction = getattr(self._runtime.cudaMemcpyKind, kind)
        self._call(self._runtime.cudaMemcpyAsync(to, source, size, direction, self._stream))

    def _call(self, answer: tuple[Any, ...]) -> Any:
        """Checks the error code, which every call returns first, and returns the value after it."""
        if answer[0] != self._runtime.cudaError_t.cudaSuccess:
            raise CudaFailed(f"CUDA: {answer[0].name}")
        return answer[1] if len(answer) > 1 else None


def _free(runtime: Any, addresses: list[int]) -> None:
    for address in addresses:
        runtime.cudaFree(address)


def import_tensorrt() -> Any:
    """Returns TensorRT's module. A wheel of its bindings alone calls it otherwise than a whole installation."""
    try:
        import tensorrt_bindings  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        import tensorrt  # type: ignore[import-not-found,unused-ignore]

        return tensorrt
    return tensorrt_bindings


class Plan:
    """A plan, its context, and an address for every tensor: its own memory, or where `source` writes the tensor."""

    def __init__(
        self, file: Path, cuda: Cuda, source: "Plan | None" = None, *, sized_as: Mapping[str, str] | None = None
    ) -> None:
        """`sized_as` names tensors that need as much memory as another tensor."""
        tensorrt = import_tensorrt()
        self._cuda, self._file = cuda, file
        self._runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.WARNING))
        self._engine = self._runtime.deserialize_cuda_engine(file.read_bytes())
        if self._engine is None:
            raise PlanRefused(
                f"{file}: TensorRT {tensorrt.__version__} on a GPU of compute capability {cuda.compute_capability()} "
                "cannot load it. A plan loads only in the TensorRT version and on the GPU it was built for. "
                "Build it again in this image."
            )
        self._context = self._engine.create_execution_context()
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        self.types = {name: np.dtype(tensorrt.nptype(self._engine.get_tensor_dtype(name))) for name in names}
        inputs = [name for name in names if self._engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT]
        self.limits: dict[str, tuple[int, ...]] = {
            name: tuple(self._engine.get_tensor_profile_shape(name, 0)[2]) for name in inputs
        }
        self.addresses: dict[str, int] = {}
        self._written: dict[str, NDArray[Any]] = {}
        self._find_places(names, source, sized_as or {})

    def _find_places(self, names: list[str], source: "Plan | None", sized_as: Mapping[str, str]) -> None:
        """Allocates memory for the largest shapes.

        TensorRT knows those of the outputs once it knows those of the inputs.
        """
        for name, shape in self.limits.items():
            self.shape(name, shape)
        for name in names:
            if source is None or name not in source.types:
                largest = self._context.get_tensor_shape(sized_as.get(name, name))
                self.place(name, self._cuda.allocate(self.bytes(name, largest)))
            elif source.types[name] != self.types[name]:
                raise PlanRefused(f"{self._file}: {name} is {self.types[name]}, but {source.types[name]} is written.")
            else:
                self.place(name, source.addresses[name])

    def place(self, name: str, address: int) -> None:
        if not self._context.set_tensor_address(name, address):
            raise PlanRefused(f"{self._file}: TensorRT refuses an address for {name}.")
        self.addresses[name] = address

    def shape(self, name: str, shape: tuple[int, ...]) -> None:
        if not self._context.set_input_shape(name, shape):
            raise PlanRefused(f"{self._file}: {name} is {shape}, but the plan was built for up to {self.limits[name]}.")

    def bytes(self, name: str, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * int(self.types[name].itemsize)

    def write(self, name: str, values: NDArray[Any]) -> None:
        self.shape(name, values.shape)
        # Kept alive, because the copy may still be reading it when this returns.
        self._written[name] = np.ascontiguousarray(values, self.types[name])
        self._cuda.upload(self.addresses[name], self._written[name])

    def read(self, name: str) -> NDArray[Any]:
        """Returns an array that is filled once `Cuda.wait` has returned."""
        values = np.empty(tuple(self._context.get_tensor_shape(name)), self.types[name])
        self._cuda.download(values, self.addresses[name])
        return values

    def enqueue(self) -> None:
        if not self._context.execute_async_v3(self._cuda.stream):
            raise CudaFailed(f"{self._file}: TensorRT could not run it; its log says why")
