"""A GPU in host memory: just enough of `tensorrt` and `cuda.bindings.runtime`, running the very ONNX graphs.

Device memory is numpy buffers known by their addresses, filled with a pattern that is no number. Work on a stream waits
until the stream is synchronised, as on a GPU: an answer read too early is the pattern, and host arrays that died are
gone. A plan is what it was built for and the graph, so that shapes, types and addresses are checked against it.
"""

# ruff: noqa: N801, N802, N803, N815 - CUDA's names

import ctypes
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from model_build.tensorrt.profiles import Profile

VERSION = "10.14.1.48"
PATTERN = 0xFF  # NaN in every float, -1 in every integer
TYPES: dict[int, Any] = {
    onnx.TensorProto.FLOAT: np.float32,
    onnx.TensorProto.FLOAT16: np.float16,
    onnx.TensorProto.INT64: np.int64,
}
Shape = tuple[int, ...]
Run = Callable[[list[str], dict[str, NDArray[Any]]], list[NDArray[Any]]]


def write_plan(
    file: Path, model: onnx.ModelProto, profile: Profile, *, capability: str, tensorrt: str = VERSION
) -> None:
    shapes = {name: [shapes.min, shapes.opt, shapes.max] for name, shapes in profile.items()}
    head = json.dumps({"tensorrt": tensorrt, "capability": capability, "shapes": shapes})
    file.write_bytes(head.encode() + b"\n" + model.SerializeToString())


class cudaError_t(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1


class cudaMemcpyKind(IntEnum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3


class cudaDeviceAttr(IntEnum):
    cudaDevAttrComputeCapabilityMajor = 75
    cudaDevAttrComputeCapabilityMinor = 76


@dataclass
class Gpu:
    """One device with one stream, and what crossed to the host and back."""

    capability: str = "7.5"
    exact: bool = False  # compute in the very types of the graph, as a GPU does; ONNX Runtime hides fp16's overflow
    memory: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    queue: list[Callable[[], None]] = field(default_factory=list)
    uploaded: int = 0
    downloaded: int = 0
    steps: list[dict[str, Shape]] = field(default_factory=list)

    def view(self, address: int, size: int) -> NDArray[np.uint8]:
        """Device bytes; an address outside what was allocated is an illegal access."""
        for start, block in self.memory.items():
            if start <= address and address + size <= start + len(block):
                return block[address - start : address - start + size]
        raise AssertionError(f"illegal access of {size} bytes at {address:#x}")

    # cuda.bindings.runtime: every call answers with an error first.
    def cudaSetDevice(self, device: int) -> tuple[cudaError_t]:
        return (cudaError_t.cudaSuccess if device == 0 else cudaError_t.cudaErrorInvalidValue,)

    def cudaDeviceGetAttribute(self, attr: cudaDeviceAttr, device: int) -> tuple[cudaError_t, int]:
        part = attr - cudaDeviceAttr.cudaDevAttrComputeCapabilityMajor
        return cudaError_t.cudaSuccess, int(self.capability.split(".")[part])

    def cudaStreamCreate(self) -> tuple[cudaError_t, int]:
        return cudaError_t.cudaSuccess, 4711

    def cudaMalloc(self, size: int) -> tuple[cudaError_t, int]:
        block = np.full(size, PATTERN, np.uint8)
        self.memory[block.ctypes.data] = block
        return cudaError_t.cudaSuccess, block.ctypes.data

    def cudaFree(self, devPtr: int) -> tuple[cudaError_t]:
        del self.memory[devPtr]
        return (cudaError_t.cudaSuccess,)

    def cudaMemcpyAsync(self, dst: int, src: int, count: int, kind: cudaMemcpyKind, stream: int) -> tuple[cudaError_t]:
        assert stream == 4711
        if kind == cudaMemcpyKind.cudaMemcpyHostToDevice:
            self.uploaded += count
            to, source = self.view(dst, count), host(src, count)
        elif kind == cudaMemcpyKind.cudaMemcpyDeviceToHost:
            self.downloaded += count
            to, source = host(dst, count), self.view(src, count)
        else:
            assert dst + count <= src or src + count <= dst, "a copy on the device may not overlap"
            to, source = self.view(dst, count), self.view(src, count)
        self.queue.append(lambda: np.copyto(to, source))
        return (cudaError_t.cudaSuccess,)

    def cudaStreamSynchronize(self, stream: int) -> tuple[cudaError_t]:
        for work in self.queue:
            work()
        self.queue.clear()
        return (cudaError_t.cudaSuccess,)


def host(address: int, size: int) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class Context:
    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        self.shapes: dict[str, Shape] = {}
        self.addresses: dict[str, int] = {}

    def set_input_shape(self, name: str, shape: Shape) -> bool:
        low, high = self.engine.shapes[name]
        fits = len(shape) == len(low) and all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))
        if fits:
            self.shapes[name] = tuple(shape)
        return fits

    def get_tensor_shape(self, name: str) -> Shape:
        if name in self.shapes:
            return self.shapes[name]
        known: dict[str | int, int] = {
            axis: size
            for given, shape in self.shapes.items()
            for axis, size in zip(self.engine.axes[given], shape, strict=True)
        }
        known["present"] = known.get("past", 0) + 1
        return tuple(known[axis] if isinstance(axis, str) else axis for axis in self.engine.axes[name])

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return address != 0

    def execute_async_v3(self, stream_handle: int) -> bool:
        assert stream_handle == 4711
        assert len(set(self.addresses.values())) == len(self.engine.names), "every tensor has an address of its own"
        assert set(self.shapes) == set(self.engine.shapes), "every input has a shape"
        gpu, engine = self.engine.gpu, self.engine
        views = {
            name: gpu.view(self.addresses[name], self._bytes(name)).view(engine.types[name]) for name in engine.names
        }
        shapes = {name: self.get_tensor_shape(name) for name in engine.names}
        gpu.steps.append(shapes)

        def work() -> None:
            feeds = {name: views[name].reshape(shapes[name]) for name in engine.shapes}
            outputs = [name for name in engine.names if name not in engine.shapes]
            for name, values in zip(outputs, engine.run(outputs, feeds), strict=True):
                assert values.shape == shapes[name]
                views[name][:] = values.ravel()

        gpu.queue.append(work)
        return True

    def _bytes(self, name: str) -> int:
        size: int = np.dtype(self.engine.types[name]).itemsize
        return int(np.prod(self.get_tensor_shape(name))) * size


