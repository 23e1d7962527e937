"""The two graphs of a T5 on TensorRT: an `Engine` of the decoding loop whose caches never leave the GPU.

    encoder.7.5.plan, decoder.7.5.plan   built for compute capability 7.5; a folder may hold those of several GPUs

All device memory is taken once, at the largest shapes the plans were built for. The decoder reads the cache from one
buffer and writes the longer one into another; then they change places. Rows that leave are closed up where they lie.
Only tokens, and logits when they are asked for, cross to the host. One batch at a time: a new one takes the memory.

Needs the packages `tensorrt`, of the very version the plans were built with, and `cuda-bindings`. The calls are those
of NVIDIA's own samples (samples/python/common_runtime.py); an address is never null, as TensorRT asks even for the
empty cache of the first step. Not run here: there is no GPU.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decoding import Tokens


class PlanRefused(Exception):
    """A plan that this GPU or this TensorRT cannot run."""


def plan_name(graph: str, compute_capability: str) -> str:
    return f"{graph}.{compute_capability}.plan"


@dataclass
class Batch:
    """What is in the engine's memory."""

    rows: int
    source: int
    past: int = 0


class TensorRtEngine:
    def __init__(self, folder: Path, device: int = 0) -> None:
        """Load the plans of `folder` that were built for this GPU. Raises `PlanRefused`."""
        self._cuda = _Cuda(device)
        capability = self._cuda.compute_capability()
        self._encoder = _Graph(_find(folder, "encoder", capability), self._cuda, None)
        self._decoder = _Graph(_find(folder, "decoder", capability), self._cuda, self._encoder)
        # Read from the first, written to the second.
        self._caches = (self._decoder.addresses["past"], self._decoder.addresses["present"])
        self._batch: Batch | None = None

    def encode(self, token_ids: Tokens, mask: Tokens) -> Batch:
        rows, length = token_ids.shape
        self._batch = Batch(rows, length)
        self._encoder.write("input_ids", token_ids)
        self._encoder.write("attention_mask", mask)
        self._encoder.enqueue()
        self._cuda.wait()
        return self._batch

    def step(self, state: Batch, tokens: Tokens) -> Tokens:
        next_tokens: Tokens = self.advance(state, tokens, "next_tokens")
        return next_tokens

    def advance(self, state: Batch, tokens: Tokens, output: str) -> Any:
        """One step that answers with `output` of the decoder: `next_tokens`, or `logits` for the parity gate."""
        self._check(state)
        decoder = self._decoder
        decoder.write("tokens", tokens)
        for name, length in (("cross", state.source), ("cross_bias", state.source), ("past", state.past)):
            decoder.shape(name, decoder.of_length(name, state.rows, length))
        decoder.place("past", self._caches[0])
        decoder.place("present", self._caches[1])
        decoder.enqueue()
        answer = decoder.read(output)
        self._cuda.wait()
        self._caches = (self._caches[1], self._caches[0])
        state.past += 1
        return answer

    def keep(self, state: Batch, rows: NDArray[np.intp]) -> None:
        """`rows` ascend: each moves to a place that was its own or has been read already."""
        self._check(state)
        decoder = self._decoder
        decoder.place("past", self._caches[0])
        for name, length in (("cross", state.source), ("cross_bias", state.source), ("past", state.past)):
            address, size = decoder.addresses[name], decoder.bytes(name, decoder.of_length(name, 1, length))
            for place, row in enumerate(rows.tolist()):
                if place != row and size:
                    self._cuda.copy(address + place * size, address + row * size, size)
        state.rows = len(rows)

    def _check(self, state: Batch) -> None:
        if state is not self._batch:
            raise RuntimeError("this batch's caches were taken by a later one")


