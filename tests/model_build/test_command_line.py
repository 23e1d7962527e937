"""python -m model_build: one document on stdout, sentences on stderr, documented exit codes."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomllib

import model_build.__main__ as command_line
from model_build.compiled import exclusive
from model_build.plan import BuildPlan
from model_build.progress import seldom
from workloads import ROOT

CASES = tomllib.loads(Path(__file__).with_name("usage_refusals.toml").read_text("utf-8"))["case"]
CALL = (
    "from pathlib import Path; import model_build.__main__ as c; "
    "c.ROOT = Path(sys.argv[1]); sys.exit(c.exit_code(lambda: c.main(['build', 'tiny', '--target', 'cpu'])))"
)
"""A build of the miniature whose root is the first argument."""

ENDLESS_COMPILE = (
    "import signal, types; backend = types.ModuleType('model_build.text2text.verify'); "
    "backend.compile_graphs = lambda inputs, graphs, scratch, _: ((scratch / 'half.onnx').touch(), signal.pause()); "
    "sys.modules[backend.__name__] = backend; "
)
"""A compile takes seconds of both cores; this one has begun a file when the test sees it, and never ends it."""

HANGS_AFTER_S = 600
Capture = pytest.CaptureFixture[str]
Run = Callable[[list[str]], int]


@pytest.fixture
def run(tiny_copy: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(command_line, "ROOT", tiny_copy)
    return command_line.main


def test_plan_prints_the_steps_of_a_build(run: Run, tiny_copy: Path, capsys: Capture) -> None:
    assert run(["plan", "tiny", "--target", "cpu", "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err == ""
    assert document["archive"] == str(tiny_copy / "build" / "tiny" / "cpu" / "model.tar.gz")
    assert "tiny/1/decoder.onnx" in document["archive_files"]
    assert list(document["configuration"]) == ["tiny/config.pbtxt"]
    assert document["configuration"]["tiny/config.pbtxt"].startswith('name: "tiny"\n')
    assert document["environment"] == {"SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE": "8388608"}


def test_plan_does_nothing(run: Run, tiny_copy: Path) -> None:
    assert run(["plan", "tiny", "--target", "cpu-int8"]) == 0
    assert not (tiny_copy / "build" / "tiny" / "cpu-int8").exists()


def test_planning_needs_no_torch() -> None:
    code = "import sys, model_build.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_verify_prints_a_table_for_people(run: Run, capsys: Capture) -> None:
    assert run(["verify", "tiny", "--target", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "identical answers     40 of 40"
    assert lines[2:] == [
        "                      original  compiled  95 % interval",
        "exact match             0.0000    0.0000  0.0000 to 0.0876",
        "unchanged rate          0.0000    0.0000  0.0000 to 0.2425",
    ]


def test_verify_without_a_build_says_how_to_make_one(run: Run, tiny_copy: Path, capsys: Capture) -> None:
    assert run(["verify", "tiny", "--target", "cpu-int8"]) == 2
    file = tiny_copy / "build" / "tiny" / "cpu-int8" / "artifact.json"
    assert capsys.readouterr().err == (
        f"{file} does not exist: build it with `python -m model_build build tiny --target cpu-int8`.\n"
    )


def test_a_busy_target_is_exit_code_3(run: Run, tiny_copy: Path, capsys: Capture) -> None:
    with exclusive(tiny_copy / "build" / "tiny" / ".compiled" / "cpu", "tiny", "cpu"):
        assert run(["build", "tiny", "--target", "cpu"]) == 3
    assert capsys.readouterr().err.startswith("Another build or verification of tiny for cpu is running")


def test_a_missing_toolchain_is_exit_code_3(tiny_copy: Path) -> None:
    failing = "backend.compile_graphs = backend.comparer = lambda *_: (print('a library'), __import__('no_tool'))"
    backend = "import sys, types; backend = types.ModuleType('model_build.text2text.verify')"
    code = f"{backend}; {failing}; sys.modules[backend.__name__] = backend; {CALL}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny_copy)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    log = tiny_copy / "build" / "tiny" / ".compiled" / "cpu" / "build.log"
    assert done.stderr == (
        "The Python package 'no_tool' is not installed, and model_build needs it. "
        "Install the build's tools with `pip install -e '.[build]'`.\n"
        f"The output of libraries is in {log}.\n"
    )
    assert log.read_text("utf-8") == "a library\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case["arguments"]))
def test_wrong_usage_is_exit_code_2(run: Run, capsys: Capture, case: dict[str, Any]) -> None:
    assert run(case["arguments"]) == 2
    assert capsys.readouterr() == ("", f"{case['message']}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_with_130_and_leave_the_old_build(
    tiny_copy: Path, tiny_plan: BuildPlan, number: signal.Signals
) -> None:
    folder = tiny_copy / "build" / "tiny" / "cpu"
    shutil.rmtree(tiny_copy / "build" / "tiny" / ".compiled")
    before = (folder / "artifact.json").read_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; " + ENDLESS_COMPILE + CALL, str(tiny_copy)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(folder / ".scratch" / "half.onnx", process)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, out, err) == (130, "", "Interrupted: no incomplete files remain.\n")
    assert (folder / "artifact.json").read_bytes() == before
    assert not (folder / ".scratch").exists()


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + HANGS_AFTER_S
    while not file.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.01)


def test_a_dry_run_prints_the_requests(run: Run, capsys: Capture) -> None:
    assert run(["build", "tiny", "--target", "cpu", "--on", "sagemaker", "--dry-run"]) == 0
    (request,) = json.loads(capsys.readouterr().out)["requests"]
    assert request["AppSpecification"]["ContainerArguments"] == ["tiny", "cpu", "onnxruntime"]


def test_all_builds_every_workload_that_has_the_target_and_prints_a_table(run: Run, capsys: Capture) -> None:
    assert run(["build", "--all", "--target", "cpu"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["workload", "target", "runtime", "precision"]
    assert line.split()[:4] == ["tiny", "cpu", "onnxruntime", "fp32"]
    assert line.endswith("exact_match 0.0000 → 0.0000, unchanged_rate 0.0000 → 0.0000")


def test_lint_finds_nothing_in_a_build_and_something_in_a_damaged_one(
    run: Run, tiny_copy: Path, capsys: Capture
) -> None:
    archive = tiny_copy / "build" / "tiny" / "cpu" / "model.tar.gz"
    assert run(["lint", str(archive), "--workload", "tiny"]) == 0
    assert capsys.readouterr().out.startswith("0 errors, 0 warnings.\n")
    archive.write_bytes(archive.read_bytes()[:1000])
    assert run(["lint", str(archive), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["severity"] == "error"


def test_a_bare_call_teaches(run: Run, capsys: Capture) -> None:
    assert run([]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Compile a workload's checkpoint for a target, compare it with the original, and pack it." in out
    assert out.count("  python -m model_build ") == len(command_line.COMMANDS)
    assert "docs/building.md" in out


@pytest.mark.parametrize("command", command_line.COMMANDS)
def test_the_help_of_every_command_has_an_example(run: Run, command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        run([command, "--help"])
    assert caught.value.code == 0
    assert f"\n  python -m model_build {command} " in capsys.readouterr().out
    example = command_line.COMMANDS[command][1]
    assert command_line.parser().parse_args(example.split()).command == command


def test_libraries_write_to_a_log_that_a_failing_build_names(
    run: Run, tiny_copy: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def chatter(*_: object) -> None:
        print("from Python")
        os.write(2, b"from a native library\n")
        raise ValueError("no such thing")

    monkeypatch.setattr("model_build.build.archive.pack", chatter)
    assert run(["build", "tiny", "--target", "cpu"]) == 70
    log = tiny_copy / "build" / "tiny" / ".compiled" / "cpu" / "build.log"
    assert capfd.readouterr() == ("", f"Unforeseen ValueError: no such thing. The log is {log}.\n")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    written = log.read_text("utf-8")
    for text in ("from Python\n", "from a native library\n", "ValueError: no such thing"):
        assert text in written


def test_an_invalid_tokenizer_ends_a_build_before_it_begins(run: Run, tiny_copy: Path, capsys: Capture) -> None:
    file = tiny_copy / "workloads" / "tiny" / "checkpoint" / "tokenizer.json"
    file.write_text("{}")
    assert run(["build", "tiny", "--target", "cpu", "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{file}: cannot be used (")
    assert err.count("\n") == 1


def test_a_step_is_reported_if_the_last_one_is_long_ago() -> None:
    told, seconds = list[str](), iter([0.0, 5.0, 29.9, 30.0, 31.0, 59.9, 75.0])
    progress = seldom(told.append, 30.0, lambda: next(seconds))
    for step in ("loading", "compiling", "asking, 0", "asking, 32", "asking, 64", "asking, 96"):
        progress(step)
    assert told == ["asking, 0", "asking, 96"]


@pytest.mark.parametrize(("every_s", "says"), [(0.0, True), (600.0, False)])
def test_a_log_has_the_steps_of_a_long_build(
    every_s: float, says: bool, tiny_copy: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "ROOT", tiny_copy)
    monkeypatch.setattr(command_line, "LOG_INTERVAL_S", every_s)
    assert command_line.main(["build", "tiny", "--target", "cpu"]) == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("tiny for cpu: ")]
    assert ("tiny for cpu: Packing" in lines) is says
    assert bool(lines) is says
