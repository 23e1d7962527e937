"""The table and goals of T5's latency, and the error without a GPU."""

import pytest
import torch

from benchmarks.harness import Turn, finish
from benchmarks.t5 import latency as t5_latency
from workloads.program import exit_code

CASE = {"output": [7] * 10}
WHOLE = {
    "huggingface fp32": [Turn(100, 1), Turn(110, 1)],
    "ours int8": [Turn(12, 1), Turn(13, 1)],
    "ours int8, triton": [Turn(15, 1), Turn(16.5, 1)],
    "reading fp32": [Turn(50, 1), Turn(50, 1)],
    "reading int8": [Turn(8, 1), Turn(9, 1)],
}
ENCODING = {"huggingface fp32": [Turn(11, 1), Turn(12, 1)], "ours int8": [Turn(2, 1), Turn(2.5, 1)]}


def test_the_table_has_encoder_token_and_whole_with_the_speed_ups_and_the_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = t5_latency.summary("t5-small", WHOLE, ENCODING, CASE)
    assert t5_latency.table("t5-small", result).splitlines() == [
        "t5-small                       encoder      ×     a token      ×  end to end      ×  × limit",
        "huggingface fp32                 11.50   1.00        9.35   1.00      105.00   1.00     2.10",
        "ours int8                         2.25   5.15        1.02   9.12       12.50   8.40     1.47",
        "ours int8, triton                    -      -           -      -       15.75   6.67        -",
    ]
    assert finish("t5_latency", (), {}, result["goals"]) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "met     t5-small: ours int8 ≥ 8 × huggingface fp32: 8.4, of CPU 1",
        "met     t5-small: ours int8 ≤ 1.5 × the limit: 1.47",
        "NOT met t5-small: Triton adds at most 2.25 ms to ours int8: 3.25",
    ]


def test_a_machine_without_a_gpu_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert exit_code(lambda: t5_latency.main(["--device", "cuda"])) == 3
    assert capsys.readouterr() == (
        "",
        f"--device cuda needs an NVIDIA GPU, and torch {torch.__version__} finds none. Run it on a machine with a GPU "
        "and a torch built for CUDA.\n",
    )
