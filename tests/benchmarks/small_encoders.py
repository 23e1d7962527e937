"""`benchmarks/encoders.py` with a family in a small size: a program for the processes of its engines."""

import pytest

from benchmarks import encoders, harness

FAMILY = "distilbert"


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(encoders.CONFIGS, FAMILY, {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4})
    monkeypatch.setattr(harness, "TURN_S", 0.0)


if __name__ == "__main__":
    install(pytest.MonkeyPatch())
    encoders.run()
