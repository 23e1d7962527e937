"""The table and goals of T5's latency, and the error without a GPU."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import harness
from benchmarks.harness import BASELINE, Turn, finish
from benchmarks.t5 import engines as t5_engines
from benchmarks.t5 import latency as t5_latency
from model_build.tensorrt import int8
from tests.benchmarks import stand_in_engines
from tests.model_build.tensorrt.gpu_machine import install_all
from workloads import Unavailable
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
    result = t5_latency.summary("t5-small", WHOLE, ENCODING, CASE, {"huggingface fp32": 80.0, "ours int8": 16.0})
    assert t5_latency.table("t5-small", result).splitlines() == [
        "t5-small                       encoder      ×     a token      ×  end to end      ×  × limit  published",
        "huggingface fp32                 11.50   1.00        9.35   1.00      105.00   1.00     2.10      80.00",
        "ours int8                         2.25   5.15        1.02   9.12       12.50   8.40     1.47      16.00",
        "ours int8, triton                    -      -           -      -       15.75   6.67        -          -",
    ]
    assert finish("t5_latency", (), {}, result["goals"]) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "met     t5-small: ours int8 ≥ 8 × huggingface fp32: 8.4, of CPU 1",
        "met     t5-small: ours int8 ≥ 5 × huggingface fp32: 8.4, of CPU 1",
        "met     t5-small: ours int8 ≤ 1.5 × the limit: 1.47",
        "NOT met t5-small: Triton adds at most 2.25 ms to ours int8: 3.25",
    ]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    (folder := tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def t4(tools: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose GPU and builder are stand-ins, in this process and in those of the engines. Returns `tools`."""
    install_all(tools)
    stand_in_engines.install(monkeypatch)
    monkeypatch.setattr(t5_latency, "PROGRAM", Path(stand_in_engines.__file__))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    return tools


def run(capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], list[str]]:
    """Returns exit code, the result and the table's lines."""
    code = t5_latency.main(["--device", "cuda", "--rounds", "1", "--shape", stand_in_engines.SHAPE])
    lines = capfd.readouterr().out.splitlines()
    result: dict[str, Any] = json.loads(lines[-1])
    return code, result["shapes"][stand_in_engines.SHAPE], lines[: lines.index("")]


@pytest.mark.slow
def test_on_a_gpu_the_table_has_every_engine_with_encoder_and_decoder(
    t4: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, result, table = run(capfd)
    assert list(result["engines"]) == list(t5_engines.ENGINES["cuda"])
    assert [line[:26].strip() for line in table[1:]] == list(result["engines"])
    assert all(row["encoder_ms"] > 0 and "token_ms" in row for row in result["engines"].values())
    assert [goal["goal"] for goal in result["goals"] if "tensorrt" in goal["goal"]] == []
    assert code in (0, 1), "the goals are for a GPU"


def test_the_precision_that_needs_modelopt_is_missing_without_it(t4: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise Unavailable("ModelOpt is not installed.")

    monkeypatch.setattr(int8, "check_installed", refuse)
    assert t5_latency.missing_engines() == {"ours tensorrt int8": "ModelOpt is not installed."}


@pytest.mark.slow
def test_an_engine_that_is_not_built_or_returns_other_tokens_leaves_the_table_and_fails_a_goal(
    t4: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trtexec = t4 / "trtexec"
    text = trtexec.read_text().replace('graph == b"broken"', '"fp16" in options["--onnx"]')
    trtexec.write_text(text.replace("file.read()", 'file.read().replace(b"ArgMax", b"ArgMin")'))
    names = (BASELINE, "ours tensorrt fp32", "ours tensorrt fp16")
    monkeypatch.setitem(t5_engines.ENGINES, "cuda", {name: t5_engines.ENGINES["cuda"][name] for name in names})
    make = harness.make
    monkeypatch.setattr(harness, "make", lambda of, task, *a, **k: task == "compiled" or make(of, task, *a, **k))
    code, result, _ = run(capfd)
    assert list(result["engines"]) == [BASELINE]
    assert [goal["goal"] for goal in result["goals"] if not goal["met"]] == [
        "t5-tiny: ours tensorrt fp16: its engine is built",
        "t5-tiny: ours tensorrt fp32: returns Hugging Face's tokens",
    ]
    assert code == 1


TRTEXEC = (
    "trtexec is neither on PATH nor /usr/src/tensorrt/bin/trtexec, and Python cannot build instead (import of tensorrt "
    "halted; None in sys.modules). Run it in a Triton image, or `pip install tensorrt-cu12 cuda-bindings`."
)


def test_a_machine_without_a_gpu_is_an_error_that_names_every_missing_piece(
    tools: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert exit_code(lambda: t5_latency.main(["--device", "cuda"])) == 3
    assert capfd.readouterr() == (
        "",
        f"--device cuda needs an NVIDIA GPU, and torch {torch.__version__} finds none. Run it on a machine with a GPU "
        f"and a torch built for CUDA. TensorRT's engines are missing, too: nvidia-smi is not on PATH; {TRTEXEC}\n",
    )


def test_without_tensorrt_the_other_engines_run_and_the_missing_piece_is_named(
    t4: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (t4 / "trtexec").unlink()
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    names = (BASELINE, "ours tensorrt fp16")
    monkeypatch.setitem(t5_engines.ENGINES, "cuda", {name: t5_engines.ENGINES["cuda"][name] for name in names})
    compared: list[list[str]] = []

    def compare(shape: str, names: list[str], *_: object) -> dict[str, Any]:
        compared.append(names)
        return {"goals": []}

    monkeypatch.setattr(t5_latency, "_compare", compare)
    assert t5_latency.main(["--device", "cuda", "--shape", "t5-small"]) == 3
    assert compared == [[BASELINE]]
    assert capfd.readouterr().err == f"missing: ours tensorrt fp16: {TRTEXEC}\n"
