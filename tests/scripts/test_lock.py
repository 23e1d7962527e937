"""Every environment comes from a lock, and a lock has a hash for every package."""

import importlib.metadata
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from scripts.lock import DEVELOPMENT, INF1, LOCKS, OWN_TORCH, TORCH_CUDA, Lock, entries_of, environment, fits
from tests.builders import a_program, message_of
from tests.locks import PIN, pins
from workloads import ROOT, UsageError

TORCH_CPU = "requirements/torch-cpu.txt"
INSTALL = ROOT / "scripts" / "install_locked.sh"
FILES = [*(lock.file for lock in LOCKS), TORCH_CUDA, TORCH_CPU]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
INSTALLERS = ("Makefile", "containers", "inference_recommender", "model_build", "scripts", "stacks")


@pytest.mark.parametrize("file", FILES)
def test_every_package_of_a_lock_has_a_version_and_hashes_and_no_index(file: str) -> None:
    text = re.sub(r"^#.*\n", "", (ROOT / file).read_text("utf-8"), flags=re.MULTILINE)
    assert PIN.sub("", text) == ""
    assert pins(ROOT / file)


def files_of(*rooms: str) -> list[Path]:
    """Returns the files of folders and the files named. git is not asked: the pipeline checks a commit without it."""
    named = [ROOT / room for room in rooms]
    return [file for each in named for file in ([each] if each.is_file() else each.rglob("*")) if file.is_file()]


def test_every_file_of_requirements_is_a_lock() -> None:
    texts = [file for file in files_of(*INSTALLERS, "benchmarks", "requirements") if file.suffix == ".txt"]
    found = {file for file in texts if file.parent.name == "requirements" or "requirements" in file.name}
    assert {file.relative_to(ROOT).as_posix() for file in found} == set(FILES)


def declared(lock: Lock) -> Iterator[Requirement]:
    if lock.group is None:
        extras = PROJECT["project"]["optional-dependencies"]
        listed = [*PROJECT["project"]["dependencies"], *(text for extra in lock.extras for text in extras[extra])]
    else:
        listed = list(group(lock.group))
    return map(Requirement, listed)


def group(name: str) -> Iterator[str]:
    for entry in PROJECT["dependency-groups"][name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from group(entry["include-group"])


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.file)
def test_a_lock_fits_what_pyproject_declares(lock: Lock) -> None:
    """Run `make lock` where this fails."""
    for wanted in declared(lock):
        name = canonicalize_name(wanted.name)
        text = (ROOT / (TORCH_CUDA if name == "torch" and lock.file not in OWN_TORCH else lock.file)).read_text("utf-8")
        for python in lock.pythons:
            if wanted.marker is None or wanted.marker.evaluate(environment(python)):
                versions = [pin[2] for pin in PIN.finditer(text) if pin[1] == name and holds(pin[3], python)]
                assert len(versions) == 1, f"{name} for Python {python}: {versions}"
                assert wanted.specifier.contains(Version(versions[0])), str(wanted)


def holds(marker: str | None, python: str) -> bool:
    return marker is None or f"'{python}'" in marker


@pytest.mark.parametrize("lock", [lock for lock in LOCKS if lock.within], ids=lambda lock: lock.file)
def test_environments_of_one_package_have_one_version_of_it(lock: Lock) -> None:
    assert lock.within is not None
    ours, others = pins(ROOT / lock.file), pins(ROOT / lock.within)
    assert {name: others[name] for name in ours.keys() & others.keys()} == {
        name: ours[name] for name in ours.keys() & others.keys()
    }


def test_both_builds_of_torch_are_of_the_version_that_is_declared() -> None:
    (declared_build,) = (text for text in PROJECT["project"]["optional-dependencies"]["build"] if "torch" in text)
    assert declared_build == f"torch=={pins(ROOT / TORCH_CUDA)['torch']}"
    text = (ROOT / TORCH_CPU).read_text("utf-8")
    assert f"\n{declared_build}+cpu \\\n" in text
    assert text.count("--hash=sha256:") == len(LOCKS[0].pythons), "one wheel for each Python"


