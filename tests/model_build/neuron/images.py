"""The Pythons of AWS's images for Inf1 and Inf2, as far as a machine without AWS has them, to run our programs in.

Inf1's torch 1.13.1, numpy and Python 3.10 are those of its image, which `make inf1` installs; Inf2's are those of here,
where its image has torch 2.9 and Python 3.12. AWS's own packages are tests/fake_neuron.py, which
traces with the real torch.jit.
"""

import importlib.metadata
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import fake_neuron
from workloads import ROOT

INF1 = ROOT / ".venv-inf1" / "bin" / "python"
needs_inf1 = pytest.mark.skipif(
    not INF1.exists(),
    reason="the Inf1 image's torch 1.13.1 is not installed: `make inf1` does it, and needs a Python 3.10",
)


@dataclass(frozen=True)
class Image:
    package: str
    """AWS's, of which an image has one."""
    python: Path
    torch: str
    chip: str
    """The NeuronCores of a chip, as NEURON_RT_VISIBLE_CORES names them."""


IMAGES = {
    "neuron": Image("torch_neuron", INF1, "1.13.1", "0-3"),
    "neuronx": Image("torch_neuronx", Path(sys.executable), importlib.metadata.version("torch").split("+")[0], "0-1"),
}


def environment_of(image: Image, site: Path) -> dict[str, str]:
    """Returns one with the fake of AWS's package, in which `python` is the image's."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("NEURON_", "PYTHONPATH"))}
    path = os.pathsep.join([str(image.python.parent), found["PATH"]])
    return {**found, "PYTHONPATH": fake_neuron.write_package(site, image.package), "PATH": path}


def run(image: Image, words: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [str(image.python), "-m", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
