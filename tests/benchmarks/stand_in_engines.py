"""`benchmarks/text2text/engines.py` where the GPU is a stand-in: a program for the processes of latency.py.

PyTorch computes on the CPU, and `fake_tensorrt` runs TensorRT's plans. The builder is the `trtexec` on PATH.
"""

import shutil
from importlib.util import find_spec

import pytest

from benchmarks import harness
from benchmarks.text2text import engines, models
from model_build.tensorrt import int8
from tests.containers import fake_tensorrt

SHAPE = "t5-tiny"


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    size = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 1, "num_heads": 4}
    monkeypatch.setitem(models.T5_SHAPES, SHAPE, size)
    monkeypatch.setattr(models, "VOCABULARY", 1000)
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
