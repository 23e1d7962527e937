"""Code for a container imports only packages that the container has, and parses with its Python."""

import ast
import importlib.metadata
import sys
from pathlib import Path

import pytest

import containers
from tests.locks import pins

ROOM = Path(containers.__path__[0])
SERVING = {"numpy", "onnxruntime", "tokenizers", "triton_python_backend_utils"}
ALLOWED = {
    "batch": {"boto3", "botocore", "numpy"},
    "encoder": SERVING | {"cuda", "tensorrt", "tensorrt_bindings", "torch"},
    "neuron": {"httptools", "numpy", "uvloop"},
    "text2text": SERVING | {"cuda", "tensorrt", "tensorrt_bindings", "torch"},
}
"""Packages by folder. A package of one runtime is imported only in the adapter of that runtime."""


def imports(file: Path) -> set[str]:
    """Top-level names of all that a file imports absolutely. It must parse as Python 3.10, which Inf1's image has."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"), feature_version=(3, 10))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("room", ALLOWED)
def test_the_serving_code_imports_only_what_its_container_has(room: str) -> None:
    files = sorted((ROOM / room).rglob("*.py"))
    assert files
    for file in files:
        assert imports(file) <= ALLOWED[room] | sys.stdlib_module_names, file


def test_nothing_in_a_container_uses_pickle() -> None:
    for file in ROOM.rglob("*.py"):
        assert not imports(file) & {"pickle", "cloudpickle", "dill", "joblib", "shelve"}, file


def test_the_container_has_the_versions_that_the_build_verified_with() -> None:
    pinned = pins(ROOM / "triton" / "requirements.txt")
    for name in ("onnxruntime", "tokenizers"):
        assert pinned[name] == importlib.metadata.version(name)
