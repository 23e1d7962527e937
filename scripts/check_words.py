"""Checks the project's prose: words to avoid, long sentences, and docstrings that do not begin as a sentence.

    python scripts/check_words.py [FILE_OR_FOLDER ...]

Reads Markdown, and the strings, docstrings and comments of Python files. Tests are read only if they are named.
The limit of words in a sentence applies to Markdown and to strings that users can see. Prints file:line, the rule and
the text. Exit code 1 if there is a finding.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    *("workloads", "aws_api", "model_build", "inference_recommender", "stacks", "containers", "local_aws"),
    *("benchmarks", "scripts"),
)
PLACES = (*PACKAGES, "app.py", "docs", "README.md", "CONTRIBUTING.md")
WORDS = re.compile(
    r"\b(?:nobody|somebody|whoever|of ours|as it is|so many|so much|so long|so manieth|is told|tells of|goes on|bears"
    r"|what is|what was|what others|under way|beside it|by hand|for which see|alone(?=[.,;:)]|$)|no \w+ of \w+'s)\b",
    re.IGNORECASE,
)
OPENINGS = ("As ", "Of ", "What ")
"""Openings of docstrings that are no sentences."""
FROZEN_FOLDERS = ("containers/encoder/", "containers/text2text/")
"""Builds copy these files into model.tar.gz, whose bytes must not change."""
FROZEN_TEXTS = ("Tasks of the batch: nobody calls them.", "Instances: nobody calls them; tasks have their own.")
"""Descriptions of security groups. CloudFormation replaces a group whose description changes."""
LONGEST_SENTENCE = 30
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\n(?=\s*(?:[-*|$#]|\d+\.)\s|\S+  )|\s\|\s")
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


@dataclass(frozen=True)
class Text:
    """A piece of prose. `in_sentences` is False for comments and docstrings, whose sentences have no limit."""

    line: int
    text: str
    in_sentences: bool
    is_docstring: bool = False


def findings(text: Text) -> Iterator[tuple[int, str, str]]:
    """Yields line, rule and excerpt of each problem."""
    for match in WORDS.finditer(text.text):
        line = text.line + text.text.count("\n", 0, match.start())
        yield line, match.group(), _excerpt(text.text, match.start())
    if text.is_docstring and text.text.lstrip().startswith(OPENINGS):
        yield text.line, "docstring without a verb", _excerpt(text.text, 0)
    if text.in_sentences:
        for sentence in SENTENCE_END.split(text.text):
            words = re.findall(r"[^\s/]*[A-Za-z][^\s/]*", sentence)
            if len(words) > LONGEST_SENTENCE:
                line = text.line + text.text.count("\n", 0, text.text.index(sentence))
                yield line, f"{len(words)} words", " ".join(words[:12]) + " …"


def _excerpt(text: str, at: int) -> str:
    return " ".join(text[max(0, at - 30) : at + 50].split())


def markdown(text: str) -> Iterator[Text]:
    """Yields the whole page with its code blanked, so that line numbers stay."""
    yield Text(1, CODE.sub(lambda code: "`" + "\n" * code.group().count("\n") + "`", text), in_sentences=True)


def python(text: str) -> Iterator[Text]:
    """Yields docstrings, strings of at least three words, and comments."""
    tree = ast.parse(text)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            value = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            value = node.value
        else:
            continue
        if value.count(" ") >= 2 and not value.startswith(("(?", r"\b", *FROZEN_TEXTS)):
            is_docstring = id(node) in statements
            yield Text(node.lineno, value, in_sentences=not is_docstring, is_docstring=is_docstring)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], token.string.lstrip("# "), in_sentences=False)


def check(files: Iterable[Path]) -> Iterator[str]:
    """Yields a line for each finding."""
    for file in files:
        content = file.read_text("utf-8")
        name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        for text in markdown(content) if file.suffix == ".md" else python(content):
            for line, rule, excerpt in findings(text):
                yield f"{name}:{line}: {rule}: {excerpt}"


def prose_files(places: Iterable[Path]) -> list[Path]:
    """Returns the Markdown and Python files in the places, without frozen ones and this one, which lists the words."""
    files = (file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*"))))
    left_out = (Path(__file__).resolve().as_posix(), *(f"{ROOT}/{folder}" for folder in FROZEN_FOLDERS))
    return [f for f in files if f.suffix in (".md", ".py") and not f.resolve().as_posix().startswith(left_out)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Check the project's prose.")
    parser.add_argument("places", nargs="*", type=Path, metavar="FILE_OR_FOLDER")
    places = parser.parse_args(arguments).places or [ROOT / place for place in PLACES]
    lines = list(check(prose_files(places)))
    print(*lines, sep="\n" if lines else "", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
