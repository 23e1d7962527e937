"""The table of T5's latency, made from what the engines' processes answered, and the refusal where there is no GPU."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.t5 import engines as t5_engines
from benchmarks.t5 import latency as t5_latency
from workloads.program import exit_code

CASE = {"source": [5] * 9, "output": [7] * 11, "encoder_weights": 20_000_000, "decoder_weights": 40_000_000}


def answer(ms: float, beside_ms: float, stages: tuple[float, float] | None = None) -> dict[str, Any]:
    """Returns what the process of one engine says: two pairs, the second half a millisecond slower."""
    pairs = [(beside_ms, ms), (beside_ms, ms + 0.5)]
    return {"tokens": CASE["output"], "pairs": pairs, "stages": [stages] * 3 if stages else []}


@pytest.fixture
def result() -> dict[str, Any]:
    answers = {
        "huggingface fp32": {1: [answer(100, 46, (11.0, 8.0))], 2: [answer(110, 46, (12.0, 9.0))]},
        "ours int8": {1: [answer(22, 11.5)], 2: [answer(12, 9.2, (2.0, 1.0)), answer(13, 9.2, (2.2, 1.0))]},
        "ours int8, triton": {1: [answer(24, 22)], 2: [answer(15.25, 12)]},
    }
    return t5_latency.summary(CASE, answers)


def test_each_engine_is_shown_at_its_faster_number_of_threads(result: dict[str, Any]) -> None:
    assert t5_latency.table("t5-small", result["engines"]).splitlines() == [
        "t5-small                       encoder      ×     a token      ×  end to end      ×  threads  × limit   GB/s",
        "huggingface fp32                 11.00   1.00        8.00   1.00      100.25   1.00        1     2.18   40.0",
        "ours int8                         2.10   5.24        1.00   8.00       12.75   7.86        2     1.39   50.0",
        "ours int8, triton                    -      -           -      -       15.50   6.47        2        -      -",
    ]


def test_one_command_gives_the_published_table_on_a_gpu_for_both_shapes_in_both_precisions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Encoder, decoder and end to end, each with its speed-up; the engines' processes are stood in for."""

    def run(program: Path, task: str, folder: str, *more: str, **settings: object) -> Any:
        if task == "prepare":
            (Path(folder) / "case.json").write_text(json.dumps(CASE), "utf-8")
        fp16 = task.endswith("fp16")
        return answer(8.0, 6.0, (2.0, 0.5)) if fp16 and task.startswith("ours") else answer(50.0, 20.0, (10.0, 4.0))

    monkeypatch.setattr(t5_latency, "_gpu", lambda: "Tesla T4")
    monkeypatch.setattr(t5_latency, "alone", run)
    monkeypatch.setattr(t5_engines, "missing", lambda engine, python: None)
    assert t5_latency.main(["--device", "cuda", "--rounds", "1"]) == 0
    *shown, last = capsys.readouterr().out.splitlines()
    for shape in ("t5-small", "t5-base"):
        start = next(at for at, line in enumerate(shown) if line.startswith(shape))
        assert shown[start].split()[1:9] == ["encoder", "×", "a", "token", "×", "end", "to", "end"]
        engines = {line[:26].strip(): line[26:].split() for line in shown[start + 1 : start + 9]}
        assert set(engines) == set(t5_engines.ENGINES["cuda"])
        assert engines["ours fp16"][:6] == ["2.00", "5.00", "0.50", "8.00", "8.25", "6.09"]
    document = json.loads(last)
    assert (document["device"], set(document["shapes"])) == ("Tesla T4", {"t5-small", "t5-base"})


def test_goals_are_judged_by_pairs(result: dict[str, Any]) -> None:
    assert [(goal["goal"], goal["met"]) for goal in result["goals"]] == [
        ("ours int8 ≥ 8.0 × huggingface fp32", False),
        ("ours int8 ≤ 1.5 × the limit", True),
        ("Triton adds at most 2.20 ms to ours int8", False),
    ]


def test_a_gpu_is_asked_for_in_one_sentence_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert exit_code(lambda: t5_latency.main(["--device", "cuda"])) == 3
    assert capsys.readouterr() == (
        "",
        f"--device cuda needs an NVIDIA GPU, and torch {torch.__version__} finds none: "
        "run it on a machine that has one, with a torch built for CUDA.\n",
    )


def test_an_engine_whose_package_is_missing_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(t5_engines, "find_spec", lambda name: None)
    said = "the package ctranslate2 is not installed here; `make bench` installs it"
    assert t5_engines.missing("ctranslate2 int8", Path("optimum/bin/python")) == said
    assert t5_engines.missing("ours int8", Path("optimum/bin/python")) is None
