"""The parts of the Dockerfile that can be checked without Docker, which is not here to build the image."""

import ast
import importlib.metadata

from tests.containers.dockerfile import copied
from tests.locks import pins
from workloads import ROOT

CONTAINERS = ROOT / "containers"
DOCKERFILE = (CONTAINERS / "neuron" / "Dockerfile").read_text("utf-8")
SHIPPED = copied(DOCKERFILE)


def test_what_is_copied_is_there_and_keeps_its_name() -> None:
    assert set(SHIPPED) == {
        "__init__.py",
        "archive_reader.py",
        "embedded_metrics.py",
        "errors.py",
        "encoder",
        "batch",
        "neuron",
    }
    for source, destination in SHIPPED.items():
        assert source == destination
        assert (CONTAINERS / source).exists()


def test_the_code_that_is_copied_is_python_3_10_and_imports_only_what_is_copied() -> None:
    rooms = {source.removesuffix(".py") for source in SHIPPED}
    files = [file for source in SHIPPED for file in (CONTAINERS / source).rglob("*.py")]
    for file in files:
        if file.name == "tensorrt_engine.py":  # only the build's gate on a GPU loads it
            continue
        tree = ast.parse(file.read_text("utf-8"), feature_version=(3, 10))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 2 and node.module:
                assert node.module.split(".")[0] in rooms, f"{file} imports {node.module}"


def test_the_pins_are_what_the_tests_run_with() -> None:
    pinned = pins(CONTAINERS / "neuron" / "requirements.txt")
    for name in ("httptools", "tokenizers", "uvloop"):
        assert pinned[name] == importlib.metadata.version(name)
    assert not {"numpy", "torch"} & pinned.keys(), "they stay the image's own"
