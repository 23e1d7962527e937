"""What every room's tests share: a copy of a workload's folder that a test may damage."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from workloads import ROOT, WorkloadFolder, load_workload

EditToml = Callable[..., Path]

# A shell gives what it starts in the background SIGINT as ignored, and children inherit that: Ctrl-C would reach none
# of the programs under test.
signal.signal(signal.SIGINT, signal.default_int_handler)


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long walks first: with a process per core, one core would otherwise end with them alone."""
    items.sort(key=lambda item: item.path.parent != HERE)


@pytest.fixture(scope="session")
def spellcheck() -> WorkloadFolder:
    return load_workload("spellcheck")


@pytest.fixture
def workloads_copy(tmp_path: Path) -> Path:
    """A folder of workloads with a copy of spellcheck, without its checkpoint."""
    copy = tmp_path / "workloads"
    shutil.copytree(
        ROOT / "workloads" / "spellcheck",
        copy / "spellcheck",
        ignore=shutil.ignore_patterns("checkpoint", "__pycache__", "recommendation.json"),
    )
    return copy


@pytest.fixture
def edit_toml(workloads_copy: Path) -> EditToml:
    """Replace one piece of the copied workload.toml by another; returns the folder of workloads."""

    def edit(old: str, new: str) -> Path:
        file = workloads_copy / "spellcheck" / "workload.toml"
        text = file.read_text("utf-8")
        assert text.count(old) >= 1, f"{old!r} is not in workload.toml"
        file.write_text(text.replace(old, new, 1), "utf-8")
        return workloads_copy

    return edit
