"""Commands, make targets, files and links in README.md, docs/ and CONTRIBUTING.md exist.

A fenced block states its kind: `sh` can be typed, `output` was printed by a command, `text` is neither.
"""

import argparse
import ast
import contextlib
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomllib

import containers.batch.__main__ as batch
import containers.batch.record as record
import inference_recommender.__main__ as recommender
import inference_recommender.load_generator.__main__ as load_generator
import local_aws.__main__ as account
import model_build.__main__ as build
import stacks.__main__ as stacks
from inference_recommender.output import COMMANDS
from workloads import ROOT, load_workload, workload_names

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
KINDS = {"sh", "output", "text", "python", "json", "toml", "mermaid"}
STACKS = {load_workload(name).workload.stack_name for name in workload_names(ROOT / "workloads")}

PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "model_build": build.main,
    "inference_recommender": recommender.main,
    "inference_recommender.load_generator": load_generator.main,
    "local_aws": account.main,
    "stacks": stacks.main,
    "containers.batch": batch.main,
    "containers.batch.record": record.main,
}


@dataclass(frozen=True)
class Block:
    page: Path
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}: {self.text.splitlines()[0][:60] if self.text else ''}"


def blocks(page: Path, *kinds: str) -> Iterator[Block]:
    for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
        if not kinds or kind in kinds:
            yield Block(page, kind, text)


def commands(text: str) -> Iterator[list[str]]:
    """Yields the words of each command in a block of shell lines."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        for command in re.split(r"&&", line):
            if words := shlex.split(command, comments=True):
                yield words


TYPED = [words for page in PAGES for block in blocks(page, "sh") for words in commands(block.text)]


class Parsed(SystemExit):
    """Ends a program as soon as its arguments are parsed."""


def refusal(program: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    return refusal_of(lambda: PROGRAMS[program](arguments), monkeypatch)


def refusal_of(start: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a program's own parser, and returns what it says against its arguments: nothing if it takes them."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse_only(self: argparse.ArgumentParser, *args: object) -> None:
        parse_args(self, *args)  # type: ignore[call-overload]
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            start()
    except Parsed:
        return ""
    except SystemExit:
        return said.getvalue()
    return "the program ended before it parsed its arguments"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_kind(page: Path) -> None:
    assert {block.kind for block in blocks(page)} <= KINDS
    assert page.read_text("utf-8").count("```") == 2 * len(list(blocks(page)))
    assert "@@" not in page.read_text("utf-8")


@pytest.mark.parametrize("words", TYPED, ids=" ".join)
def test_every_command_parses(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    match words:
        case ["python", "-m", "pytest", *arguments]:
            assert all((ROOT / each).exists() for each in arguments if each.startswith("tests/"))
        case ["python", "-m", module, *arguments] if module in PROGRAMS:
            assert refusal(module, arguments, monkeypatch) == ""
        case ["make", *targets]:
            assert set(targets) <= make_targets()
        case ["cdk", "bootstrap"]:
            pass
        case ["cdk", "deploy", stack, *options]:
            assert stack in STACKS
            assert set(options) <= {"-c", "recommendation=ignore", "stage=production", "hosting-target=cuda"}
        case ["pip", "install", "-e", extra]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
            assert extra.removeprefix(".[").removesuffix("]") in extras
        case ["source", ".venv/bin/activate" | ".local_aws/exports"] | ["export", _] | ["sudo", "apt", "install", *_]:
            pass
        case _:
            pytest.fail(f"nothing here knows this command: {' '.join(words)}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_in_a_real_output_are_commands(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in blocks(page, "output"):
        for line in re.findall(r"^\$ (.*(?:\n    .*)*)", block.text, re.M):
            words = shlex.split(line.replace("\n    ", " ").removesuffix("&"))
            if words[:2] == ["python", "-m"]:
                assert refusal(words[2], words[3:], monkeypatch) == ""
            else:
                assert words[0] == "cdk"


def test_every_command_is_in_the_table() -> None:
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    described = set(re.findall(r"^\| `python -m (\w+) ([a-z-]+)`", page, re.M))
    commands = {("inference_recommender", name) for name in COMMANDS}
    assert described == commands | {("model_build", name) for name in build.COMMANDS} | {
        ("stacks", name) for name in ("preflight", "explain")
    }


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_make_targets_exist(page: Path) -> None:
    assert set(re.findall(r"`make ([a-z0-9-]+)", page.read_text("utf-8"))) <= make_targets()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    written_by_commands = ("build/", "runs/", ".local_aws", "proposal/")
    for name in re.findall(r"`([\w./-]+/[\w./-]+\.(?:py|toml|json|jsonl|sh|txt|md)|[\w/]+/)`", page.read_text("utf-8")):
        if name.startswith(written_by_commands) or "NAME" in name:
            continue
        if name.endswith("recommendation.json"):
            name = name.removesuffix("recommendation.json")
        assert (ROOT / name).exists(), f"{page.name} names {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_work(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
        if not link.startswith("https://"):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_json_and_toml_blocks_parse(page: Path) -> None:
    for block in blocks(page, "python", "json", "toml"):
        checks: dict[str, Callable[[str], object]] = {"python": ast.parse, "json": json.loads, "toml": tomllib.loads}
        checks[block.kind](block.text)


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"]({name})" not in index} == set()


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "commands.md"], ids=lambda page: page.name)
def test_every_exit_code_is_in_the_table(page: Path) -> None:
    assert re.findall(r"^\| (\d+) \|", page.read_text("utf-8"), re.M) == ["0", "1", "2", "3", "4", "70", "130"]


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "design.md"], ids=lambda page: page.name)
def test_every_package_is_in_the_tree(page: Path) -> None:
    ignored = {"tests", "node_modules", "build", "runs"}
    packages = {file.parent.name for file in ROOT.glob("*/__init__.py")} - ignored
    for package in sorted(packages):
        assert f"\n{package}/ " in page.read_text("utf-8"), f"{page.name} has no {package}"
