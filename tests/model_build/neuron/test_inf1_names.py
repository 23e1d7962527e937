"""The code that runs on the Inf1 image names nothing that its torch 1.13.1 and its numpy do not have.

inf1_names.json has the names, which `inf1_names.py` prints. Methods are recognised only by name. Arguments and
behaviour that changed are covered by test_neuron_images.py.
"""

import ast
import re
from functools import cache
from pathlib import Path

from scripts.figures import closure, import_graph
from tests.model_build.neuron.inf1_names import CLASSES, MODULES, facts, public
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
IMPORTED = {module for start in STARTED for module in closure(GRAPH, start)}
FILES = sorted(file for module in IMPORTED if (file := ROOT / f"{module.replace('.', '/')}.py").exists())


def known(name: str) -> set[str]:
    """Returns the public names of a module or class in the image's versions."""
    return set(facts()["names"][name].split())


@cache
def newer_methods() -> frozenset[str]:
    """Returns the methods of the versions here that no class of the image's versions has, nor a list."""
    return frozenset(set().union(*map(public, CLASSES)) - set().union(dir(list), *map(known, CLASSES)))


def newer_names(file: Path) -> list[str]:
    """Returns each name of torch and numpy in a file that the image does not have, with its line."""
    nodes, aliases = list(ast.walk(ast.parse(file.read_text("utf-8")))), dict[str, str]()
    names: list[tuple[int, str]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                aliases[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                names.append((node.lineno, f"{node.module}.{alias.name}"))
        elif isinstance(node, ast.AnnAssign) and node.value and (name := ast.unparse(node.value)) in MODULES:
            aliases[ast.unparse(node.target)] = name  # `jit: Any = torch.jit`
    if not any(name.split(".")[0] in ("torch", "numpy") for name in aliases.values()):
        return []
    newer: set[tuple[int, str]] = set()
    for node in nodes:
        if isinstance(node, ast.Attribute):
            first, _, rest = (text := ast.unparse(node)).partition(".")
            if re.fullmatch(r"[\w.]+", text) and first in aliases:
                names.append((node.lineno, f"{aliases[first]}.{rest}"))
            elif node.attr in newer_methods():
                newer.add((node.lineno, f".{node.attr}"))
    for line, name in names:
        parts = name.split(".")
        outers = [(".".join(parts[:end]), parts[end]) for end in range(1, len(parts))]
        newer |= {
            (line, f"{outer}.{inner}")
            for outer, inner in outers
            if outer in facts()["names"] and inner not in known(outer)
        }
    return [f"{file.name}:{line}: {name}" for line, name in sorted(newer)]


def test_the_names_are_those_of_the_images_torch() -> None:
    assert facts()["versions"] == {"torch": "1.13.1", "numpy": "1.23.5"}
    assert image_build("inf1").base.startswith("pytorch-inference-neuron:1.13.1-neuron-py310-")


def test_code_for_the_image_uses_no_newer_names() -> None:
    assert [name for file in FILES for name in newer_names(file)] == []
    names = {file.relative_to(ROOT).as_posix() for file in FILES}
    assert names >= {
        "model_build/encoder/bert.py",
        "containers/encoder/engines/neuron_engine.py",
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
