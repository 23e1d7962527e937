"""The parts of the Dockerfile that can be checked without Docker, which is not here to build the image."""

import ast
import importlib.metadata

from tests.containers.dockerfile import copied
from tests.locks import pins
from workloads import ROOT

CONTAINERS = ROOT / "containers"
DOCKERFILE = (CONTAINERS / "batch" / "Dockerfile").read_text("utf-8")
SHIPPED = copied(DOCKERFILE)
ON_NEURON_ALONE = {"neuron"}
"""Packages imported only for a model for Neuron, which this image never holds."""


def test_what_is_copied_is_there_and_keeps_its_name() -> None:
    assert set(SHIPPED) == {"__init__.py", "archive_reader.py", "embedded_metrics.py", "errors.py", "encoder", "batch"}
    for source, destination in SHIPPED.items():
        assert source == destination
        assert (CONTAINERS / source).exists()


def test_the_code_that_is_copied_imports_only_what_is_copied() -> None:
    rooms = {name.removesuffix(".py") for name in SHIPPED} | ON_NEURON_ALONE
    for file in (CONTAINERS / "batch").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                named = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
                assert set(named) <= rooms, f"{file} imports {named}"


def test_the_pin_is_what_the_tests_run_with() -> None:
    pinned = pins(CONTAINERS / "batch" / "requirements.txt")
    assert pinned == {name: importlib.metadata.version(name) for name in pinned}
    assert "boto3" in pinned
