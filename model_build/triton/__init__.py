"""Writes what Triton reads: a model repository and the configuration of each model in it."""
