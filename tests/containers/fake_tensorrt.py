"""A GPU in host memory: just enough of `tensorrt` and `cuda.bindings.runtime`, running the very ONNX graphs.

Device memory is numpy buffers known by their addresses, filled with a pattern that is no number. Work on a stream waits
until the stream is synchronised, as on a GPU: an answer read too early is the pattern, and host arrays that died are
gone. A captured graph is the work that the stream was given meanwhile; copies in it need pinned memory, and a context
that is part of it may not be changed any more. A plan is what it was built for and the graph, so that shapes, types and
addresses are checked against it.

Every name is in the bindings of TensorRT 10.4.0: python/src of NVIDIA/TensorRT at tag v10.4.0 (pyCore.cpp, pyGraph.cpp,
pyOnnx.cpp), and tensorrt.so of the wheel tensorrt-cu12-bindings 10.4.0 (read on 27 November 2026).
"""

# ruff: noqa: N801, N802, N803, N815 - CUDA's names

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

if TYPE_CHECKING:
    import pytest

    from model_build.tensorrt.profiles import Profile

VERSION = "10.4.0.26"
HEADER_BYTES = 28
"""A plan begins as a real one: see model_build/lint/backends.py."""
PATTERN = 0xFF  # NaN in every float, -1 in every integer
TYPES: dict[int, Any] = {
    onnx.TensorProto.FLOAT: np.float32,
    onnx.TensorProto.FLOAT16: np.float16,
    onnx.TensorProto.INT64: np.int64,
}
Shape = tuple[int, ...]
Run = Callable[[list[str], dict[str, NDArray[Any]]], list[NDArray[Any]]]


def write_plan(
    file: Path, model: onnx.ModelProto, profiles: Sequence[Profile], *, capability: str, tensorrt: str = VERSION
) -> None:
    shapes = [{name: [shapes.min, shapes.opt, shapes.max] for name, shapes in one.items()} for one in profiles]
    file.write_bytes(plan_bytes(model, shapes, capability=capability, tensorrt=tensorrt))


def plan_bytes(
    model: onnx.ModelProto,
    profiles: Sequence[Mapping[str, Sequence[Shape]]],
    *,
    capability: str,
    tensorrt: str = VERSION,
) -> bytes:
    head = json.dumps({"tensorrt": tensorrt, "capability": capability, "profiles": profiles})
    tag = b"ftrt" + bytes(20) + bytes(map(int, tensorrt.split(".")))
    return tag + b"\n".join((head.encode(), model.SerializeToString()))


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


class cudaStreamCaptureMode(IntEnum):
    cudaStreamCaptureModeThreadLocal = 1


Work = Callable[[], None]
STREAM = 4711


