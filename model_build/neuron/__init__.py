"""Compiles for AWS Inferentia: torch-neuron for Inf1, torch-neuronx for Inf2.

The compilers cannot be installed on a development machine: the code follows their documentation, and tests use a
stand-in that really traces. `arguments` and `compile` also run on the Inf1 image's Python 3.10, so they import
`workloads` only for the type checker.
"""
