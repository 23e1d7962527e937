"""`benchmarks/encoders.py` with a family in a small size: a program for the processes of its engines."""

from benchmarks import encoders, harness

FAMILY, SIZE = "distilbert", {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4}

if __name__ == "__main__":
    encoders.CONFIGS[FAMILY] = SIZE
    harness.TURN_S = 0.0
    encoders.run()