@dataclass
class Gpu:
    """One device with one stream, and what crossed to the host and back."""

    capability: str = "7.5"
    exact: bool = False  # compute in the very types of the graph, as a GPU does; ONNX Runtime hides fp16's overflow
    memory: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    pinned: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    queue: list[Work] = field(default_factory=list)
    captured: list[Work] | None = None
    graphs: dict[int, list[Work]] = field(default_factory=dict)
    uploads: list[int] = field(default_factory=list)  # bytes that crossed
    downloads: list[int] = field(default_factory=list)
    launches: int = 0
    waits: int = 0
    steps: list[tuple[int, dict[str, Shape]]] = field(default_factory=list)  # profile and shapes of each run

    def view(self, address: int, size: int) -> NDArray[np.uint8]:
        """Device bytes; an address outside the allocations is an illegal access."""
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
        return cudaError_t.cudaSuccess, STREAM

    def cudaMalloc(self, size: int) -> tuple[cudaError_t, int]:
        assert self.captured is None, "memory cannot be taken while a stream is captured"
        block = np.full(size, PATTERN, np.uint8)
        self.memory[block.ctypes.data] = block
        return cudaError_t.cudaSuccess, block.ctypes.data

    def cudaFree(self, devPtr: int) -> tuple[cudaError_t]:
        del self.memory[devPtr]
        return (cudaError_t.cudaSuccess,)

    def cudaHostAlloc(self, size: int, flags: int) -> tuple[cudaError_t, int]:
        block = np.full(size, PATTERN, np.uint8)
        self.pinned[block.ctypes.data] = block
        return cudaError_t.cudaSuccess, block.ctypes.data

    def cudaFreeHost(self, ptr: int) -> tuple[cudaError_t]:
        del self.pinned[ptr]
        return (cudaError_t.cudaSuccess,)

    def cudaMemcpyAsync(self, dst: int, src: int, count: int, kind: cudaMemcpyKind, stream: int) -> tuple[cudaError_t]:
        if kind == cudaMemcpyKind.cudaMemcpyHostToDevice:
            to, source, crossed = self.view(dst, count), self._host(src, count), self.uploads
        elif kind == cudaMemcpyKind.cudaMemcpyDeviceToHost:
            to, source, crossed = self._host(dst, count), self.view(src, count), self.downloads
        else:
            assert dst + count <= src or src + count <= dst, "a copy on the device may not overlap"
            to, source, crossed = self.view(dst, count), self.view(src, count), []

        def work() -> None:
            np.copyto(to, source)
            crossed.append(count)

        return self.do(work, stream)

    def cudaMemsetAsync(self, devPtr: int, value: int, count: int, stream: int) -> tuple[cudaError_t]:
        to = self.view(devPtr, count)
        return self.do(lambda: to.fill(value), stream)

    def cudaStreamBeginCapture(self, stream: int, mode: cudaStreamCaptureMode) -> tuple[cudaError_t]:
        assert stream == STREAM
        assert self.captured is None
        assert not self.queue
        self.captured = []
        return (cudaError_t.cudaSuccess,)

    def cudaStreamEndCapture(self, stream: int) -> tuple[cudaError_t, list[Work]]:
        assert stream == STREAM
        assert self.captured
        graph, self.captured = self.captured, None
        return cudaError_t.cudaSuccess, graph

    def cudaGraphInstantiate(self, graph: list[Work], flags: int) -> tuple[cudaError_t, int]:
        handle = max(self.graphs, default=0) + 1
        self.graphs[handle] = list(graph)
        return cudaError_t.cudaSuccess, handle

    def cudaGraphDestroy(self, graph: list[Work]) -> tuple[cudaError_t]:
        graph.clear()
        return (cudaError_t.cudaSuccess,)

    def cudaGraphExecDestroy(self, graphExec: int) -> tuple[cudaError_t]:
        del self.graphs[graphExec]
        return (cudaError_t.cudaSuccess,)

    def cudaGraphLaunch(self, graphExec: int, stream: int) -> tuple[cudaError_t]:
        assert stream == STREAM
        assert self.captured is None
        self.launches += 1
        self.queue += self.graphs[graphExec]
        return (cudaError_t.cudaSuccess,)

    def cudaStreamSynchronize(self, stream: int) -> tuple[cudaError_t]:
        assert self.captured is None, "a stream that is captured cannot be waited for"
        self.waits += 1
        for work in self.queue:
            work()
        self.queue.clear()
        return (cudaError_t.cudaSuccess,)

    def do(self, work: Work, stream: int) -> tuple[cudaError_t]:
        assert stream == STREAM
        (self.queue if self.captured is None else self.captured).append(work)
        return (cudaError_t.cudaSuccess,)

    def _host(self, address: int, size: int) -> NDArray[np.uint8]:
        inside = any(a <= address and address + size <= a + len(block) for a, block in self.pinned.items())
        assert inside or self.captured is None, "a captured copy needs pinned memory"
        return host(address, size)


def host(address: int, size: int) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class ExecutionContextAllocationStrategy(IntEnum):
    STATIC = 0
    USER_MANAGED = 2