def by_onnxruntime(model: onnx.ModelProto) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    text = model.SerializeToString()
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    return lambda outputs, feeds: session.run(outputs, feeds)


def by_reference(model: onnx.ModelProto) -> Run:
    evaluator = ReferenceEvaluator(model)

    def run(outputs: list[str], feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        with np.errstate(all="ignore"):
            made: Any = evaluator.run(outputs, feeds)
        return list(made)

    return run


class TensorIOMode(IntEnum):
    INPUT = 1
    OUTPUT = 2


class Engine:
    def __init__(self, gpu: Gpu, model: onnx.ModelProto, shapes: dict[str, list[list[int]]]) -> None:
        self.gpu = gpu
        self.profile = {name: [tuple(shape) for shape in ranged] for name, ranged in shapes.items()}
        self.shapes = {name: (low, high) for name, (low, _, high) in self.profile.items()}
        values = [*model.graph.input, *model.graph.output]
        self.names: list[str] = [value.name for value in values]
        self.types = {value.name: TYPES[value.type.tensor_type.elem_type] for value in values}
        self.axes: dict[str, list[str | int]] = {
            v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values
        }
        self.run = by_reference(model) if gpu.exact else by_onnxruntime(model)

    @property
    def num_io_tensors(self) -> int:
        return len(self.names)

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_dtype(self, name: str) -> Any:
        return self.types[name]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.shapes else TensorIOMode.OUTPUT

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[Shape]:
        assert profile == 0
        return self.profile[name]

    def create_execution_context(self) -> Context:
        return Context(self)


def install(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    """Let `import tensorrt` and `from cuda.bindings import runtime` find the fakes."""
    tensorrt: Any = ModuleType("tensorrt")

    class Logger:
        WARNING = 2

        def __init__(self, severity: int) -> None: ...

    class Runtime:
        def __init__(self, logger: Logger) -> None: ...

        def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
            """None, as the real one answers, for a plan of another version or GPU."""
            head, _, graph = plan.partition(b"\n")
            built = json.loads(head)
            fits = (built["tensorrt"], built["capability"]) == (VERSION, gpu.capability)
            return Engine(gpu, onnx.load_from_string(graph), built["shapes"]) if fits else None

    tensorrt.__version__, tensorrt.Logger, tensorrt.Runtime = VERSION, Logger, Runtime
    tensorrt.TensorIOMode, tensorrt.nptype = TensorIOMode, lambda kind: kind
    runtime: Any = ModuleType("cuda.bindings.runtime")
    for name in dir(gpu):
        if name.startswith("cuda"):
            setattr(runtime, name, getattr(gpu, name))
    runtime.cudaError_t, runtime.cudaMemcpyKind, runtime.cudaDeviceAttr = cudaError_t, cudaMemcpyKind, cudaDeviceAttr
    bindings: Any = ModuleType("cuda.bindings")
    bindings.runtime = runtime
    modules = {"tensorrt": tensorrt, "cuda": ModuleType("cuda"), "cuda.bindings": bindings}
    for name, module in {**modules, "cuda.bindings.runtime": runtime}.items():
        monkeypatch.setitem(sys.modules, name, module)
