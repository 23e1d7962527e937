"""Compiles for AWS Inferentia: torch-neuron for Inf1, torch-neuronx for Inf2.

Nothing of it can be installed where this was written. It follows the documentation, and a fake that really traces
stands in for it in the tests. `arguments` and `compile` also run on the Inf1 image's Python 3.10: what they import of
`workloads`, which is not meant for 3.10, is imported only for the type checker.
"""
