"""A fake of torch_neuron and torch_neuronx, for building, loading and serving without a chip.

It traces with torch.jit.trace; the graph can be saved and loaded in another process. As documented for the real ones:
- unknown arguments and compiler options are rejected;
- a graph takes tensors of the compiled shape and type only;
- `DataParallel` splits a batch over the process's NeuronCores in equal parts and takes a graph of its own;
- `lazy_load` of Inf2 marks a graph, and the mark is saved with it;
- `torch.split` and its like are rejected for Inf2 (aws-neuron-sdk #1140, #1323).

It computes in fp32 on the CPU. With `bf16_products`, a cast other than "none" multiplies matrices in bf16.
Sources: model_build/neuron/arguments.py. `write_package` writes a package for another process.
"""

from __future__ import annotations

import os
import shutil
import sys
import types
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import pytest

bf16_products = False
VERSIONS = {
    "torch_neuron": {"torch-neuron": "1.13.1.2.11.13.0", "neuron-cc": "1.24.0.0"},
    "torch_neuronx": {"torch-neuronx": "2.9.0.2.11.0", "neuronx-cc": "2.22.0"},
}
NEURON_OPTIONS: dict[str, Callable[[str], bool]] = {
    "--fp32-cast": {"all", "matmult", "matmult-fp16", "matmult-bf16", "all-fp16"}.__contains__,
    "--fast-math": {"all", "none"}.__contains__,
    "--neuroncore-pipeline-cores": str.isdigit,
}
NEURONX_OPTIONS: dict[str, Callable[[str], bool]] = {
    "--target": {"inf2", "trn1", "trn1n", "trn2"}.__contains__,
    "--model-type": {"generic", "transformer", "unet-inference"}.__contains__,
    "--auto-cast": {"none", "matmult", "all"}.__contains__,
    "--auto-cast-type": {"bf16", "fp16", "tf32", "fp8_e4m3"}.__contains__,
}


SPLITS = {f"aten::{name}" for name in ("split", "split_with_sizes", "tensor_split", "chunk", "unsafe_chunk", "unbind")}


def trace_neuron(
    model: torch.nn.Module,
    example_inputs: tuple[torch.Tensor, ...],
    *,
    compiler_args: list[str] | None = None,
    compiler_workdir: str | None = None,
    dynamic_batch_size: bool = False,
) -> torch.jit.ScriptModule:
    options = parse_options(compiler_args or [], NEURON_OPTIONS)
    if dynamic_batch_size:
        raise NotImplementedError("dynamic_batch_size is not faked.")
    return _trace(model, example_inputs, options, compiler_workdir)


def trace_neuronx(
    func: torch.nn.Module,
    example_inputs: tuple[torch.Tensor, ...],
    *,
    compiler_workdir: str | None = None,
    compiler_args: list[str] | None = None,
    cpu_backend: bool = False,
) -> torch.jit.ScriptModule:
    options = parse_options(compiler_args or [], NEURONX_OPTIONS)
    if not cpu_backend:
        raise RuntimeError("There is no Neuron device here: trace with cpu_backend=True.")
    if "--target" not in options:
        raise ValueError("cpu_backend needs --target in compiler_args.")
    traced = _trace(func, example_inputs, options, compiler_workdir)
    if split := SPLITS & {node.kind() for node in traced.inlined_graph.nodes()}:
        raise RuntimeError(f"{', '.join(sorted(split))} can be compiled to wrong numbers")
    return traced


def lazy_load(trace: torch.jit.ScriptModule, enable_lazy_load: bool = True) -> None:
    dict(trace.named_buffers())["lazy"].fill_(enable_lazy_load)


