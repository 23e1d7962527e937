"""`python -m scripts.lock [--upgrade | --upgrade-package NAME]`: writes the lock of every environment, for `make lock`.

A lock pins all packages that an environment gets, each with the sha256 of every wheel of it that its Pythons can
install on Linux on x86-64. uv resolves for all Pythons at once, against PyPI, whatever index pip uses here: the
hashes are those that any machine sees. A version stays until it no longer fits pyproject.toml or is upgraded. Source
distributions are left out, for to install one is to run its code.

PyPI's torch brings CUDA, gigabytes that a machine without a GPU has no use for, and PyTorch's own build without it is
not on PyPI. So the lock of an environment has no torch: requirements/torch-cuda.txt has PyPI's and what it brings,
requirements/torch-cpu.txt, maintained manually, the other. scripts/install_locked.sh takes the one that pip can find.
Two locks have a torch of their own: requirements/inf1.txt the torch 1.13.1 of the Inf1 image, and
containers/triton/gpu-torch-requirements.txt the newest on PyPI that is built for CUDA 12.6.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib
from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from workloads import ROOT, UsageError

HEADER = "# Written by `make lock` from pyproject.toml. To add or move a package, change it there.\n"
TORCH_CUDA = "requirements/torch-cuda.txt"
OF_CUDA = re.compile(r"(nvidia|cuda)-.+|torch|triton")
"""The names of torch and of what PyPI's build of it brings, among those of `DEVELOPMENT`."""
PYTHONS = ("3.11", "3.12", "3.13")
ON_TRITON = ("3.11", "3.12")
"""The Triton server's Python backend needs numpy 1, which has no wheel for Python 3.13."""
ON_NEURON = ("3.10", "3.12")
"""The Pythons of AWS's images for Inf1 and for Inf2."""
ON_INF1 = ON_NEURON[:1]
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """A lock's file and what it is made from: `extras` of the project or a dependency `group`."""

    file: str
    extras: tuple[str, ...] = ()
    group: str | None = None
    pythons: tuple[str, ...] = PYTHONS
    within: str | None = None
    """The lock whose versions this one takes, where both have a package."""
    without: tuple[str, ...] = ()
    """Packages that the image has and keeps."""

    @property
    def source(self) -> list[str]:
        """uv's arguments."""
        if self.group is not None:
            return ["--group", self.group]
        return ["pyproject.toml", *(part for extra in self.extras for part in ("--extra", extra))]


DEVELOPMENT = "requirements/development.txt"
TRITON = "containers/triton/local-requirements.txt"
TELEMETRY = ("openvino-telemetry",)
"""OpenVINO and NNCF run without this package, which sends usage data to Google Analytics."""
INF1 = "requirements/inf1.txt"
"""The lock of the packages that AWS's image for Inf1 includes. The locks of the packages that it lacks are separate."""
GPU_TORCH = "containers/triton/gpu-torch-requirements.txt"
OWN_TORCH = (INF1, GPU_TORCH)
LOCKS = (
    Lock(file=DEVELOPMENT, extras=("measure", "cdk", "build", "local", "dev"), without=TELEMETRY),
    Lock(file="requirements/project.txt", extras=("measure",), within=DEVELOPMENT),
    Lock(file="requirements/build.txt", extras=("build",), within=DEVELOPMENT, without=TELEMETRY),
    Lock(file="requirements/cdk.txt", extras=("cdk",), within=DEVELOPMENT),
    Lock(file="requirements/node.txt", extras=("node",), within=DEVELOPMENT),
    Lock(file="requirements/tensorrt-check.txt", extras=("tensorrt-check",), within=DEVELOPMENT),
    Lock(file="requirements/modelopt.txt", extras=("modelopt",), within=DEVELOPMENT),
    Lock(file="requirements/generator.txt", group="generator", within=DEVELOPMENT),
    Lock(file="requirements/uv.txt", group="uv", pythons=("3.10", *PYTHONS)),
    Lock(file=TRITON, group="triton-local", pythons=ON_TRITON, without=TELEMETRY),
    Lock(
        file="containers/triton/requirements.txt",
        group="triton-image",
        pythons=ON_TRITON,
        within=TRITON,
        without=("numpy", *TELEMETRY),
    ),
    Lock(file="containers/triton/gpu-requirements.txt", group="triton-gpu-image", pythons=ON_TRITON, within=TRITON),
    Lock(
        file="containers/triton/gpu-cuda12-requirements.txt",
        group="triton-gpu-cuda12-image",
        pythons=ON_TRITON,
        within=TRITON,
    ),
    Lock(file="containers/triton/gpu-2409-requirements.txt", group="triton-gpu-2409-image", pythons=("3.10",)),
    Lock(file=GPU_TORCH, group="triton-gpu-torch-image", pythons=("3.10", "3.12")),
    Lock(file="requirements/gpu.txt", group="gpu"),
    Lock(file="containers/batch/requirements.txt", group="batch-image", pythons=ON_TRITON, within=DEVELOPMENT),
    Lock(file="containers/neuron/requirements.txt", group="neuron-image", pythons=ON_NEURON),
    Lock(file="model_build/remote/neuron-requirements.txt", group="neuron-build", pythons=ON_NEURON),
    Lock(file=INF1, group="inf1", pythons=ON_INF1, within="containers/neuron/requirements.txt"),
    Lock(file="benchmarks/generator/requirements.txt", group="generator-peers", pythons=ON_TRITON),
    Lock(file="benchmarks/peers-optimum-requirements.txt", group="peers-optimum"),
    # PyPI's torchvision needs torch's build with CUDA.
    Lock(
        file="benchmarks/peers-openvino-requirements.txt", group="peers-openvino", without=("torchvision", *TELEMETRY)
    ),
    Lock(file="requirements/scanners.txt", group="scanners"),
    Lock(file="requirements/aws-cli.txt", group="aws-cli", within=DEVELOPMENT),
    Lock(file="requirements/clients.txt", group="clients"),
    Lock(file="requirements/clients-3.txt", group="clients-3"),
)


