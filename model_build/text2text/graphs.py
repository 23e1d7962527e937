"""The graphs a T5 is compiled to, and how its decoder's weights are quantised. Pure: nothing is compiled here."""

from pathlib import Path

from workloads import CudaTarget, Target, TensorRtTarget

GRAPHS = ("encoder", "decoder")
BLOCK = 128
"""Inputs of a product that share a scale in int8."""


def graph_files(target: Target, graphs: Path) -> dict[str, Path]:
    """The compiled files in `graphs`, by their name in the version folder."""
    names = [f"{graph}.{'pt' if isinstance(target, CudaTarget) else 'onnx'}" for graph in GRAPHS]
    if isinstance(target, TensorRtTarget):
        names = [f"{graph}.{capability}.plan" for graph in GRAPHS for capability in target.compute_capabilities]
    return {name: graphs / name for name in names}
