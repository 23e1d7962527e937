"""Puts the stand-in for Neuron's compiler among the imported modules of this process, or on another's path."""

import os
import sys
from pathlib import Path

import pytest
import torch

from scripts.rehearsal.stand_ins import neuron
from scripts.rehearsal.stand_ins.neuron import SPLITS, VERSIONS, DataParallel, modules
from workloads import ROOT

__all__ = ["SPLITS", "VERSIONS", "DataParallel", "install", "modules", "write_package"]


def install(monkeypatch: pytest.MonkeyPatch, package: str, folder: Path, *, bf16: bool = False) -> None:
    """Makes `package` look installed, with its distributions' versions, which are written to `folder`."""
    monkeypatch.setattr(neuron, "bf16_products", bf16)
    made = modules()[package]
    monkeypatch.setitem(sys.modules, package, made)
    if package == "torch_neuron":
        monkeypatch.setattr(torch, "neuron", made, raising=False)
    neuron.write_distributions(folder, package)
    monkeypatch.syspath_prepend(folder)


def write_package(folder: Path, package: str) -> str:
    """Returns a PYTHONPATH on which `package` is the stand-in, and our packages are found."""
    return os.pathsep.join([neuron.write_package(folder, package), str(ROOT)])