def main(arguments: Sequence[str]) -> int:
    of_cuda: set[str] = set()
    for lock in LOCKS:
        print(lock.file, file=sys.stderr)
        entries = list(entries_of(resolve(lock, arguments), lock.pythons, lock.without))
        names = {name for name, _ in entries}
        if lock.file == DEVELOPMENT:
            of_cuda = {name for name in names if OF_CUDA.fullmatch(name)}
            _write(TORCH_CUDA, (text for name, text in entries if name in of_cuda))
        left_out = of_cuda if "torch" in names and lock.file not in OWN_TORCH else set()
        _write(lock.file, (text for name, text in entries if name not in left_out))
    return 0


def resolve(lock: Lock, arguments: Sequence[str]) -> Iterable[Mapping[str, Any]]:
    """Returns the packages as PEP 751 has them. The first call finds the versions, the second the files' hashes."""
    with tempfile.TemporaryDirectory() as scratch:
        versions, pylock = Path(scratch) / "versions.txt", Path(scratch) / "pylock.toml"
        known = [ROOT / name for name in (lock.file, TORCH_CUDA)]
        versions.write_text("".join(file.read_text("utf-8") for file in known if file.exists()), "utf-8")
        within = ["--constraint", lock.within] if lock.within else []
        _compile(lock, versions, *within, *arguments)
        _compile(lock, pylock, "--constraint", str(versions))
        return list(tomllib.loads(pylock.read_text("utf-8"))["packages"])


def _compile(lock: Lock, output: Path, *arguments: str) -> None:
    command = ["uv", "pip", "compile", *lock.source, "--universal", "--no-build", "--python-version", lock.pythons[0]]
    subprocess.run([*command, "--quiet", "--output-file", str(output), *arguments], cwd=ROOT, check=True)


def entries_of(
    packages: Iterable[Mapping[str, Any]], pythons: Sequence[str], without: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yields each package's name and its lines in a lock. Raises `UsageError` for one without a wheel for a Python."""
    for package in packages:
        marker = Marker(package["marker"]) if "marker" in package else None
        needed = [python for python in pythons if marker is None or marker.evaluate(environment(python))]
        if needed and package["name"] not in without:
            yield package["name"], _entry(package, needed, everywhere=len(needed) == len(pythons))


def _entry(package: Mapping[str, Any], pythons: Sequence[str], *, everywhere: bool) -> str:
    pin = f"{package['name']}=={package['version']}"
    hashes: set[str] = set()
    for python in pythons:
        found = {wheel["hashes"]["sha256"] for wheel in package["wheels"] if fits(_file_name(wheel), python)}
        if not found:
            raise UsageError(
                f"{pin} has no wheel for Python {python} on Linux on x86-64. Choose a version that has one."
            )
        hashes |= found
    where = "" if everywhere else " ; " + " or ".join(f"python_version == '{python}'" for python in pythons)
    return " \\\n    ".join([pin + where, *(f"--hash=sha256:{each}" for each in sorted(hashes))]) + "\n"


def fits(wheel: str, python: str) -> bool:
    """Returns whether this Python installs the wheel on Linux on x86-64."""
    return not parse_wheel_filename(wheel)[3].isdisjoint(_tags(python))


def _tags(python: str) -> set[Tag]:
    version = tuple(map(int, python.split(".")))
    interpreter = f"cp{version[0]}{version[1]}"
    return {*cpython_tags(version, [interpreter], PLATFORMS), *compatible_tags(version, interpreter, PLATFORMS)}


def environment(python: str) -> dict[str, str]:
    """Returns the markers' values for a Python; the others are those of this machine: Linux on x86-64."""
    return {"python_version": python, "python_full_version": f"{python}.0"}


def _file_name(wheel: Mapping[str, Any]) -> str:
    return str(wheel.get("name") or wheel["url"].rpartition("/")[2]).replace("%2B", "+")


def _write(file: str, entries: Iterable[str]) -> None:
    (ROOT / file).write_text(HEADER + "".join(entries), "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
