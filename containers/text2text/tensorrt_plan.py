"""Loads TensorRT plans and runs them with their tensors in device memory. Not tested on a GPU.

    encoder.7.5.plan   built for compute capability 7.5; a folder may have the plans of several GPUs

All work goes to one stream, so results are there only after `Cuda.wait`. Memory and captured graphs are freed with the
`Cuda` that made them. Needs `cuda-bindings` and `tensorrt` in the version that built the plan. Source: NVIDIA's
samples/python/common_runtime.py and its guide to CUDA graphs.
"""

import ctypes
import importlib
import math
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]


class PlanRefused(RuntimeError):
    """A plan that this GPU or this TensorRT cannot run, or a call of CUDA that failed."""


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
        self._taken = ExitStack()  # frees memory and graphs, the last first
        weakref.finalize(self, self._taken.close).atexit = False  # a process that ends frees its memory anyway

    def compute_capability(self) -> str:
        known = self._runtime.cudaDeviceAttr
        names = (known.cudaDevAttrComputeCapabilityMajor, known.cudaDevAttrComputeCapabilityMinor)
        return ".".join(str(self._call(self._runtime.cudaDeviceGetAttribute(name, self._device))) for name in names)

    def allocate(self, size: int) -> int:
        """Allocates at least one byte, because an empty tensor needs an address, too."""
        address = int(self._call(self._runtime.cudaMalloc(max(size, 1))))
        self._taken.callback(self._runtime.cudaFree, address)
        return address

    def pinned(self, size: int) -> NDArray[np.uint8]:
        """Returns host memory that the device reads and writes by itself, which a captured copy needs."""
        address = int(self._call(self._runtime.cudaHostAlloc(size, self._runtime.cudaHostAllocDefault)))
        self._taken.callback(self._runtime.cudaFreeHost, address)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def upload(self, address: int, values: NDArray[Any]) -> None:
        self._copy(address, values.ctypes.data, values.nbytes, "cudaMemcpyHostToDevice")

    def download(self, values: NDArray[Any], address: int) -> None:
        self._copy(values.ctypes.data, address, values.nbytes, "cudaMemcpyDeviceToHost")

    def copy(self, to: int, source: int, size: int) -> None:
        self._copy(to, source, size, "cudaMemcpyDeviceToDevice")

    def clear(self, address: int, size: int) -> None:
        self._call(self._runtime.cudaMemsetAsync(address, 0, size, self._stream))

    def capture(self, work: Callable[[], None]) -> Any:
        """Returns a CUDA graph of everything that `work` sends to the stream, for `launch`."""
        runtime = self._runtime
        work()  # TensorRT prepares a context's shapes in its first run, which cannot be captured
        self.wait()
        mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._call(runtime.cudaStreamBeginCapture(self._stream, mode))
        work()
        graph = self._call(runtime.cudaStreamEndCapture(self._stream))
        launch = self._call(runtime.cudaGraphInstantiate(graph, 0))
        self._call(runtime.cudaGraphDestroy(graph))
        self._taken.callback(runtime.cudaGraphExecDestroy, launch)
        return launch

    def launch(self, graph: Any) -> None:
        self._call(self._runtime.cudaGraphLaunch(graph, self._stream))

    def wait(self) -> None:
        self._call(self._runtime.cudaStreamSynchronize(self._stream))

    def _copy(self, to: int, source: int, size: int, kind: str) -> None:
        direction = getattr(self._runtime.cudaMemcpyKind, kind)
        self._call(self._runtime.cudaMemcpyAsync(to, source, size, direction, self._stream))

    def _call(self, answer: tuple[Any, ...]) -> Any:
        """Checks the error code, which every call returns first, and returns the value after it."""
        if answer[0] != self._runtime.cudaError_t.cudaSuccess:
            raise PlanRefused(f"CUDA: {answer[0].name}")
        return answer[1] if len(answer) > 1 else None


def import_tensorrt() -> Any:
    """Returns TensorRT's module. A wheel of its bindings alone has another name than a whole installation."""
    try:
        return importlib.import_module("tensorrt_bindings")
    except ModuleNotFoundError:
        return importlib.import_module("tensorrt")


