"""The check of docstrings in `make lint`: which openings it refuses, and where it looks."""

from pathlib import Path

import pytest

from scripts.check_docstrings import main


def test_openings_that_are_no_sentence_are_told_with_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""Of a module."""\n\nLIMIT = 1\n"""As the service says.\nMore."""\n\n\n'
        'class Good:\n    """Ofers a sentence."""\n\n    def method(self) -> None:\n        """Of a method."""\n\n'
        '    limit: int\n    """What it bears."""\n',
        "utf-8",
    )
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{file}:1: Of a module.",
        f"{file}:4: As the service says.",
        f"{file}:12: Of a method.",
        f"{file}:15: What it bears.",
    ]


def test_strings_that_are_values_may_begin_as_they_like(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text('TEXT = "Of a value"\nprint("As it is")\n', "utf-8")
    assert main([str(tmp_path / "module.py")]) == 0
