"""`init` refuses wrong options, examples and checkpoints with one sentence, and leaves nothing behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomllib

import model_build.__main__ as command_line
from tests.model_build.init.conftest import copy_of

CASES = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES["options"], ids=lambda case: " ".join(case["arguments"]))
def test_a_wrong_option_prints_the_usage(capsys: pytest.CaptureFixture[str], case: dict[str, Any]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["init", "mine", "--from", "model", *case["arguments"]])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("usage: python -m model_build init [-h] --from SOURCE")
    assert error.endswith(f"python -m model_build init: error: {case['message']}\n")


@pytest.mark.parametrize("case", CASES["examples"], ids=lambda case: case["name"])
def test_a_wrong_file_of_examples(
    refusal: Callable[..., str], brought: Path, tmp_path: Path, case: dict[str, str]
) -> None:
    file = tmp_path / case["name"]
    file.write_bytes(case["content"].encode(case.get("encoding", "utf-8")))
    message = refusal(brought / "bert_classifier", "--examples", file)
    assert message == case["message"].replace("{file}", str(file))


@pytest.mark.parametrize("case", CASES["checkpoints"], ids=lambda case: str(case.get("config") or case["without"]))
def test_a_wrong_checkpoint(refusal: Callable[..., str], brought: Path, tmp_path: Path, case: dict[str, Any]) -> None:
    folder = copy_of(brought / "bert_classifier", tmp_path / "other", **case.get("config", {}))
    for name in case.get("without", ()):
        (folder / name).unlink()
    assert refusal(folder) == case["message"].replace("{folder}", str(folder))


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--percentile", "95", "percentile: got \"95\". String should match pattern '^P\\d{1,2}(\\.\\d{1,2})?$'."),
        ("--latency-ms", "-5", "model_latency_ms: got -5.0. Input should be greater than 0."),
        (
            "--peak-invocations-per-minute",
            "0",
            "peak_invocations_per_minute: got 0. Input should be greater than or equal to 1.",
        ),
    ],
)
def test_a_wrong_objective(refusal: Callable[..., str], brought: Path, option: str, value: str, problem: str) -> None:
    assert refusal(brought / "bert_classifier", option, value) == f"[objective]: {problem}"


def test_a_wrong_name_or_source(refusal: Callable[..., str], brought: Path, tmp_path: Path) -> None:
    assert refusal(brought / "bert_classifier", name="My-Model") == (
        "NAME: got 'My-Model', but a workload's name begins with a small letter, and small letters, digits and "
        "underscores follow, 31 at most. Say my_model."
    )
    assert refusal(tmp_path / "nowhere") == (
        f"--from: there is no folder {tmp_path / 'nowhere'}. Allowed: a folder, an s3:// URI of a folder or of a "
        ".tar.gz, or a model id of the Hugging Face hub."
    )
