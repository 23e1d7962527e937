"""`benchmarks/t5/engines.py` where the GPU is a stand-in: a program for the processes of latency.py.

PyTorch computes on the CPU, and TensorRT's plans are run by `fake_tensorrt`. The builder is whatever is on PATH.
"""

import pytest

from benchmarks import harness
from benchmarks.t5 import engines
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


if __name__ == "__main__":
    install(pytest.MonkeyPatch())
    engines.run()
