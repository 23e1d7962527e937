"""Prints how the code is cut: files, folders, error classes, import circles, and the modules that a walk passes.

    python scripts/house.py [--root DIR] [--walks [--names]]

Counted are the Python files of the product (PACKAGES, app.py) without the workloads' data folders: their trainers and
grammars make checked-in data and run in no product walk. Error classes are the subclasses of Exception that static
analysis finds, over all files. A circle is a set of modules that import each other, lazily or for types only or not.

A module is on a walk when one of its functions ran in the walk's own process: importing it, a class body, a lambda or a
comprehension is not enough. With --walks the three walks run for real and take minutes: spellcheck is built, a job runs
against a local account that this starts, and the app is synthesised. DIR may be the checkout of an older commit, with
its environments beside it.
"""

import argparse
import ast
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("workloads", "aws_api", "model_build", "inference_recommender", "stacks", "containers", "local_aws")
SMALL_LINES = 50


def product_files(root: Path) -> list[Path]:
    """Returns the Python files of the product, the data folders of workloads/ left out."""
    files = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    return sorted([*(file for file in files if not _is_data(file.relative_to(root))), root / "app.py"])


def _is_data(file: Path) -> bool:
    return file.parts[0] == "workloads" and len(file.parts) > 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """An import statement: the module it stands in, the name it asks for, and where."""

    importer: str
    imported: str
    line: int
    only_types: bool


