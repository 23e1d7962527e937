"""The image cannot be built here. What can be checked of it without Docker is."""

import ast
import importlib.metadata
import re

from workloads import ROOT

CONTAINERS = ROOT / "containers"
DOCKERFILE = (CONTAINERS / "batch" / "Dockerfile").read_text("utf-8")
SHIPPED = dict(re.findall(r"^COPY (\S+) /opt/program/containers/(\S+)$", DOCKERFILE, re.MULTILINE))
ON_NEURON_ALONE = {"neuron"}
"""Imported where a model for Neuron has been found, which this image never holds."""


def test_what_is_copied_is_there_and_keeps_its_name() -> None:
    assert set(SHIPPED) == {"__init__.py", "embedded_metrics.py", "encoder", "batch"}
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
    lines = (CONTAINERS / "batch" / "requirements.txt").read_text("utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == [f"boto3=={importlib.metadata.version('boto3')}"]
