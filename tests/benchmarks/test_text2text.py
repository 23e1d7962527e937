"""The answers and goals of text-to-text models, and the error without a GPU."""

import sys
from pathlib import Path

import pytest
import torch

from benchmarks.goals import Goal
from benchmarks.harness import BASELINE, Absent, Checked, Comparison, Turn
from benchmarks.text2text import engines, latency, models
from model_build.tensorrt import int8
from tests.benchmarks import stand_in_engines
from tests.model_build.tensorrt.gpu_machine import install_all
from workloads import Unavailable
from workloads.program import exit_code


def compared(title: str, milliseconds: dict[str, float], **absent: Absent) -> Comparison:
    turns = {name: [Turn(ms, ms, ms, ms)] for name, ms in milliseconds.items()}
    return Comparison(title=title, turns=turns, absent=absent)


def verdicts(judged: list[Goal]) -> list[tuple[str, str]]:
    return [(goal.cell.partition(": ")[2], goal.verdict) for goal in judged]


def test_one_row_of_t5_is_judged_by_peers_and_by_what_triton_adds() -> None:
    figures = {BASELINE: 105.0, "ours int8": 12.5, "ours int8, triton": 15.75}
    one_row = compared("t5-small cpu, 11 tokens", figures, **{"ctranslate2 int8": Absent("not installed")})
    assert verdicts(list(latency.judge("t5-small", one_row, "cpu"))) == [
        ("ours int8 over huggingface fp32", "met"),
        ("ours int8 over ctranslate2 int8", "not run"),
        ("ms added to ours int8, triton", "missed"),
    ]


def test_on_a_published_gpu_the_published_ratios_are_goals() -> None:
    one_row = compared("t5-small cuda, 11 tokens", {BASELINE: 30.0, "ours tensorrt fp16": 6.0})
    [goal] = latency.judge("t5-small", one_row, "Tesla T4")
    assert (goal.verdict, goal.figure, round(goal.limit, 3)) == ("missed", 5.0, round(30.71 / 5.91, 3))


def test_guided_decoding_has_to_be_faster_through_triton_with_no_later_p99() -> None:
    case = compared("spellcheck cpu, evaluation", {latency.THROUGH_TRITON[0]: 2.0, latency.THROUGH_TRITON[1]: 5.0})
    assert [goal.figure for goal in latency.judge("spellcheck", case, "cpu")] == [2.5, 2.5]


def test_answers_in_fp32_have_to_be_those_of_hugging_face() -> None:
    answers = {
        BASELINE: [[[1, 2], [3]]],
        "ours fp32": [[[1, 2], [4]]],
        "ours int8": [[[1, 2], [4]]],
    }
    assert latency.check_answers("bart", "2 rows", answers) == {
        BASELINE: Checked("100.0% as huggingface fp32"),
        "ours fp32": Checked("50.0% as huggingface fp32", right=False),
        "ours int8": Checked("50.0% as huggingface fp32"),
    }


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
    monkeypatch.setattr(latency, "PROGRAM", Path(stand_in_engines.__file__))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    return tools


def run(capfd: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Returns exit code and lines."""
    code = latency.main(["--device", "cuda", "--rounds", "1", "--group", stand_in_engines.SHAPE])
    return code, capfd.readouterr().out.splitlines()


@pytest.mark.slow
def test_on_a_gpu_the_tables_have_every_engine_with_encoder_and_decoder(
    t4: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, lines = run(capfd)
    names = list(engines.ENGINES["cuda"])
    for case in (models.ONE_ROW, "encoder", "a token of the decoder", models.CHANGED, models.UNCHANGED):
        first = next(number for number, line in enumerate(lines) if line.startswith(f"t5-tiny cuda, {case} "))
        assert {line[:40].strip() for line in lines[first + 1 :][: len(names)]} >= {*names}
    assert code in (0, 1), "the goals are for a GPU"


def test_the_precision_that_needs_modelopt_is_missing_without_it(t4: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise Unavailable("ModelOpt is not installed.")

    monkeypatch.setattr(int8, "check_installed", refuse)
    assert latency.missing_engines() == {"ours tensorrt int8": "ModelOpt is not installed."}


TRTEXEC = (
    "trtexec is neither on PATH nor /usr/src/tensorrt/bin/trtexec, and Python cannot build instead (import of tensorrt "
    "halted; None in sys.modules). Run it in a Triton image, or `pip install tensorrt-cu12 cuda-bindings`."
)


def test_a_machine_without_a_gpu_is_an_error_that_names_every_missing_piece(
    tools: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert exit_code(lambda: latency.main(["--device", "cuda"])) == 3
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
    monkeypatch.setitem(engines.ENGINES, "cuda", {name: engines.ENGINES["cuda"][name] for name in names})
    started: list[list[str]] = []

    def compare(group: str, device: str, names: list[str], rounds: int) -> list[Comparison]:
        started.append(names)
        return []

    monkeypatch.setattr(latency, "compare", compare)
    assert latency.main(["--device", "cuda", "--group", "t5-small"]) == 3
    assert started == [[BASELINE]]
    assert capfd.readouterr().err == f"missing: ours tensorrt fp16: {TRTEXEC}\n"
