"""Imports point one way: each room may import the rooms named here and no other; some packages stay in one place."""

import ast
from pathlib import Path

import pytest

from workloads import ROOT

ALLOWED = {
    "workloads": set[str](),
    "aws_api": {"workloads"},
    "model_build": {"workloads", "aws_api", "containers"},
    "containers": set[str](),
    "inference_recommender": {"workloads", "aws_api"},
    "local_aws": {"workloads", "inference_recommender"},
    "stacks": {"workloads"},
    "app.py": {"workloads", "stacks"},
}
"""model_build verifies with the very decoding loop that containers/ ships, and copies it into the archive."""

ONLY_IN = {
    "torch": {
        "containers/encoder/neuron_engine.py",
        "containers/encoder/torchscript_engine.py",
        "model_build/encoder/bert.py",
        "model_build/encoder/export.py",
        "model_build/encoder/reference.py",
        "model_build/neuron/compile.py",
        "model_build/text2text/export.py",
        "model_build/text2text/verify.py",
        "model_build/torch_threads.py",
        "workloads/duplicates/train.py",
        "workloads/product_bert/training.py",
        "workloads/query_intent/train.py",
        "workloads/question_answering/train.py",
        "workloads/spellcheck/train.py",
        "workloads/text_classification/train.py",
    },
    "transformers": {"model_build/", "workloads/"},
    "boto3": {
        "containers/batch/s3.py",
        "inference_recommender/jobs/aws.py",
        "inference_recommender/load_generator/requests.py",
        "inference_recommender/client/",
        "inference_recommender/sizing/price_list.py",
        "model_build/checkpoint.py",
        "aws_api/",
        "model_build/remote/aws.py",
    },
    "aws_cdk": {"stacks/", "app.py"},
    "moto": {"local_aws/"},
}


def _files(room: str) -> list[Path]:
    return [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).rglob("*.py"))


def _imports(file: Path) -> set[str]:
    """Top-level names of all that a file imports, lazily or not."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    rooms = {name.removesuffix(".py") for name in ALLOWED} - {room.removesuffix(".py")}
    assert _files(room), f"{room} is empty"
    for file in _files(room):
        wrong = _imports(file) & rooms - ALLOWED[room]
        assert not wrong, f"{file.relative_to(ROOT)} imports {sorted(wrong)}"


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_heavy_package_stays_in_its_place(package: str) -> None:
    places = tuple(ONLY_IN[package])
    for room in ALLOWED:
        for file in _files(room):
            name = file.relative_to(ROOT).as_posix()
            assert package not in _imports(file) or name.startswith(places), f"{name} imports {package}"