def module_name(file: Path, root: Path) -> str:
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports(file: Path, root: Path) -> Iterator[Import]:
    """Yields each import of a file, lazy ones and those for types included.

    `from package import name` asks for package.name: whether that is a module is for `module_of` to say.
    """
    name = module_name(file, root)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(file.read_text("utf-8"))
    for_types = {id(node) for block in _type_blocks(tree) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            start = ".".join(filter(None, (base, node.module)))
            wanted = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for each in wanted:
            yield Import(importer=name, imported=each, line=node.lineno, only_types=id(node) in for_types)


def _type_blocks(tree: ast.AST) -> Iterator[ast.If]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield node


def module_of(name: str, modules: Iterable[str]) -> str | None:
    """Returns the module among `modules` that an imported name is, or is defined in."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def import_graph(root: Path, files: Iterable[Path]) -> dict[str, set[str]]:
    """Returns module → modules of ours that it imports, itself and its own package left out."""
    files = list(files)
    modules = {module_name(file, root) for file in files}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for file in files:
        for each in imports(file, root):
            if (target := module_of(each.imported, modules)) and target != each.importer:
                graph[each.importer].add(target)
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns the sets of nodes that reach each other, each sorted."""
    reached = {node: closure(graph, node) for node in graph}
    components = {tuple(sorted(other for other in reached[node] if node in reached[other])) for node in graph}
    return sorted(list(component) for component in components if len(component) > 1)


def by_folder(graph: Mapping[str, set[str]], depth: int) -> dict[str, set[str]]:
    """Returns the graph between folders of that depth: 1 for packages, 2 for sub-packages, without modules above it."""
    folders = {".".join(module.split(".")[:depth]) for module in graph if module.count(".") >= depth}
    merged: dict[str, set[str]] = {folder: set() for folder in folders}
    for module, targets in graph.items():
        if (folder := ".".join(module.split(".")[:depth])) in folders:
            merged[folder] |= {".".join(target.split(".")[:depth]) for target in targets} & folders - {folder}
    return merged


def error_classes(files: Iterable[Path]) -> list[str]:
    """Returns the names of all classes that derive from an exception, by their bases' names."""
    bases: dict[str, set[str]] = {}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[f"{file}:{node.name}"] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    known = {"Exception", "BaseException", "ValueError", "RuntimeError", "KeyError", "OSError", "TypeError"}
    errors: set[str] = set()
    while new := {name for name, parents in bases.items() if name not in errors and parents & known}:
        errors |= new
        known |= {name.rpartition(":")[2] for name in new}
    return sorted(errors)


def closure(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Returns `start` and every module of ours that it imports in the end, lazily or not."""
    reached, waiting = set[str](), [start]
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting.extend(graph[node])
    return reached


def imported_by_run(root: Path) -> int:
    """Returns how many modules of ours `python -m inference_recommender run --help` has imported when it ends."""
    program = (
        "import sys, runpy; sys.argv = ['inference_recommender', 'run', '--help']\n"
        "try: runpy.run_module('inference_recommender', run_name='__main__', alter_sys=True)\n"
        "except SystemExit: pass\n"
        f"print(len([m for m in sys.modules if m.split('.')[0] in {PACKAGES}]), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=_environment(root), capture_output=True, text=True, check=True
    )
    return int(done.stderr.split()[-1])


def _environment(root: Path) -> dict[str, str]:
    binaries = os.pathsep.join(str(root / folder) for folder in (".venv/bin", "node_modules/.bin"))
    return {**os.environ, "PYTHONPATH": str(root), "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}


def report(root: Path) -> dict[str, str]:
    files = product_files(root)
    lines = {file: len(file.read_text("utf-8").splitlines()) for file in files}
    folder, most = Counter(file.parent.relative_to(root).as_posix() for file in files).most_common(1)[0]
    graph = import_graph(root, files)
    found = {
        "between modules": circles(graph),
        "between sub-packages": circles(by_folder(graph, 2)),
        "between packages": circles(by_folder(graph, 1)),
    }
    told = [
        f"{len(each)} {where}: {'; '.join(' ↔ '.join(one) for one in each)}" for where, each in found.items() if each
    ]
    return {
        "Python files": str(len(files)),
        "mean lines": f"{sum(lines.values()) / len(files):.0f}",
        f"files under {SMALL_LINES} lines": str(sum(count < SMALL_LINES for count in lines.values())),
        "most files in one folder": f"{most} ({folder})",
        "error classes": str(len(error_classes(files))),
        "imported by `inference_recommender run`": str(imported_by_run(root)),
        "import circles": "; ".join(told) or "none",
    }


def walks(root: Path) -> Iterator[tuple[str, set[str]]]:
    """Yields the modules that each walk passes, as each ends. All is done in a copy of `root`, which is left alone."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = _copy(root, Path(scratch) / "copy")
        build = ["-m", "model_build", "build", "spellcheck", "--target", "cpu"]
        yield "modules on the walk `build`", _trace(copy, build, {})
        with _local_account(copy) as account:
            _run(["cdk", "bootstrap"], copy, account)
            _run(["cdk", "deploy", "SpellcheckStack", "--require-approval", "never"], copy, account)
            job = ["-m", "inference_recommender", "run", "spellcheck", "--job", "advanced", "--traffic", "quick"]
            yield "modules on the walk `run --job advanced`", _trace(copy, job, account)
        yield "modules on the walk objective → alarm", _trace(copy, ["app.py"], {})


def _counted(modules: set[str]) -> str:
    outside = {name for name in modules if not name.startswith("workloads/")}
    return f"{len(outside)} ({len(modules)} with workloads/)"


def _copy(root: Path, copy: Path) -> Path:
    """Copies the sources; the environments are linked."""
    links = (".venv", ".venv-triton", "node_modules")
    left_out = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "build", "cdk.out", "runs")
    shutil.copytree(root, copy, ignore=left_out, symlinks=True)
    for name in links:
        (copy / name).symlink_to((root / name).resolve())
    return copy


def _trace(copy: Path, command: list[str], environment: Mapping[str, str]) -> set[str]:
    """Runs a Python command and returns the files of ours in which a function ran, relative to the copy."""
    out = copy / "traced.json"
    # 1: no candidate meets the objective. A job without a verdict (4) would end its walk early.
    _run([sys.executable, "-c", TRACER, str(out), *command], copy, environment, accepted=(0, 1))
    ran = (name for name in json.loads(out.read_text("utf-8")) if name.endswith(".py"))
    return {name for name in ran if name.split("/")[0] in (*PACKAGES, "app.py")}


def _run(command: list[str], copy: Path, environment: Mapping[str, str], accepted: tuple[int, ...] = (0,)) -> None:
    done = subprocess.run(
        command, cwd=copy, env={**_environment(copy), **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode not in accepted:
        sys.exit(f"{' '.join(command[-6:])} ended with exit status {done.returncode}:\n{done.stdout}{done.stderr}")


@contextlib.contextmanager
def _local_account(copy: Path) -> Iterator[dict[str, str]]:
    """Starts a local account and gives the environment in which tools talk to it."""
    command = [sys.executable, "-m", "local_aws", "--port", "0", "--state", str(copy / ".local_aws")]
    process = subprocess.Popen(
        command, cwd=copy, env=_environment(copy), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        exports: dict[str, str] = {}
        for line in process.stdout or ():
            name, _, value = line.strip().removeprefix("export ").partition("=")
            if value:
                exports[name] = value
            if name == "AWS_EC2_METADATA_DISABLED":  # the last export
                break
        yield exports
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


TRACER = """
import atexit, json, os, runpy, sys, threading
out, root, ran = sys.argv[1], os.getcwd() + os.sep, set()
OPTIMISED = 1  # a function's code, not a class body's

def profile(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & OPTIMISED and code.co_name[0] != "<" and code.co_filename.startswith(root):
        ran.add(code.co_filename[len(root):])

def leave():
    sys.setprofile(None)
    with open(out, "w") as file:
        json.dump(sorted(ran), file)

atexit.register(leave)
threading.setprofile(profile)
sys.setprofile(profile)
del sys.argv[:2]
sys.argv.insert(0, "")
sys.path.insert(0, root)
if sys.argv[1] == "-m":
    del sys.argv[0]
    sys.argv[:2] = [sys.argv[1]]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Print how the code is cut, for comparing commits.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, metavar="DIR")
    parser.add_argument("--walks", action="store_true", help="run the three walks too; takes minutes")
    parser.add_argument("--names", action="store_true", help="with --walks: name the modules too, on stderr")
    options = parser.parse_args()
    root = options.root.resolve()
    print(f"| | {root.name} |\n|---|---|")
    for name, value in report(root).items():
        print(f"| {name} | {value} |", flush=True)
    for name, modules in walks(root) if options.walks else ():
        print(f"| {name} | {_counted(modules)} |", flush=True)
        if options.names:
            print("\n".join(f"    {module}" for module in sorted(modules)), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
