"""Refuses docstrings that do not begin as a sentence: with "Of ", "As " or "What ".

    python scripts/check_docstrings.py [FILE_OR_FOLDER …]

Read are the docstrings of modules, classes and functions, and the strings after an attribute. Prints file:line and the
text; exit code 1 where there is one.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

REFUSED = ("As ", "Of ", "What ")
ROOT = Path(__file__).resolve().parent.parent
PLACES = (
    "aws_api",
    "benchmarks",
    "containers",
    "inference_recommender",
    "local_aws",
    "model_build",
    "scripts",
    "stacks",
    "tests",
    "workloads",
    "app.py",
)


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yields line and text of every string that stands alone as a statement, in the order of their lines."""
    statements = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr))
    strings = (node.value for node in statements if isinstance(node.value, ast.Constant))
    yield from sorted((node.lineno, node.value) for node in strings if isinstance(node.value, str))


def refused(files: Iterable[Path]) -> Iterator[tuple[Path, int, str]]:
    for file in files:
        for line, text in docstrings(file.read_text("utf-8")):
            if text.lstrip().startswith(REFUSED):
                yield file, line, text.strip().splitlines()[0]


def main(arguments: list[str]) -> int:
    places = [Path(argument) for argument in arguments] or [ROOT / place for place in PLACES]
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    problems = list(refused(files))
    for file, line, text in problems:
        name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        print(f"{name}:{line}: {text}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
