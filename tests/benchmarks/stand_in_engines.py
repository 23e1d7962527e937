"""`benchmarks/t5/engines.py` where the GPU is a stand-in: a program for the processes of latency.py.

PyTorch computes on the CPU, and `fake_tensorrt` runs TensorRT's plans. The builder is the `trtexec` on PATH.
"""

import shutil
from importlib.util import find_spec

import pytest

from benchmarks import harness
from benchmarks.t5 import engines
from model_build.tensorrt import int8
from tests.containers import fake_tensorrt

SHAPE = "t5-tiny"


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    size = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 1, "num_heads": 4}
    monkeypatch.setitem(engines.SHAPES, SHAPE, size)
    monkeypatch.setattr(engines, "VOCABULARY", 1000)
    monkeypatch.setattr(engines, "CANDIDATES", 64)
    monkeypatch.setattr(engines, "GPU", "cpu")
    monkeypatch.setattr(harness, "TURN_S", 0.0)
    fake_tensorrt.install(monkeypatch, fake_tensorrt.Gpu())
    if find_spec("modelopt") is None:  # then graphs stay in fp16
        monkeypatch.setattr(int8, "check_installed", lambda: None)
        monkeypatch.setattr(int8, "quantise", lambda graph, quantised, *_: shutil.copyfile(graph, quantised))
        monkeypatch.setattr(int8, "record", dict)


if __name__ == "__main__":
    install(pytest.MonkeyPatch())
    engines.run()
