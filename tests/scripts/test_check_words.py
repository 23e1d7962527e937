"""The prose check of `make lint`."""

from pathlib import Path

import pytest

from scripts.check_words import main


def _check(file: Path, text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    file.write_text(text, "utf-8")
    code = main([str(file)])
    out = capsys.readouterr().out
    assert code == (1 if out else 0)
    return [line.removeprefix(f"{file}:") for line in out.splitlines()]


def test_words_are_found_in_docstrings_strings_and_comments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '"""The server bears a load."""\n\nTEXT = f"the value {1} as it is"\n# Nobody reads this.\n'
    assert _check(tmp_path / "module.py", text, capsys) == [
        "1: bears: The server bears a load.",
        "3: as it is: the value X as it is",
        "4: Nobody: Nobody reads this.",
    ]


def test_a_docstring_begins_as_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'class Part:\n    """Of a whole thing."""\n'
    assert _check(tmp_path / "module.py", text, capsys) == ["2: docstring without a verb: Of a whole thing."]


def test_sentences_have_a_limit_in_pages_and_strings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "word " * 31
    assert _check(tmp_path / "page.md", f"Short.\n\n{sentence}.\n", capsys)[0].startswith("3: 31 words: word")
    assert _check(tmp_path / "string.py", f'TEXT = "{sentence}"\n', capsys)[0].startswith("1: 31 words: word")
    assert _check(tmp_path / "docstring.py", f'"""{sentence}."""\n', capsys) == []


def test_code_in_pages_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _check(tmp_path / "page.md", "Run it:\n\n```sh\nbears under way\n```\n\n`as it is`\n", capsys) == []
