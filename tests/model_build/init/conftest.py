"""Checkpoints as a team brings them, and `init` in a root of its own."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import model_build.__main__ as command_line
from tests import checkpoints
from workloads import WorkloadFolder, load_workload

Capture = pytest.CaptureFixture[str]
Init = Callable[..., WorkloadFolder]


@pytest.fixture(scope="session")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints that these tests begin with. Not to be changed."""
    folder = tmp_path_factory.mktemp("brought")
    for kind in ("bert_classifier", "bert_reader", "t5"):
        checkpoints.KINDS[kind](folder / kind)
    return folder


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "root" / "workloads").mkdir(parents=True)
    monkeypatch.setattr(command_line, "ROOT", tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture
def init(root: Path) -> Init:
    """Runs `init mine` and returns the folder that it wrote."""

    def run(source: Path, *options: object) -> WorkloadFolder:
        assert command_line.main(["init", "mine", "--from", str(source), *map(str, options)]) == 0
        return load_workload("mine", root / "workloads")

    return run


@pytest.fixture
def refusal(root: Path, capsys: Capture) -> Callable[..., str]:
    """Returns what `init` says against its arguments; nothing is left behind."""

    def run(source: Path | str, *options: object, name: str = "mine") -> str:
        assert command_line.main(["init", name, "--from", str(source), *map(str, options)]) == 2
        assert list((root / "workloads").iterdir()) == []
        assert list(root.glob("build/.init-*")) == []
        return capsys.readouterr().err.strip().splitlines()[-1]

    return run


def write_csv(file: Path, rows: list[dict[str, Any]]) -> Path:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


def write_lines(file: Path, lines: list[Any]) -> Path:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file


def copy_of(source: Path, folder: Path, **changes: Any) -> Path:
    """Copies a checkpoint with changes in its config.json; None removes a key."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({key: each for key, each in config.items() if each is not None}))
    return folder