def test_what_the_inf1_image_brings_and_what_is_installed_in_it_fit_together() -> None:
    """`make inf1` installs all three locks into one environment."""
    others = ("containers/neuron/requirements.txt", "model_build/remote/neuron-requirements.txt")
    locks = [pins_on("3.10", name) for name in (INF1, *others)]
    for name in set().union(*locks):
        assert len({lock[name] for lock in locks if name in lock}) == 1, name
    (makefile,) = re.findall(r"^\$\(INF1\)/\.installed: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(makefile.split()) == {INF1, *others, "scripts/install_locked.sh"}


def pins_on(python: str, file: str) -> dict[str, str]:
    return {pin[1]: pin[2] for pin in PIN.finditer((ROOT / file).read_text("utf-8")) if holds(pin[3], python)}


def test_the_environment_of_the_tests_is_the_lock_and_lacks_nothing() -> None:
    """pip is told to resolve nothing, so what a package needs has to be in the lock."""
    with_cuda = pins(ROOT / TORCH_CUDA)
    locked = pins(ROOT / DEVELOPMENT) | {"torch": with_cuda.pop("torch")}
    todo = [(canonicalize_name(each.name), "") for each in declared(LOCKS[0])]
    todo += [(canonicalize_name(each.name), extra) for each in declared(LOCKS[0]) for extra in each.extras]
    seen: set[tuple[str, str]] = set()
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen or name in with_cuda or name in LOCKS[0].without:
            continue
        seen.add((name, extra))
        installed = Version(importlib.metadata.version(name))
        assert installed.public == locked[name], f"{name}: run `make setup`"
        for text in importlib.metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                todo += [(canonicalize_name(needed.name), each) for each in ("", *needed.extras)]
    assert {name for name, _ in seen} == locked.keys()


@pytest.mark.parametrize(("found", "build"), [(True, "cpu"), (False, "cuda")])
def test_torch_is_the_build_that_pip_finds(tmp_path: Path, found: bool, build: str) -> None:
    notes = tmp_path / "notes"
    script = f'echo "$*" >> {notes}\ncase "$*" in *--dry-run*) exit {int(not found)};; esac'
    python = a_program(tmp_path / "python", script)
    subprocess.run(["bash", INSTALL, python, "requirements/node.txt", "torch"], check=True)
    asked, installed = notes.read_text().splitlines()
    assert asked.endswith(" torch==2.13.0+cpu")
    assert installed == (
        "-m pip install --disable-pip-version-check --require-hashes --only-binary :all: --no-deps "
        f"--requirement requirements/node.txt --requirement requirements/torch-{build}.txt"
    )


def test_cdk_is_installed_last_because_another_package_overwrites_one_of_its_modules(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    python = a_program(tmp_path / "python", f'echo "$*" >> {notes}\nfor last; do :; done\ncat "$last" >> {notes}')
    subprocess.run(["bash", INSTALL, python, "requirements/cdk.txt"], check=True)
    again = notes.read_text().rpartition("--force-reinstall")[2]
    assert again.count("==") == 1
    assert "\naws-cdk-lib==" in again


def test_nothing_is_installed_by_name() -> None:
    """Only this project itself is installed without a hash, and for it no index is asked."""
    commands = {
        line.strip()
        for file in files_of(*INSTALLERS)
        if file.suffix in ("", ".py", ".sh")
        for line in file.read_text("utf-8", "ignore").splitlines()
        if re.search(r"^(?!#).*\bpip install\b.* -", line.strip()) and "`" not in line and "--dry-run" not in line
    }
    unhashed = {line for line in commands if "--require-hashes" not in line}
    assert len(unhashed) == 1, unhashed
    assert "--no-index --no-deps --no-build-isolation --editable ." in unhashed.pop()


def test_every_package_of_npm_has_its_integrity() -> None:
    packages = json.loads((ROOT / "package-lock.json").read_text("utf-8"))["packages"]
    others = {name: package for name, package in packages.items() if name}
    assert others
    assert all(package["integrity"].startswith("sha512-") for package in others.values())
    assert "npm ci " in (ROOT / "Makefile").read_text("utf-8")


def listed(version: str, *files: str, marker: str | None = None) -> dict[str, Any]:
    """A package as PEP 751 has it. A file's hash here is its name."""
    wheels = [{"url": f"somewhere/{file}", "hashes": {"sha256": file}} for file in files]
    return {"name": "p", "version": version, "wheels": wheels, **({"marker": marker} if marker else {})}


def test_a_lock_has_the_wheels_that_its_pythons_install_on_linux() -> None:
    old, new = "p-1-cp311-cp311-manylinux_2_28_x86_64.whl", "p-1-cp312-cp312-manylinux2014_x86_64.whl"
    others = ["p-1-cp313-cp313-manylinux2014_x86_64.whl", "p-1-cp311-cp311-win_amd64.whl"]
    others += ["p-1-cp312-cp312-manylinux_2_28_aarch64.whl", "p-1-cp312-cp312-musllinux_1_2_x86_64.whl"]
    entries = entries_of([listed("1", old, new, *others)], ("3.11", "3.12"))
    assert list(entries) == [("p", f"p==1 \\\n    --hash=sha256:{old} \\\n    --hash=sha256:{new}\n")]
    assert fits("p-1-py3-none-any.whl", "3.13")
    assert fits("p-1-cp38-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "3.13")


def test_a_package_for_one_python_has_a_marker() -> None:
    package = listed("1", "p-1-py3-none-any.whl", marker="python_full_version < '3.11' and sys_platform != 'win32'")
    assert list(entries_of([package], ("3.11",))) == []
    ((_, text),) = entries_of([package], ("3.10", "3.12"))
    assert text.startswith("p==1 ; python_version == '3.10' \\\n")


def test_a_package_without_a_wheel_for_a_python_is_refused() -> None:
    entries = entries_of([listed("1", "p-1-cp311-cp311-manylinux_2_28_x86_64.whl")], ("3.11", "3.12"))
    assert message_of(UsageError, list, entries) == (
        "p==1 has no wheel for Python 3.12 on Linux on x86-64. Choose a version that has one."
    )