class Plan:
    """A plan that is loaded: its tensors' types, and the shapes that each of its profiles was built for."""

    def __init__(self, file: Path, cuda: Cuda) -> None:
        tensorrt = import_tensorrt()
        self.file, self._cuda = file, cuda
        self._runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.WARNING))
        self._engine = engine = self._runtime.deserialize_cuda_engine(file.read_bytes())
        if engine is None:
            raise PlanRefused(
                f"{file}: TensorRT {tensorrt.__version__} on a GPU of compute capability {cuda.compute_capability()} "
                "cannot load it. A plan loads only in the TensorRT version and on the GPU it was built for. "
                "Build it again in this image."
            )
        self._strategies = tensorrt.ExecutionContextAllocationStrategy
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        self.types = {name: np.dtype(tensorrt.nptype(engine.get_tensor_dtype(name))) for name in names}
        inputs = [name for name in names if engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT]
        # -1 is a size that each batch sets.
        self.shapes = {name: tuple(engine.get_tensor_shape(name)) for name in names}
        dynamic = [name for name in inputs if -1 in self.shapes[name]]
        self.activations = int(engine.device_memory_size_v2)  # bytes
        self._profiles = [
            {name: [tuple(shape) for shape in engine.get_tensor_profile_shape(name, index)] for name in dynamic}
            for index in range(engine.num_optimization_profiles)
        ]

    @property
    def largest(self) -> dict[str, Shape]:
        """The largest shape of every dynamic input, over all profiles."""
        return {name: max(profile[name][2] for profile in self._profiles) for name in self._profiles[0]}

    def bytes(self, name: str, shape: Shape) -> int:
        return math.prod(shape) * int(self.types[name].itemsize)

    def context(self, shapes: Mapping[str, Shape], activations: int | None = None) -> "Context":
        """Returns a context at these shapes, in the first profile that was built for them. Raises `PlanRefused`.

        `activations` is the address of memory that is shared with other contexts; else the context has its own.
        """
        index = next((i for i, profile in enumerate(self._profiles) if _fits(profile, shapes)), None)
        if index is None:
            raise PlanRefused(f"{self.file}: no profile was built for {dict(shapes)}. Build it again.")
        strategy = self._strategies.STATIC if activations is None else self._strategies.USER_MANAGED
        context = self._engine.create_execution_context(strategy)
        if activations is not None:
            context.set_device_memory(activations, self.activations)
        context.set_optimization_profile_async(index, self._cuda.stream)
        self._cuda.wait()
        made = Context(self, context, self._cuda)
        for name, shape in shapes.items():
            made.shape(name, shape)
        return made


def _fits(profile: Mapping[str, list[Shape]], shapes: Mapping[str, Shape]) -> bool:
    return all(
        all(low <= size <= high for low, size, high in zip(profile[name][0], shape, profile[name][2], strict=True))
        for name, shape in shapes.items()
    )


class Context:
    """A context of a plan: shapes, addresses, and running it."""

    def __init__(self, plan: Plan, context: Any, cuda: Cuda) -> None:
        self.plan, self._context, self._cuda = plan, context, cuda

    def place(self, addresses: Mapping[str, int]) -> None:
        for name, address in addresses.items():
            if not self._context.set_tensor_address(name, address):
                raise PlanRefused(f"{self.plan.file}: TensorRT refuses an address for {name}.")

    def shape(self, name: str, shape: Shape) -> None:
        if not self._context.set_input_shape(name, shape):
            largest = self.plan.largest[name]
            raise PlanRefused(f"{self.plan.file}: {name} is {shape}, but the plan was built for up to {largest}.")

    def shape_of(self, name: str) -> Shape:
        """Returns the shape of any tensor; TensorRT knows those of the outputs once it knows those of the inputs."""
        return tuple(self._context.get_tensor_shape(name))

    def bytes(self, name: str) -> int:
        return self.plan.bytes(name, self.shape_of(name))

    def enqueue(self) -> None:
        if not self._context.execute_async_v3(self._cuda.stream):
            raise PlanRefused(f"{self.plan.file}: TensorRT could not run it; its log says why")
