"""How a T5 decoder's weights are quantised: what the build does and `plan` prints. Needs no compiler."""

BLOCK = 128
"""Inputs that share a scale."""
INT8_ACTIVATIONS = 4
"""MatMulNBits' accuracy_level."""
