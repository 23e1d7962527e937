"""Rows that the served model would refuse are named by file and line before anything is compiled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from model_build import rows
from tests.builders import message_of
from tests.model_build.miniatures import plan_of, tiny_bert
from workloads import ROOT, WorkloadFolder
from workloads.errors import InvalidDocument


@pytest.fixture
def classifier(tmp_path: Path) -> WorkloadFolder:
    return tiny_bert.make_workload(tmp_path / "workloads", "text-classification", examples=3)


def refusal(workload: WorkloadFolder) -> str:
    return message_of(InvalidDocument, lambda: rows.check(plan_of(workload, "cpu"))).replace(f"{workload.path}/", "")


def write(workload: WorkloadFolder, name: str, *lines: object) -> None:
    (workload.path / name).write_text("".join(json.dumps(line) + "\n" if line else "\n" for line in lines), "utf-8")


def test_rows_that_fit_pass(classifier: WorkloadFolder) -> None:
    rows.check(plan_of(classifier, "cpu"))


def test_a_row_of_more_tokens_than_the_workload_takes(classifier: WorkloadFolder) -> None:
    long = {"text": "ab " * 20}
    write(classifier, "payloads.jsonl", {"text": "a"}, None, long, long)
    assert refusal(classifier) == (
        "payloads.jsonl:3: has 42 tokens, at most 32 are allowed. model.max_input_tokens is 32; the model has "
        "positions for 64: raise it, set truncation = true, or shorten the row. 2 rows have a problem."
    )


def test_a_row_without_a_text(classifier: WorkloadFolder) -> None:
    write(classifier, "evaluation.jsonl", {"text": "a", "label": "buy"}, {"text": " ", "label": "buy"})
    assert refusal(classifier) == "evaluation.jsonl:2: has no text in text."


def test_a_text_that_is_too_long_for_a_generator(tiny_workload: WorkloadFolder) -> None:
    write(tiny_workload, "payloads.jsonl", {"text": "abc" * 10})
    assert refusal(tiny_workload) == (
        "payloads.jsonl:1: has 32 tokens, at most 24 are allowed. model.max_input_tokens is 24: raise it, or "
        "shorten the row."
    )


@pytest.mark.parametrize("name", ["evaluation.jsonl", "payloads.jsonl"])
def test_a_file_without_rows(classifier: WorkloadFolder, name: str) -> None:
    write(classifier, name)
    assert refusal(classifier) == f"{name}: has no rows. Write one JSON object a line, with the model's fields."


def test_a_build_reports_them_without_torch(classifier: WorkloadFolder) -> None:
    write(classifier, "payloads.jsonl", {"text": "ab " * 20})
    code = (
        "import sys; from pathlib import Path; import model_build.__main__ as c; c.ROOT = Path(sys.argv[1]); "
        "code = c.main(['build', 'tiny', '--target', 'cpu']); assert 'torch' not in sys.modules; sys.exit(code)"
    )
    root = str(classifier.path.parent.parent)
    done = subprocess.run([sys.executable, "-c", code, root], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{classifier.path}/payloads.jsonl:1: has 42 tokens, at most 32 are allowed.")