class Context:
    def __init__(self, engine: Engine, strategy: ExecutionContextAllocationStrategy) -> None:
        self.engine = engine
        self.profile = 0
        self.shapes: dict[str, Shape] = {}
        self.addresses: dict[str, int] = {}
        self.has_activations = strategy == ExecutionContextAllocationStrategy.STATIC
        self.prepared = self.fixed = False

    def set_device_memory(self, memory: int, size: int) -> None:
        assert size >= self.engine.device_memory_size_v2
        self.engine.gpu.view(memory, size)
        self.has_activations = True

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        assert not self.fixed
        assert stream_handle == STREAM
        self.profile, self.shapes = profile_index, {}
        return True

    def set_input_shape(self, name: str, shape: Shape) -> bool:
        assert not self.fixed, "a context may not be changed once it is part of a captured graph"
        low, _, high = self.engine.profiles[self.profile][name]
        fits = len(shape) == len(low) and all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))
        if fits:
            self.prepared = self.prepared and self.shapes.get(name) == tuple(shape)
            self.shapes[name] = tuple(shape)
        return fits

    def get_tensor_shape(self, name: str) -> Shape:
        known: dict[str | int, int] = {
            axis: size
            for given, shape in self.shapes.items()
            for axis, size in zip(self.engine.axes[given], shape, strict=True)
        }
        return tuple(known[axis] if isinstance(axis, str) else axis for axis in self.engine.axes[name])

    def set_tensor_address(self, name: str, memory: int) -> bool:
        assert not self.fixed, "a context may not be changed once it is part of a captured graph"
        self.addresses[name] = memory
        return memory != 0

    def execute_async_v3(self, stream_handle: int) -> bool:
        gpu, engine = self.engine.gpu, self.engine
        assert self.has_activations, "a context without memory of its own is given some"
        assert set(self.addresses) == set(engine.names)
        assert len(set(self.addresses.values())) == len(engine.names), "every tensor has an address of its own"
        assert set(self.shapes) == set(engine.profiles[self.profile]), "every input has a shape"
        if gpu.captured is not None:
            assert self.prepared, "a context's first run at a shape cannot be captured"
            self.fixed = True
        self.prepared = True
        views = {
            name: gpu.view(self.addresses[name], self._bytes(name)).view(engine.types[name]) for name in engine.names
        }
        shapes = {name: self.get_tensor_shape(name) for name in engine.names}
        profile = self.profile

        def work() -> None:
            gpu.steps.append((profile, shapes))
            feeds = {name: views[name].reshape(shapes[name]) for name in engine.inputs}
            outputs = [name for name in engine.names if name not in engine.inputs]
            for name, values in zip(outputs, engine.run(outputs, feeds), strict=True):
                assert values.shape == shapes[name]
                views[name][:] = values.ravel()

        gpu.do(work, stream_handle)
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
    device_memory_size_v2 = 1024

    def __init__(self, gpu: Gpu, model: onnx.ModelProto, profiles: list[dict[str, list[list[int]]]]) -> None:
        self.gpu = gpu
        self.profiles = [
            {name: [tuple(shape) for shape in ranged] for name, ranged in profile.items()} for profile in profiles
        ]
        self.inputs = [value.name for value in model.graph.input]
        values = [*model.graph.input, *model.graph.output]
        self.names: list[str] = [value.name for value in values]
        self.types = {value.name: TYPES[value.type.tensor_type.elem_type] for value in values}
        self.axes: dict[str, list[str | int]] = {
            v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values
        }
        self.run = by_reference(model) if gpu.exact else by_onnxruntime(model)

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.profiles)

    @property
    def num_io_tensors(self) -> int:
        return len(self.names)

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_dtype(self, name: str) -> Any:
        return self.types[name]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> Shape:
        return tuple(-1 if isinstance(axis, str) else axis for axis in self.axes[name])

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Shape]:
        return self.profiles[profile_index][name]

    def create_execution_context(self, strategy: ExecutionContextAllocationStrategy) -> Context:
        return Context(self, strategy)


class ILogger:
    WARNING, ERROR, INTERNAL_ERROR = 2, 1, 0


class NetworkDefinitionCreationFlag(IntEnum):
    STRONGLY_TYPED = 1


