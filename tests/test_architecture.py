"""Imports point one way, heavy packages stay in their places, and no module of ours is chosen by a string.

Lazy imports and those for types count. The data folders of workloads/ are read as well: a new one needs no edit here.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from scripts.figures import Import, closure, import_graph, imports, module_name
from workloads import ROOT
from workloads.contract import PACKAGES

RECOMMENDER = "inference_recommender"
READER = "containers.archive_reader"
TRACKING = f"{RECOMMENDER}.simulate.tracking"
OF_A_PROBE = {f"{RECOMMENDER}.payloads", f"{RECOMMENDER}.sizing.prices"}
MAY_IMPORT = {
    "workloads": {"workloads"},
    "aws_api": {"aws_api", "workloads"},
    "model_build": {"model_build", "workloads", "aws_api", "containers"},
    "containers": {"containers"},
    READER: {READER},
    RECOMMENDER: {RECOMMENDER, "workloads", "aws_api", READER},
    f"{RECOMMENDER}.capacity": {f"{RECOMMENDER}.capacity", "workloads"},
    f"{RECOMMENDER}.kserve": {f"{RECOMMENDER}.kserve", "workloads"},
    f"{RECOMMENDER}.load_generator": {
        f"{RECOMMENDER}.load_generator",
        f"{RECOMMENDER}.kserve",
        f"{RECOMMENDER}.capacity",
        "workloads",
        "aws_api",
        READER,
    },
    f"{RECOMMENDER}.client": {f"{RECOMMENDER}.client", f"{RECOMMENDER}.kserve", "workloads", "aws_api.errors"},
    "local_aws": {
        "local_aws",
        "workloads",
        "aws_api.service_model",
        f"{RECOMMENDER}.load_generator",
        TRACKING,
        READER,
    },
    "stacks": {"stacks", "workloads"},
    "stacks.preflight": {"stacks.preflight", "stacks.context", "stacks.ecs.zones", "workloads", "aws_api", *OF_A_PROBE},
    "stacks.explain": {"workloads", "aws_api"},
    "stacks.__main__": {
        "stacks.preflight",
        "stacks.explain",
        "stacks.context",
        "stacks.ecs.zones",
        "workloads",
        "aws_api",
    },
    "app": {"app", "stacks", "workloads"},
    "benchmarks": {"benchmarks", "scripts", *PACKAGES},
    "scripts": {"scripts", *PACKAGES},
}
"""The longest name that a module begins with holds. model_build verifies with the very decoding loop that containers/
ships, and copies it into the archive. All rooms read archives with the one module that containers can import, too.
Of stacks, preflight and explain call AWS: they are commands, make no construct, and no synthesis reaches them.
local_aws imports the simulation's module of target tracking: one reading of AWS's documentation decides in both.
A preflight packs and prices its probe with what packs payloads and prices fleets."""

ONLY_IN = {
    "torch": {
        "benchmarks/*",
        "containers/encoder/*",
        "containers/text2text/torch_engine.py",
        "model_build/encoder/*",
        "model_build/init/checkpoint_source.py",
        "model_build/neuron/*",
        "model_build/text2text/*",
        "model_build/torch_threads.py",
    },
    "transformers": {"benchmarks/*", "model_build/*"},
    "boto3": {
        "aws_api/*",
        "containers/batch/*",
        "inference_recommender/client/*",
        "inference_recommender/load_generator/requests.py",
        "scripts/rehearsal/*",
    },
    "aws_cdk": {"app.py", "stacks/*"},
    "moto": {"local_aws/*"},
    "httptools": {"containers/neuron/*", "inference_recommender/load_generator/*"},
    "uvloop": {"containers/neuron/*", "inference_recommender/load_generator/*"},
    "scipy": {"inference_recommender/capacity/*"},
    "matplotlib": {"inference_recommender/report/*", "inference_recommender/experiment/*"},
    "jinja2": {"inference_recommender/report/*", "inference_recommender/experiment/*", "model_build/init/*"},
    "sagemaker": {"workloads/images.py"},
    "tensorrt_rtx_bindings": {"model_build/tensorrt/*"},
    "tarfile": {
        "benchmarks/*",
        "containers/archive_reader.py",
        "inference_recommender/measure/generator_fleet.py",
        "inference_recommender/payloads.py",
        "model_build/archive.py",
        "scripts/rehearsal/steps.py",
        "scripts/rehearsal/stand_ins/docker_images.py",
    },
}
"""By folder. sagemaker-core takes 2 s to import: only what needs the URI of an image does.
Archives are read only with containers/archive_reader.py, which uses tarfile's parser of headers."""

CLIENT_NEEDS_NONE_OF = ("matplotlib", "scipy", "uvloop", "httptools", "rich", "jinja2")
ON_OTHER_MACHINES = {"model_build/remote/entry.py", "inference_recommender/measure/generator_entry.py"}
"""They run before anything of ours is installed, with nothing but the reader of archives beside them, so they cannot
import a command."""

