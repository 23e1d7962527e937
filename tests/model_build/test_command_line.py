"""python -m model_build: one document on stdout, sentences on stderr, documented exit codes."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomllib

import model_build.__main__ as command_line
from model_build import build
from model_build.compiled import exclusive
from model_build.plan import BuildPlan
from model_build.progress import seldom
from tests.inference_recommender.conftest import Cli
from tests.local_aws.conftest import wait_until
from workloads import ROOT, ModelArtifact, UsageError

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


@pytest.fixture
def cli(tiny_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setattr(command_line, "ROOT", tiny_copy)
    return Cli(capsys, command_line.main)


def test_plan_prints_the_steps_of_a_build(cli: Cli, tiny_copy: Path) -> None:
    code, out, err = cli("plan", "tiny", "--target", "cpu", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["archive"] == str(tiny_copy / "build" / "tiny" / "cpu" / "model.tar.gz")
    assert "tiny/1/decoder.onnx" in document["archive_files"]
    assert list(document["configuration"]) == ["tiny/config.pbtxt"]
    assert document["configuration"]["tiny/config.pbtxt"].startswith('name: "tiny"\n')
    assert document["environment"] == {"SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE": "8388608"}


def test_plan_does_nothing(cli: Cli, tiny_copy: Path) -> None:
    assert cli("plan", "tiny", "--target", "cpu-int8").returncode == 0
    assert not (tiny_copy / "build" / "tiny" / "cpu-int8").exists()


@pytest.mark.parametrize("module", ["model_build.__main__", "model_build.execute"])
def test_planning_and_the_parts_of_a_build_need_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit(bool({{'torch', 'onnxruntime'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_verify_prints_a_table_for_people(cli: Cli) -> None:
    lines = cli.out("verify", "tiny", "--target", "cpu").splitlines()
    assert lines[0] == "identical answers     40 of 40"
    assert lines[2:] == [
        "                      original  compiled  95 % interval",
        "exact match             0.0000    0.0000  0.0000 to 0.0876",
        "unchanged rate          0.0000    0.0000  0.0000 to 0.2425",
    ]


def test_verify_without_a_build_says_how_to_make_one(cli: Cli, tiny_copy: Path) -> None:
    file = tiny_copy / "build" / "tiny" / "cpu-int8" / "artifact.json"
    assert cli.err("verify", "tiny", "--target", "cpu-int8") == (
        f"{file} does not exist: build it with `python -m model_build build tiny --target cpu-int8`.\n"
    )


def test_a_busy_target_is_exit_code_3(cli: Cli, tiny_copy: Path) -> None:
    with exclusive(tiny_copy / "build" / "tiny" / ".compiled" / "cpu", "tiny", "cpu"):
        error = cli.err("build", "tiny", "--target", "cpu", code=3)
    assert error.startswith("Another build or verification of tiny for cpu is running")


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
def test_wrong_usage_is_exit_code_2(cli: Cli, case: dict[str, Any]) -> None:
    assert cli(*case["arguments"]) == (2, "", f"{case['message']}\n")


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
        wait_until(lambda: (folder / ".scratch" / "half.onnx").exists() or process.poll() is not None)
        process.send_signal(number)
        out, err = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, out, err) == (130, "", "Interrupted: no incomplete files remain.\n")
    assert (folder / "artifact.json").read_bytes() == before
    assert not (folder / ".scratch").exists()


def test_a_dry_run_prints_the_requests(cli: Cli) -> None:
    (request,) = cli.json("build", "tiny", "--target", "cpu", "--on", "sagemaker", "--dry-run")["requests"]
    assert request["AppSpecification"]["ContainerArguments"] == ["tiny", "cpu", "onnxruntime"]


def test_all_builds_every_workload_that_has_the_target_and_prints_a_table(cli: Cli) -> None:
    head, line = cli.out("build", "--all", "--target", "cpu").splitlines()
    assert head.split()[:4] == ["workload", "target", "runtime", "precision"]
    assert line.split()[:4] == ["tiny", "cpu", "onnxruntime", "fp32"]
    assert line.endswith("exact_match 0.0000 → 0.0000, unchanged_rate 0.0000 → 0.0000")


def test_lint_finds_nothing_in_a_build_and_something_in_a_damaged_one(cli: Cli, tiny_copy: Path) -> None:
    archive = tiny_copy / "build" / "tiny" / "cpu" / "model.tar.gz"
    assert cli.out("lint", str(archive), "--workload", "tiny").startswith("0 errors, 0 warnings.\n")
    archive.write_bytes(archive.read_bytes()[:1000])
    (finding,) = cli.json("lint", str(archive), "--json", code=1)["findings"]
    assert finding["severity"] == "error"


def test_a_bare_call_teaches(cli: Cli) -> None:
    code, out, err = cli()
    assert (code, err) == (0, "")
    assert "Compile a workload's checkpoint for a target, compare it with the original, and pack it." in out
    assert out.count("  python -m model_build ") == len(command_line.COMMANDS)
    assert "docs/building.md" in out


@pytest.mark.parametrize("command", command_line.COMMANDS)
def test_the_help_of_every_command_has_an_example(cli: Cli, command: str) -> None:
    assert f"\n  python -m model_build {command} " in cli.out(command, "--help")
    example = command_line.COMMANDS[command][1]
    assert command_line.parser(example.split()).parse_args(example.split()).command == command


def test_libraries_write_to_a_log_that_a_failing_build_names(
    tiny_copy: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def chatter(*_: object) -> None:
        print("from Python")
        os.write(2, b"from a native library\n")
        raise ValueError("no such thing")

    monkeypatch.setattr(command_line, "ROOT", tiny_copy)
    monkeypatch.setattr("model_build.execute.archive.pack", chatter)
    assert command_line.main(["build", "tiny", "--target", "cpu"]) == 70
    log = tiny_copy / "build" / "tiny" / ".compiled" / "cpu" / "build.log"
    assert capfd.readouterr() == ("", f"Unforeseen ValueError: no such thing. The log is {log}.\n")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    written = log.read_text("utf-8")
    for text in ("from Python\n", "from a native library\n", "ValueError: no such thing"):
        assert text in written


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


def test_python_builds_as_the_command_does(tiny_copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    steps = list[str]()
    artifact = build("tiny", "cpu", root=tiny_copy, progress=steps.append)
    assert artifact == ModelArtifact.from_json(tiny_copy / "build" / "tiny" / "cpu" / "artifact.json")
    assert "Packing" in steps
    with pytest.raises(UsageError, match="there is no target 'gpu'"):
        build("tiny", "gpu", root=tiny_copy)
    assert capfd.readouterr() == ("", "")