def parse_options(arguments: Sequence[str], allowed: dict[str, Callable[[str], bool]]) -> dict[str, str]:
    """Reads --name value and --name=value, both of which the compilers accept."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    options = dict(zip(words[::2], words[1::2], strict=True))
    for name, value in options.items():
        if name not in allowed or not allowed[name](value):
            raise ValueError(f"the compiler has no option {name} {value}")
    return options


@torch.jit.script
def _as_compiled(tensor: torch.Tensor, compiled: torch.Tensor) -> torch.Tensor:
    if tensor.shape != compiled.shape or tensor.dtype != compiled.dtype:
        raise RuntimeError("the graph was compiled for another shape or type")
    return tensor


class _FixedShape(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, examples: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self.examples = torch.nn.ParameterList(torch.nn.Parameter(e, requires_grad=False) for e in examples)
        self.register_buffer("lazy", torch.tensor(False))
        self.register_buffer("spread", torch.tensor(False))

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.model(*(_as_compiled(*pair) for pair in zip(tensors, self.examples, strict=True)))


class _Bf16Products(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            outputs = self.model(*tensors)
        return tuple(output.float() for output in outputs)


def _trace(
    model: torch.nn.Module, examples: tuple[torch.Tensor, ...], options: dict[str, str], workdir: str | None
) -> torch.jit.ScriptModule:
    casts = {options.get("--fp32-cast"), options.get("--auto-cast")} & {"matmult", "all"}
    if bf16_products and casts:
        model = _Bf16Products(model)
    if workdir:
        Path(workdir, "options.txt").write_text(str(options), "utf-8")
    jit: Any = torch.jit
    traced: torch.jit.ScriptModule = jit.trace(_FixedShape(model, examples), examples)
    return traced


def visible_cores() -> list[int]:
    """Returns the NeuronCores of this process, counted from 0."""
    if visible := os.environ.get("NEURON_RT_VISIBLE_CORES"):
        first, _, last = visible.partition("-")
        return list(range(int(last or first) - int(first) + 1))
    return list(range(int(os.environ.get("NEURON_RT_NUM_CORES") or 4)))


class DataParallel(torch.nn.Module):
    """One graph here serves every core; `ran` says which core had how many rows, in the order of the batch."""

    def __init__(self, model: torch.jit.ScriptModule, device_ids: list[int] | None = None, dim: int = 0) -> None:
        super().__init__()
        spread = dict(model.named_buffers())["spread"]
        if spread:
            raise RuntimeError("another DataParallel has taken this graph to cores of its own")
        spread.fill_(True)
        self.model = model
        self.device_ids = visible_cores() if device_ids is None else device_ids
        self.dim = dim
        self.num_workers = 2 * len(self.device_ids)
        self.ran: list[tuple[int, int]] = []
        self._dynamic = True

    def disable_dynamic_batching(self) -> None:
        self._dynamic = False

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self._dynamic:
            raise NotImplementedError("dynamic batching is not faked.")
        rows, cores = inputs[0].shape[self.dim], len(self.device_ids)
        if rows % cores:
            raise RuntimeError(f"{rows} rows are not the same number on each of {cores} cores")
        chunks = list(zip(*(torch.split(tensor, rows // cores, self.dim) for tensor in inputs), strict=True))
        self.ran = [(core, len(chunk[0])) for core, chunk in zip(self.device_ids, chunks, strict=True)]
        with ThreadPoolExecutor(self.num_workers) as pool:
            outputs = list(pool.map(lambda chunk: self.model(*chunk), chunks))
        return tuple(torch.cat(parts, self.dim) for parts in zip(*outputs, strict=True))


def modules() -> dict[str, types.ModuleType]:
    """Fresh ones of both packages."""
    neuron, neuronx = types.ModuleType("torch_neuron"), types.ModuleType("torch_neuronx")
    neuron.__dict__.update(trace=trace_neuron, DataParallel=DataParallel)
    neuronx.__dict__.update(trace=trace_neuronx, DataParallel=DataParallel, lazy_load=lazy_load)
    for module in (neuron, neuronx):
        module.__spec__ = ModuleSpec(module.__name__, None)
    return {"torch_neuron": neuron, "torch_neuronx": neuronx}


def write_distributions(folder: Path, package: str) -> None:
    """Makes the package's distributions look installed, in their versions, where `folder` is on the path."""
    for name, version in VERSIONS[package].items():
        information = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        information.mkdir(parents=True, exist_ok=True)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (information / "METADATA").write_text(metadata, "utf-8")


def install(monkeypatch: pytest.MonkeyPatch, package: str, folder: Path, *, bf16: bool = False) -> None:
    """Makes `package` look installed in this process. Its metadata goes to `folder`."""
    monkeypatch.setattr(f"{__name__}.bf16_products", bf16)
    module = modules()[package]
    monkeypatch.setitem(sys.modules, package, module)
    if package == "torch_neuron":
        monkeypatch.setattr(torch, "neuron", module, raising=False)
    write_distributions(folder, package)
    monkeypatch.syspath_prepend(folder)


def write_package(folder: Path, package: str) -> str:
    """Returns a PYTHONPATH on which `package` is the fake and the project's packages are found."""
    return os.pathsep.join([write_fake(folder, package), str(Path(__file__).parents[1])])


def write_fake(folder: Path, package: str) -> str:
    """Writes `package`, which needs only torch, and returns its PYTHONPATH."""
    write_distributions(folder, package)
    shutil.copyfile(__file__, folder / "neuron_stand_in.py")
    lines = [
        "import sys",
        "import torch",
        "import neuron_stand_in",
        f"sys.modules[__name__].__dict__.update(neuron_stand_in.modules()['{package}'].__dict__)",
        *(["torch.neuron = sys.modules[__name__]"] if package == "torch_neuron" else []),
    ]
    (folder / f"{package}.py").write_text("\n".join(lines) + "\n", "utf-8")
    return str(folder)