STILL: dict[str, set[str]] = {
    "boto3": {"model_build/checkpoint/fetch.py"},
}
"""Exceptions that are to go, by package. Nothing may be added."""


@cache
def _files() -> list[Path]:
    folders = (*PACKAGES, "benchmarks", "scripts")
    return sorted([*(file for folder in folders for file in (ROOT / folder).rglob("*.py")), ROOT / "app.py"])


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns the sets of nodes that reach each other, sorted."""
    reached = {node: closure(graph, node) for node in graph}
    components = {tuple(sorted(other for other in reached[node] if node in reached[other])) for node in graph}
    return sorted(list(component) for component in components if len(component) > 1)


def by_folder(graph: Mapping[str, set[str]], depth: int) -> dict[str, set[str]]:
    """Returns the graph between folders: depth 1 for packages, 2 for sub-packages."""
    folders = {".".join(module.split(".")[:depth]) for module in graph if module.count(".") >= depth}
    merged: dict[str, set[str]] = {folder: set() for folder in folders}
    for module, targets in graph.items():
        if (folder := ".".join(module.split(".")[:depth])) in folders:
            merged[folder] |= {".".join(target.split(".")[:depth]) for target in targets} & folders - {folder}
    return merged


@cache
def _imports() -> list[Import]:
    return [each for file in _files() for each in imports(file, ROOT)]


@cache
def _graph() -> dict[str, set[str]]:
    return import_graph(ROOT, _files())


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _room(module: str) -> str:
    return max((room for room in MAY_IMPORT if _within(module, room)), key=len)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_package_imports_only_allowed_packages(room: str) -> None:
    assert any(_room(module_name(file, ROOT)) == room for file in _files()), f"{room} is empty"
    ours = {name.split(".")[0] for name in MAY_IMPORT}
    wrong = [
        f"{each.importer}:{each.line} imports {each.imported}"
        for each in _imports()
        if _room(each.importer) == room
        and each.imported.split(".")[0] in ours
        and not any(_within(each.imported, allowed) for allowed in MAY_IMPORT[room])
    ]
    assert wrong == []


@pytest.mark.parametrize("depth", [1, 2], ids=["packages", "sub-packages"])
def test_no_circle_between(depth: int) -> None:
    assert circles(by_folder(_graph(), depth)) == []


def test_no_circle_between_modules() -> None:
    assert circles(_graph()) == []


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_package_stays_in_its_place(package: str) -> None:
    importers = {each.importer for each in _imports() if each.imported.split(".")[0] == package}
    files = {file.relative_to(ROOT).as_posix() for file in _files() if module_name(file, ROOT) in importers}
    places = ONLY_IN[package] | STILL.get(package, set())
    assert {file for file in files if not any(fnmatchcase(file, place) for place in places)} == set()


def test_a_synthesis_reaches_neither_torch_nor_boto3() -> None:
    reached = closure(_graph(), "app")
    heavy = {"torch", "boto3", "botocore"}
    wrong = [each for each in _imports() if each.importer in reached and each.imported.split(".")[0] in heavy]
    assert wrong == []


def test_production_code_that_asks_an_endpoint_needs_no_tools_of_measuring() -> None:
    program = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({CLIENT_NEEDS_NONE_OF}))\n"  # None: importing it fails
        "import inference_recommender.client\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def _strings(tree: ast.AST) -> Iterator[tuple[str, str | None]]:
    """Yields each string in a list, tuple or call, and the string before it there."""
    for node in ast.walk(tree):
        elements = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
        before = None
        for element in elements:
            text = element.value if isinstance(element, ast.Constant) and isinstance(element.value, str) else None
            if text is not None:
                yield text, before
            before = text


def test_no_module_of_ours_is_chosen_by_a_string() -> None:
    """A program of ours that another starts by `python -m` is named in one place."""
    modules = {module_name(file, ROOT) for file in _files()} | set(PACKAGES)
    started: dict[str, list[str]] = {}
    named: list[str] = []
    for file in _files():
        name = file.relative_to(ROOT).as_posix()
        if name.split("/")[0] not in PACKAGES or name in ON_OTHER_MACHINES:
            continue
        for text, before in _strings(ast.parse(file.read_text("utf-8"))):
            if before == "-m" and text in modules:
                started.setdefault(text, []).append(name)
            elif text in modules and "." in text:
                named.append(f"{name}: {text}")
    assert named == []
    assert {program: places for program, places in started.items() if len(places) > 1} == {}


def test_each_module_of_the_contract_can_be_the_first_that_a_program_imports() -> None:
    names = [f"workloads.{file.stem}" for file in (ROOT / "workloads").glob("*.py") if file.stem != "__init__"]
    code = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [each for each in sys.modules if each.startswith("workloads")]:
        del sys.modules[loaded]
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", code, *names], cwd=ROOT, check=True)
