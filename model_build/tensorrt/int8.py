"""Quantises a graph to int8 for TensorRT with NVIDIA ModelOpt: a pair of Q and DQ nodes at both inputs of a product.

In: a strongly typed graph, the products to quantise, and inputs to calibrate with. Out: a graph in which TensorRT takes
these products for int8. Weights are scaled by output channel, activations by the largest value of the calibration. All
scales are symmetric with zero point 0, the only kind that TensorRT has. Products of two activations (attention) keep
their type, as they do in int8 on CPU.

ModelOpt calibrates with ONNX Runtime on CPU, without a GPU. Two of its defaults are off. It would leave out products
with one row, which are all of a decoder's. It would round the rest to fp16 itself: `precision` does that before.
"""

import contextlib
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import onnx
from onnxruntime.quantization import CalibrationDataReader

from model_build.onnx_session import Tensors
from workloads import Unavailable

END = ";"
"""ModelOpt takes names of nodes for patterns that match from the beginning: `matmul_1` would also be `matmul_10`."""


def quantise(graph: Path, quantised: Path, products: Sequence[str], calibration: Iterable[Tensors]) -> None:
    """Writes `quantised`; `products` are names of nodes. Raises what `check_installed` raises.

    ModelOpt changes ONNX Runtime's quantiser for its whole process, so it has one of its own.
    """
    check_installed()
    if not products:  # ModelOpt would choose some itself
        shutil.copyfile(graph, quantised)
        return
    command = [sys.executable, "-m", __name__, str(graph), str(quantised), *products]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stream:  # it failed early: the log has the reason
            for tensors in calibration:
                pickle.dump(dict(tensors), stream)
    if process.returncode:
        raise RuntimeError(f"ModelOpt could not quantise {graph.name}: it ended with {process.returncode}.")


def check_installed() -> None:
    """Raises `Unavailable` where ModelOpt is not installed."""
    if find_spec("modelopt") is None:
        raise Unavailable(
            "NVIDIA ModelOpt, which quantises graphs to int8 for TensorRT, is not installed. Install it with "
            "`pip install -e '.[modelopt]'`, or set precision to fp16."
        )


def record() -> dict[str, str]:
    """Returns the record for artifact.json."""
    return {"nvidia-modelopt": version("nvidia-modelopt")}


class CalibrationBatches(CalibrationDataReader):  # type: ignore[misc]
    """Hands batches of inputs, one at a time, to ONNX Runtime's calibration."""

    def __init__(self, batches: Iterable[Tensors]) -> None:
        self._batches: Iterator[Tensors] = iter(batches)

    def get_next(self) -> Tensors | None:
        return next(self._batches, None)


def _main(graph: Path, quantised: Path, products: Sequence[str]) -> None:
    """Quantises with the tensors that standard input holds."""
    from modelopt.onnx.quantization import quantize  # type: ignore[import-not-found,import-untyped,unused-ignore]

    quantize(
        str(_renamed(graph, quantised.with_suffix(".named.onnx"), lambda name: f"{name}{END}")),
        calibration_data_reader=CalibrationBatches(_received()),
        nodes_to_quantize=[re.escape(f"{name}{END}") for name in products],
        output_path=str(quantised),
        quantize_mode="int8",
        calibration_method="max",
        calibration_eps=["cpu"],
        op_types_to_quantize=["MatMul"],
        disable_mha_qdq=True,
        enable_gemv_detection_for_trt=False,
        high_precision_dtype="fp32",  # the graph's types stay what they are
        log_level="WARNING",
    )
    _renamed(quantised, quantised, lambda name: name.removesuffix(END))


def _received() -> Iterator[Tensors]:
    with contextlib.suppress(EOFError):
        while True:
            yield pickle.load(sys.stdin.buffer)


def _renamed(graph: Path, file: Path, rename: Callable[[str], str]) -> Path:
    """Writes the graph with other names of its nodes to `file`."""
    model = onnx.load(graph)
    for node in model.graph.node:
        node.name = rename(node.name)
    onnx.save(model, file)
    return file


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
