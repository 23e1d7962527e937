"""Runs the batch program on a small model: as a process from a copy of its container's folder, or in this process."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import containers
from containers.batch.__main__ import main
from tests.containers.encoder.encoder_miniature import CLASSIFICATION, LETTERS, PAIR_SCORING, make_folder
from tests.containers.test_images import FILES

ROOM = Path(containers.__path__[0])


@dataclass(frozen=True)
class Ended:
    code: int
    summary: dict[str, Any] | None
    log: str


def install(folder: Path) -> Path:
    """Copies the files that the image copies."""
    (folder / "containers").mkdir(parents=True)
    for name in FILES:
        shutil.copy(ROOM / name, folder / "containers")
    for package in ("batch", "encoder", "neuron"):
        shutil.copytree(ROOM / package, folder / "containers" / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def start(program: Path, *arguments: object, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """Starts the program in its own process group, so that all of it can be killed at once.

    A killed program leaves its temporary folder, so that is below the program's.
    """
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"TMPDIR": str(program)}
    return subprocess.Popen(
        [sys.executable, "-m", "containers.batch", *map(str, arguments)],
        cwd=program,
        env={**own, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(program: Path, *arguments: object, environment: Mapping[str, str] | None = None) -> Ended:
    return end(start(program, *arguments, environment=environment))


def run_here(*arguments: object) -> Ended:
    printed, log = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(log):
        code = main(list(map(str, arguments)))
    return Ended(code, json.loads(printed.getvalue()) if code in (0, 1) else None, log.getvalue())


def end(process: "subprocess.Popen[str]") -> Ended:
    printed, log = process.communicate(timeout=600)
    return Ended(process.returncode, json.loads(printed) if printed else None, log)


def kill_group(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for_parts(output: Path, count: int, process: "subprocess.Popen[str]") -> None:
    """Waits for that many finished chunks, or for the end of the program."""
    while process.poll() is None and len(list(output.glob("predictions-*"))) < count:
        time.sleep(0.002)


def read_rows(output: Path, kind: str) -> list[dict[str, Any]]:
    """Returns the rows of all chunks, in order."""
    files = sorted(output.glob(f"{kind}-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def contents(output: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(output.iterdir())}


SETTINGS = replace(
    PAIR_SCORING,
    segments=(("title", "brand"), ("other_title", "other_brand")),
    inputs=CLASSIFICATION.inputs,
    max_input_tokens=40,
    threads=4,
    pad_to=(),
)


def write_model(folder: Path, labels: tuple[str, ...] = PAIR_SCORING.labels) -> Path:
    return make_folder(folder, replace(SETTINGS, labels=labels), "model.onnx")


def row(number: int) -> dict[str, Any]:
    """Lengths go up and down, so that no batch is as the rows come."""
    title = LETTERS[number % 7 : number % 7 + 3 + number * 7 % 13]
    return {"id": number, "title": title, "brand": "acme", "other_title": title[::-1], "other_brand": str(number % 10)}


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file
