"""The code that runs on the Inf1 image names nothing that its torch 1.13.1 and its numpy do not have."""

from pathlib import Path

import pytest

from scripts.figures import closure, import_graph
from tests.model_build.neuron.inf1_names import facts, newer_names
from workloads import ROOT
from workloads.own_images import image_build

STARTED = (
    "model_build.neuron.backend",
    "containers.neuron.__main__",
    "containers.neuron.worker",
    "containers.batch.__main__",
    "containers.batch.worker",
    "containers.batch.record",
)
"""The modules that build, serve, batch and record there; theirs are all modules that these import."""
GRAPH = import_graph(
    ROOT, [file for package in ("model_build", "containers") for file in (ROOT / package).rglob("*.py")]
)
MODULES = {module for start in STARTED for module in closure(GRAPH, start)}
FILES = sorted(file for module in MODULES if (file := ROOT / f"{module.replace('.', '/')}.py").exists())


def test_the_names_are_those_of_the_images_torch() -> None:
    assert facts()["versions"] == {"torch": "1.13.1", "numpy": "1.23.5"}
    assert image_build("inf1").base.startswith("pytorch-inference-neuron:1.13.1-neuron-py310-")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_code_for_the_image_uses_no_newer_names(file: Path) -> None:
    assert newer_names(file) == []


def test_the_network_and_its_runner_are_among_the_files() -> None:
    names = {file.relative_to(ROOT).as_posix() for file in FILES}
    assert names >= {
        "model_build/encoder/bert.py",
        "model_build/neuron/compile.py",
        "containers/encoder/neuron_engine.py",
        "containers/neuron/batching.py",
        "containers/batch/answering.py",
    }


def test_newer_names_are_found_however_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "new.py"
    file.write_text(
        "import numpy as np\nimport torch\nfrom torch import nn, vmap\nfrom torch.nn import Buffer, Linear\n"
        "jit: object = torch.jit\n"
        "a = nn.Buffer(torch.ones(1))\n"
        "b = a.untyped_storage()\n"
        "c = torch.compile(nn.functional.scaled_dot_product_attention)\n"
        "d = np.concat([np.ones(1)])\n"
        "import re\ne = jit.load, re.compile, [1].index(1), nn.functional.gelu, torch.nn.Linear\n"
    )
    assert newer_names(file) == [
        "new.py:3: torch.vmap",
        "new.py:4: torch.nn.Buffer",
        "new.py:6: torch.nn.Buffer",
        "new.py:7: .untyped_storage",
        "new.py:8: torch.compile",
        "new.py:8: torch.nn.functional.scaled_dot_product_attention",
        "new.py:9: numpy.concat",
    ]
