"""Runs the compiled model on ONNX Runtime, on CPU: an `Engine`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

CPUINFO = Path("/proc/cpuinfo")
VNNI = {"avx512_vnni", "avx_vnni"}
"""The CPU flags of instructions that add products of 8 bits in 32 bits."""


class OnnxEngine:
    def __init__(self, file: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Waiting threads that spin would take the cores from Triton and from other model instances.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not VNNI & set(CPUINFO.read_text("utf-8").split()):
            # Sums of products of uint8 and int8 would overflow. These kernels do not use VNNI, and are slower.
            options.add_session_config_entry("session.x64quantprecision", "1")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._outputs = [node.name for node in self._session.get_outputs()]

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return dict(zip(self._outputs, self._session.run(self._outputs, dict(tensors)), strict=True))