class _Graph:
    """One plan, its context, and an address for every tensor: its own memory, or the place where `source` writes it."""

    def __init__(self, plan: Path, cuda: "_Cuda", source: "_Graph | None") -> None:
        import tensorrt  # type: ignore[import-not-found,unused-ignore]

        self._cuda, self._plan = cuda, plan
        self._runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.WARNING))
        self._engine = self._runtime.deserialize_cuda_engine(plan.read_bytes())
        if self._engine is None:
            raise PlanRefused(
                f"{plan}: TensorRT {tensorrt.__version__} on a GPU of compute capability {cuda.compute_capability()} "
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
        self._find_places(names, source)

    def _find_places(self, names: list[str], source: "_Graph | None") -> None:
        """Memory of the largest shapes: TensorRT tells the outputs' when it knows the inputs'."""
        for name, shape in self.limits.items():
            self.shape(name, shape)
        for name in names:
            # These two change places, and `present` is the longer.
            sized = "present" if name == "past" else name
            if source is None or name not in source.types:
                self.place(name, self._cuda.allocate(self.bytes(name, self._context.get_tensor_shape(sized))))
            elif source.types[name] != self.types[name]:
                raise PlanRefused(f"{self._plan}: {name} is {self.types[name]}, but {source.types[name]} is written.")
            else:
                self.place(name, source.addresses[name])

    def place(self, name: str, address: int) -> None:
        if not self._context.set_tensor_address(name, address):
            raise PlanRefused(f"{self._plan}: TensorRT refuses an address for {name}.")
        self.addresses[name] = address

    def shape(self, name: str, shape: tuple[int, ...]) -> None:
        if not self._context.set_input_shape(name, shape):
            raise PlanRefused(f"{self._plan}: {name} is {shape}, but the plan was built for up to {self.limits[name]}.")

    def of_length(self, name: str, rows: int, length: int) -> tuple[int, ...]:
        """The shape of a cache: its axis 2 varies, cross_bias's axis 3."""
        _, heads, second, last = self.limits[name]
        return (rows, heads, second, length) if name == "cross_bias" else (rows, heads, length, last)

    def bytes(self, name: str, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * int(self.types[name].itemsize)

    def write(self, name: str, values: NDArray[Any]) -> None:
        self.shape(name, values.shape)
        # Held: the copy may still be reading it when this returns.
        self._written[name] = np.ascontiguousarray(values, self.types[name])
        self._cuda.upload(self.addresses[name], self._written[name])

    def read(self, name: str) -> NDArray[Any]:
        """Filled once the engine is waited for."""
        values = np.empty(tuple(self._context.get_tensor_shape(name)), self.types[name])
        self._cuda.download(values, self.addresses[name])
        return values

    def enqueue(self) -> None:
        if not self._context.execute_async_v3(self._cuda.stream):
            raise RuntimeError(f"{self._plan}: TensorRT could not run it; its log says why")


class _Cuda:
    """The few calls of the CUDA runtime that are needed, each checked."""

    def __init__(self, device: int) -> None:
        from cuda.bindings import runtime  # type: ignore[import-untyped,import-not-found,unused-ignore]

        self._runtime, self._device = runtime, device
        self._call(runtime.cudaSetDevice(device))
        self._stream = self._call(runtime.cudaStreamCreate())
        self.stream = int(self._stream)

    def compute_capability(self) -> str:
        known = self._runtime.cudaDeviceAttr
        names = (known.cudaDevAttrComputeCapabilityMajor, known.cudaDevAttrComputeCapabilityMinor)
        return ".".join(str(self._call(self._runtime.cudaDeviceGetAttribute(name, self._device))) for name in names)

    def allocate(self, size: int) -> int:
        """Never of nothing: an empty tensor has an address too."""
        return int(self._call(self._runtime.cudaMalloc(max(size, 1))))

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
        """Every call answers with an error code first."""
        if answer[0] != self._runtime.cudaError_t.cudaSuccess:
            raise RuntimeError(f"CUDA: {answer[0].name}")
        return answer[1] if len(answer) > 1 else None


def _find(folder: Path, graph: str, capability: str) -> Path:
    plan = folder / plan_name(graph, capability)
    if not plan.exists():
        held = sorted(file.name for file in folder.glob(f"{graph}.*.plan"))
        raise PlanRefused(
            f"{folder}: this GPU has compute capability {capability}, and there is no {plan.name}. "
            f"There: {', '.join(held) or 'no plan'}. Build the target for this GPU."
        )
    return plan