class BuilderFlag(IntEnum):
    TF32 = 7


class OptimizationProfile(dict[str, list[Shape]]):
    def set_shape(self, name: str, *shapes: Shape) -> None:
        self[name] = list(shapes)


class BuilderConfig:
    builder_optimization_level = 3

    def __init__(self) -> None:
        self.profiles: list[OptimizationProfile] = []
        self.flags = {BuilderFlag.TF32}

    def clear_flag(self, flag: BuilderFlag) -> None:
        self.flags.remove(flag)

    def add_optimization_profile(self, profile: OptimizationProfile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1


@dataclass
class Input:
    name: str
    shape: Shape


class Network:
    model: onnx.ModelProto

    @property
    def num_inputs(self) -> int:
        return len(self.model.graph.input)

    def get_input(self, index: int) -> Input:
        value = self.model.graph.input[index]
        return Input(value.name, tuple(d.dim_value or -1 for d in value.type.tensor_type.shape.dim))


@dataclass
class OnnxParser:
    network: Network
    logger: ILogger

    def parse_from_file(self, file: str) -> bool:
        self.network.model = onnx.load(file)
        return True


def builder_of(gpu: Gpu) -> type:
    """A builder that writes what `write_plan` writes, for this GPU."""

    @dataclass
    class Builder:
        logger: ILogger

        def create_network(self, flags: int) -> Network:
            assert flags == 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED
            return Network()

        def create_builder_config(self) -> BuilderConfig:
            return BuilderConfig()

        def create_optimization_profile(self) -> OptimizationProfile:
            return OptimizationProfile()

        def build_serialized_network(self, network: Network, config: BuilderConfig) -> bytes:
            assert not config.flags
            return plan_bytes(network.model, config.profiles, capability=gpu.capability)

    return Builder


def install(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    """Let `import tensorrt` and `from cuda.bindings import runtime` find the fakes."""
    for name, module in modules(gpu).items():
        monkeypatch.setitem(sys.modules, name, module)


def modules(gpu: Gpu) -> dict[str, ModuleType]:
    """Returns TensorRT's and CUDA's modules by their names."""
    tensorrt: Any = ModuleType("tensorrt")

    class Logger:
        WARNING = 2

        def __init__(self, severity: int) -> None: ...

    class Runtime:
        def __init__(self, logger: Logger) -> None: ...

        def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
            """None, as the real one answers, for a plan of another version or GPU."""
            head, _, graph = plan[HEADER_BYTES:].partition(b"\n")
            built = json.loads(head)
            fits = (built["tensorrt"], built["capability"]) == (VERSION, gpu.capability)
            return Engine(gpu, onnx.load_from_string(graph), built["profiles"]) if fits else None

    tensorrt.__version__, tensorrt.Logger, tensorrt.Runtime = VERSION, Logger, Runtime
    tensorrt.Builder = builder_of(gpu)
    for part in (ILogger, NetworkDefinitionCreationFlag, BuilderFlag, OnnxParser):
        setattr(tensorrt, part.__name__, part)
    tensorrt.TensorIOMode, tensorrt.nptype = TensorIOMode, lambda kind: kind
    tensorrt.ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy
    runtime: Any = ModuleType("cuda.bindings.runtime")
    for name in dir(gpu):
        if name.startswith("cuda"):
            setattr(runtime, name, getattr(gpu, name))
    for kind in (cudaError_t, cudaMemcpyKind, cudaDeviceAttr, cudaStreamCaptureMode):
        setattr(runtime, kind.__name__, kind)
    runtime.cudaHostAllocDefault = 0
    bindings: Any = ModuleType("cuda.bindings")
    bindings.runtime = runtime
    made = {"tensorrt": tensorrt, "cuda": ModuleType("cuda"), "cuda.bindings": bindings}
    made["cuda.bindings.runtime"] = runtime
    for name, module in made.items():
        module.__spec__ = ModuleSpec(name, None)  # torch looks for TensorRT's
    return made
