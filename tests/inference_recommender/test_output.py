"""A log shows a line for each status, a sentence for each trouble, and every candidate told apart."""

import io
import re

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from inference_recommender.client import InferenceClient
from inference_recommender.output import JobProgress, stdout_console, warn
from inference_recommender.progress import ProgressUpdate
from tests.inference_recommender.conftest import Cli


def logged(*events: ProgressUpdate | str) -> str:
    stream = io.StringIO()
    with JobProgress(Console(file=stream, width=80)) as progress:
        for event in events:
            if isinstance(event, str):
                progress.say(event)
            else:
                progress.update(event)
    return stream.getvalue()


def update(name: str, status: str, number: int = 1, jobs: int = 1) -> ProgressUpdate:
    return ProgressUpdate(job_name=name, status=status, elapsed_s=1, expected_s=60, number=number, jobs=jobs)


def test_a_log_has_one_line_for_each_status_and_whole_sentences() -> None:
    states = [update("job", status) for status in ("PENDING", "PENDING", "IN_PROGRESS", "IN_PROGRESS")]
    text = "AWS refused DescribeInferenceRecommendationsJob: ThrottlingException: Rate exceeded. Asking [again]."
    shown = logged(*states, text, update("a-2", "COMPLETED", 2, 2))
    assert shown == f"job: PENDING\njob: IN_PROGRESS\n{text}\na-2 (2 of 2): COMPLETED\n"


def test_a_terminal_of_80_columns_shows_the_name_and_the_bar() -> None:
    stream = io.StringIO()
    name = "text-classification-production-20261121-061200"
    with JobProgress(Console(file=stream, width=80, force_terminal=True)) as progress:
        progress.update(update(f"{name}-1", "COMPLETED", 1, 2))
        progress.update(update(f"{name}-2", "IN_PROGRESS", 2, 2))
        progress.say("AWS answers again.")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    lines = [line.strip() for line in re.split(r"[\r\n]+", shown)]
    assert f"{name}-1 (1 of 2)" in lines
    assert f"{name}-2 (2 of 2)" in lines
    assert "AWS answers again." in lines
    assert any(line.startswith("1 of 2 COMPLETED") for line in lines)
    assert any(line.startswith("2 of 2 IN_PROGRESS") for line in lines)


def test_a_log_has_tables_without_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("a", "b")
    table.add_row("long enough to pad", "")
    stdout_console().print(table)
    shown = capsys.readouterr().out
    assert "long enough to pad" in shown
    assert not re.search(r" $", shown, re.MULTILINE)


def test_progress_and_warnings_print_control_characters_as_escapes() -> None:
    file = io.StringIO()
    warn(Console(file=file, force_terminal=True, color_system=None), "no answer: \x1b[2J\x07\x9b1m\r, naïve")
    assert file.getvalue() == "Warning: no answer: \\x1b[2J\\x07\\x9b1m\\x0d, naïve\n"


def test_invoke_prints_control_characters_of_an_answer_as_escapes(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(InferenceClient, "infer", lambda *_, **__: {"TEXT": np.array([b"\x1b]0;PWNED\x07"], object)})
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert cli.out("invoke", "spellcheck", "a", "--endpoint", "endpoint") == "a -> \\x1b]0;PWNED\\x07\n"
