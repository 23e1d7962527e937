"""`python -m scripts.figures`: the size and shape of the code, beside the budgets of docs/design.md.

Prints a Markdown table. Exit code 1 if a figure is over its limit. Lines are those of all `.py` files, with blank lines
and comments. tests/test_architecture.py uses the import graph.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.check_words import PLACES, check, prose_files
from workloads import ROOT
from workloads.contract import PACKAGES

BUDGETS = {
    "inference_recommender": 19_059,
    "model_build": 13_319,
    "local_aws": 8_326,
    "containers": 6_958,
    "aws_api": 1_376,
    "stacks": 7_371,
    "workloads": 3_679,
    "benchmarks": 4_274,
    "scripts": 3_574,
    "tests": 51_940,
}
"""Lines of Python for each package; app.py counts as part of stacks. Several are above the design's first table: the
hardware of 2026, bursty arrivals, installation from a wheel and other kinds of endpoints came later."""
PRODUCTION_LINES = 68_000
SERVER_CALLS = re.compile(r"ThreadingHTTPServer\)|\b(?:start_server|create_server|create_unix_server)\(|\.listen\(\d")
LOCAL_NAMES = {"local", "is_local", "on_this_machine", "is_on_this_machine"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """An import statement: the importing module, the imported name and the line."""

    importer: str
    imported: str
    line: int


def module_name(file: Path, root: Path) -> str:
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports(file: Path, root: Path) -> Iterator[Import]:
    """Yields each import of a file, also lazy imports and imports for types.

    `from package import name` yields package.name, which may be a module or not: `module_of` decides.
    """
    name = module_name(file, root)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            start = ".".join(filter(None, (base, node.module)))
            names = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for each in names:
            yield Import(importer=name, imported=each, line=node.lineno)


def module_of(name: str, modules: Iterable[str]) -> str | None:
    """Returns the module among `modules` that an imported name is or is defined in."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def import_graph(root: Path, files: Iterable[Path]) -> dict[str, set[str]]:
    """Returns module → modules of the project that it imports, without itself."""
    files = list(files)
    modules = {module_name(file, root) for file in files}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for file in files:
        for each in imports(file, root):
            if (target := module_of(each.imported, modules)) and target != each.importer:
                graph[each.importer].add(target)
    return graph


def closure(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Returns `start` and every module that it imports directly or indirectly."""
    reached, waiting = set[str](), [start]
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting.extend(graph[node])
    return reached


def tracked(pattern: str) -> list[Path]:
    """Returns the files that git tracks, by a pattern of git's."""
    done = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).exists()]


def lines_by_package(files: Iterable[Path]) -> Counter[str]:
    """Returns the lines of each top-level folder."""
    counts: Counter[str] = Counter()
    for file in files:
        folder = file.relative_to(ROOT).parts[0]
        counts["stacks" if folder == "app.py" else folder] += len(file.read_text("utf-8").splitlines())
    return counts


def repeated_class_names(files: Iterable[Path]) -> list[str]:
    """Returns the names of top-level classes that more than one module defines."""
    names = Counter(
        node.name
        for file in files
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def repeated_file_names(files: Iterable[Path]) -> list[str]:
    """Returns the names that more than two files have, without `__init__.py` and `__main__.py`."""
    names = Counter(file.name for file in files if not file.name.startswith("__"))
    return sorted(name for name, count in names.items() if count > 2)


def flags_by_command() -> dict[str, int]:
    """Returns the number of flags of each command of inference_recommender, without --help."""
    import argparse

    from inference_recommender.__main__ import _parser
    from inference_recommender.output import COMMANDS

    def flags(parser: argparse.ArgumentParser) -> int:
        nested = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        own = sum(bool(each.option_strings) and "--help" not in each.option_strings for each in parser._actions)
        return own + sum(flags(each) for action in nested for each in set(action.choices.values()))

    return {name: flags(_parser([name])) for name in COMMANDS}


def branches_on_local(files: Iterable[Path]) -> list[str]:
    """Returns the places of conditions that ask whether an account is the local one."""
    return [
        f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.If | ast.IfExp | ast.comprehension) and LOCAL_NAMES & set(_names_in_condition(node))
    ]


def _names_in_condition(node: ast.If | ast.IfExp | ast.comprehension) -> Iterator[object]:
    """Yields variables, attributes and constants."""
    for test in node.ifs if isinstance(node, ast.comprehension) else [node.test]:
        for part in ast.walk(test):
            yield getattr(part, "id", None) or getattr(part, "attr", None) or getattr(part, "value", None)


@dataclass(frozen=True)
class Figure:
    """A row of the table. `details` list the counted items."""

    name: str
    value: int
    limit: int
    details: tuple[str, ...] = ()


def figures() -> Iterator[Figure]:
    files = tracked("*.py")
    production = [file for file in files if file.relative_to(ROOT).parts[0] != "tests"]
    product = [file for file in production if file.relative_to(ROOT).parts[0] in PACKAGES]
    lines = lines_by_package(files)
    yield Figure("production lines", lines.total() - lines["tests"], PRODUCTION_LINES)
    yield from (Figure(f"lines of {package}", lines[package], budget) for package, budget in BUDGETS.items())
    pages = [*tracked("docs/*.md"), ROOT / "README.md"]
    yield Figure("Markdown lines in README and docs", sum(map(_lines, pages)), 2_058)
    yield Figure("lines of benchmarks/RESULTS.md", _lines(ROOT / "benchmarks" / "RESULTS.md"), 340)
    graph = import_graph(ROOT, product)
    reached = [name for name in closure(graph, "inference_recommender.cli.run") if not name.startswith("workloads")]
    by_name = {module_name(file, ROOT): file for file in product}
    yield Figure("modules that `run` imports, outside workloads", len(reached), 45)
    yield Figure("lines of those modules", sum(_lines(by_name[name]) for name in reached), 8_000)
    names = repeated_class_names(product)
    yield Figure("class names used more than once", len(names), 40, tuple(names))
    repeated = repeated_file_names(product)
    yield Figure("file names used more than twice", len(repeated), 0, tuple(repeated))
    flags = flags_by_command()
    details = tuple(f"{name} {count}" for name, count in flags.items())
    yield Figure("commands of inference_recommender", len(flags), 11)
    yield Figure("flags of inference_recommender", sum(flags.values()), 80, details)
    servers = [name for name, file in by_name.items() if SERVER_CALLS.search(file.read_text("utf-8"))]
    yield Figure("modules that open a server", len(servers), 4, tuple(servers))
    local = branches_on_local(
        [file for file in production if file.relative_to(ROOT).parts[0] not in ("local_aws", "scripts")]
    )
    yield Figure("branches on the local account outside local_aws", len(local), 12, tuple(local))
    words = list(check(prose_files(ROOT / place for place in PLACES)))
    yield Figure("findings of scripts/check_words.py", len(words), 0)


def _lines(file: Path) -> int:
    return len(file.read_text("utf-8").splitlines())


def main() -> int:
    print("| figure | value | limit |\n|---|---|---|")
    rows = list(figures())
    for row in rows:
        print(f"| {row.name} | {row.value:,} | {row.limit:,} |")
    for row in rows:
        if row.value > row.limit and row.details:
            print(f"\n{row.name}: {', '.join(row.details)}")
    return int(any(row.value > row.limit for row in rows))


if __name__ == "__main__":
    sys.exit(main())
