"""An internal error of any program is one sentence, a log that only its owner can read, and exit code 70.

The programs run in this process. Each test replaces a call of the program by one that raises.
"""

import ast
import gc
import re
import runpy
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from workloads import ROOT, Unavailable
from workloads.contract import PACKAGES

PARSE = "argparse.ArgumentParser.parse_args"
PROGRAMS = {
    "app.py": "os.getppid",
    "containers.batch": PARSE,
    "containers.batch.account": PARSE,
    "containers.batch.archive": PARSE,
    "containers.batch.record": PARSE,
    "containers.neuron": "containers.container_errors.Unavailable",  # of the model that is not there
    "inference_recommender": PARSE,
    "inference_recommender.load_generator": PARSE,
    "local_aws": PARSE,
    "model_build": PARSE,
    "stacks": PARSE,
    "scripts.convert_trace": PARSE,
    "scripts.rehearsal.account": PARSE,
    "scripts.rehearsal.steps": "boto3.client",
    "scripts.rehearsal.release": "signal.signal",
    "scripts.release.image": "workloads.own_images.load_image",
    "scripts.release.pause_scaling": "workloads.load_workload",
    "scripts.release.publish_archives": "pathlib.Path.rglob",
    "scripts.walk": "signal.signal",
}
"""The call that raises the planted error, by program."""
ARGUMENTS = {"scripts.release.image": ("uri", "cpu"), "scripts.rehearsal.steps": ("show", "x")}
"""The arguments of a program that refuses `one two` by itself."""
TESTED_IN_THEIR_ROOMS = {
    "containers/triton/server_times.py",
    "inference_recommender/measure/generator_entry.py",
    "model_build/remote/entry.py",
    "model_build/tensorrt/int8.py",
    "scripts/release/check_image.py",
}
CHILDREN = {
    "containers/batch/worker.py",
    "containers/neuron/worker.py",
    "containers/triton/server_times.py",
    "local_aws/process/guard.py",
    "local_aws/process/triton.py",
    "scripts/rehearsal/stand_ins/container_entry.py",
    "scripts/rehearsal/stand_ins/processing_job.py",
    "scripts/rehearsal/stand_ins/vpc_build.py",
}
"""Processes that a program starts: it tells in its own words that they died."""
TOOLS = {
    "scripts/api_docs.py",
    "scripts/check_words.py",
    "scripts/figures.py",
    "scripts/install.py",
    "scripts/lock.py",
    "scripts/run_tests.py",
}
"""Programs for those who work on this project, whose traceback is what they want to see."""


class Planted:
    """Raises what no program foresees, when it is called or read."""

    def __call__(self, *_: object, **__: object) -> None:
        raise KeyError("planted")

    __iter__ = __call__


@pytest.fixture(autouse=True)
def _as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logs go to a folder of the test's own; what a program changes in its process is changed back."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("MODEL_FOLDER", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))  # torch would set it
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    set_handler = signal.signal
    yield
    gc.enable()
    for number, handler in handlers.items():
        set_handler(number, handler)


def run(program: str, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(sys, "argv", [program, *ARGUMENTS.get(program, ("one", "two"))])
    # runpy warns of a program that is imported already; a process of its own begins without it.
    monkeypatch.delitem(sys.modules, module_of(program), raising=False)
    start = runpy.run_path if program.endswith(".py") else runpy.run_module
    with pytest.raises(SystemExit) as ended:
        start(str(ROOT / program) if program.endswith(".py") else program, run_name="__main__")
    return ended.value.code


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_internal_error_prints_a_sentence_and_writes_a_private_log(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PROGRAMS[program], Planted())
    assert run(program, monkeypatch) == 70
    out, err = capsys.readouterr()
    assert out == ""
    told = re.fullmatch(r"Unforeseen KeyError: 'planted'( \(at [^)]*\))?\. The log is (\S+)\.\n", err)
    assert told, err
    log = Path(told[2])
    assert log.parent == tmp_path
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "Traceback (most recent call last)" in log.read_text("utf-8")
    assert "KeyError: 'planted'" in log.read_text("utf-8")


class Hostile(Planted):
    """Raises an error that quotes a server's escape codes."""

    def __call__(self, *_: object, **__: object) -> None:
        raise Unavailable("HTTP 500: \x1b]0;PWNED\x07 \x1b[2J \x9b31m\rfake\x7f\nsecond line\tend")

    __iter__ = __call__


@pytest.mark.parametrize("program", [name for name in PROGRAMS if not name.startswith("containers.")])
def test_an_error_that_quotes_control_characters_prints_them_as_escapes(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PROGRAMS[program], Hostile())
    assert run(program, monkeypatch) == 3
    err = capsys.readouterr().err
    assert r"HTTP 500: \x1b]0;PWNED\x07 \x1b[2J \x9b31m\x0dfake\x7f" in err
    assert not set(err) & {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))} - {"\n", "\t"}


def test_every_program_is_tested() -> None:
    files = [ROOT / "app.py", *(file for package in (*PACKAGES, "scripts") for file in (ROOT / package).rglob("*.py"))]
    programs = {file for file in files if '"__main__"' in file.read_text("utf-8") and is_program(file)}
    tested = TESTED_IN_THEIR_ROOMS | CHILDREN | TOOLS | {file_of(program) for program in PROGRAMS}
    assert {file.relative_to(ROOT).as_posix() for file in programs} == tested


def file_of(program: str) -> str:
    if program.endswith(".py"):
        return program
    path = program.replace(".", "/")
    return f"{path}.py" if (ROOT / f"{path}.py").exists() else f"{path}/__main__.py"


def module_of(program: str) -> str:
    return file_of(program).removesuffix(".py").replace("/", ".")


def is_program(file: Path) -> bool:
    blocks = [node for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.If)]
    return any(ast.unparse(node.test) == "__name__ == '__main__'" for node in blocks)
