"""Shared by all tests: no AWS credentials, no hypothesis deadline, and a workload folder that a test may change."""

import gc
import hashlib
import os
import re
import secrets
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.process_state import unchanged_process_state as unchanged_process_state
from tests.rooms import ByRoom, rank
from workloads import ROOT, Workload, WorkloadFolder, load_workload

EditToml = Callable[..., Path]

# The models of the tests are tiny, and the processes are more than the cores: a second thread would spin until the
# first gets its turn again. Where a build takes a thread for each core, they sleep instead. The programs that tests
# start inherit both.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A shell gives what it starts in the background SIGINT as ignored, and children inherit that: Ctrl-C would reach none
# of the programs under test.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The order of the tests. The processes of pytest-xdist inherit it; set it to repeat an order.
SEED = os.environ.setdefault("TEST_SEED", str(secrets.randbelow(10_000)))

# How long an example or its generation takes depends on how busy the machine is. The examples are the same in each run,
# so that nobody's push fails by what another wrote; `make fuzz` and `make test-all` look for new ones.
settings.register_profile("new-examples", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same-examples", settings.get_profile("new-examples"), derandomize=True)
settings.load_profile("same-examples")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Lets no garbage collection look through what the modules of all tests leave in memory, which lives to the end:
    neither while they are imported, nor later, when every run of the load generator begins with a full one."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)  # What a test makes is gone with it; Python would look every 700 objects.
        gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByRoom | None:
    return ByRoom(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # pytest then groups the tests of a file by their parametrised fixtures.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffles the files of a room, and the tests of a file. TEST_SEED alone decides the order, not what is collected.

    The longest rooms come first, and in each the files that start real servers: no process should end with one.
    """
    long = {item.path for item in items if item.get_closest_marker("integration")}
    items.sort(
        key=lambda item: (
            rank(item.location[0]),
            item.path not in long,
            _shuffled(item.location[0]),
            _shuffled(item.nodeid),
        )
    )


def _shuffled(name: str) -> bytes:
    return hashlib.sha256(f"{SEED} {name}".encode()).digest()


def pytest_report_header() -> str:
    return f"random order: TEST_SEED={SEED}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(f"To repeat this order, set TEST_SEED={SEED}.")


@pytest.fixture(scope="session", autouse=True)
def _no_aws_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Removes every source of AWS credentials and of a region, for the tests and for the processes they start.

    Tests that need an account start one, and set its variables for themselves.
    """
    empty = tmp_path_factory.mktemp("aws") / "empty"
    empty.touch()
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("AWS_", "CDK_DEFAULT_")) or name == "BOTO_CONFIG":
                patch.delenv(name)
        patch.setenv("AWS_CONFIG_FILE", str(empty))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(empty))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_recommendation_in_the_checkout() -> Iterator[None]:
    """Every command reads these files, and whoever runs the tests would find them among the changes to commit."""

    def written() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in ROOT.glob("workloads/*/recommendation.json")}

    before = written()
    yield
    assert written() == before


@pytest.fixture(scope="session")
def spellcheck() -> WorkloadFolder:
    """Returns it as the local account hosts it, with the objective of production."""
    folder = load_workload("spellcheck").hosted_on("cpu")
    table = folder.workload.model_dump(mode="json")
    table["targets"]["cpu"]["objective"] = None
    folder.workload = Workload.from_table(folder.file, table)
    return folder


@pytest.fixture
def workloads_copy(tmp_path: Path) -> Path:
    return copy_of_workloads(tmp_path / "workloads")


def copy_of_workloads(copy: Path) -> Path:
    """Copies spellcheck without its checkpoint, hosted on `cpu` with the objective of production."""
    shutil.copytree(
        ROOT / "workloads" / "spellcheck",
        copy / "spellcheck",
        ignore=shutil.ignore_patterns("checkpoint", "__pycache__", "recommendation.json"),
    )
    file = copy / "spellcheck" / "workload.toml"
    text = without_objectives_of_targets(file.read_text("utf-8"))
    file.write_text(text.replace('\ntarget = "tensorrt" ', '\ntarget = "cpu" '), "utf-8")
    return copy


def without_objectives_of_targets(toml: str) -> str:
    return re.sub(r"\[targets\.\w+\.objective\]\n(\w.*\n)+", "", toml)


@pytest.fixture
def edit_toml(workloads_copy: Path) -> EditToml:
    """Returns a function that replaces a piece of the copied workload.toml and returns the folder of workloads."""

    def edit(old: str, new: str) -> Path:
        file = workloads_copy / "spellcheck" / "workload.toml"
        text = file.read_text("utf-8")
        assert text.count(old) >= 1, f"{old!r} is not in workload.toml"
        file.write_text(text.replace(old, new, 1), "utf-8")
        return workloads_copy

    return edit
